"""The example for Kubernetes: valid by Kubernetes' own schemas, with names that agree, and an image."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import kubernetes_validate
import pytest
import yaml
from dockerfile_parse import DockerfileParser

from tests.cluster.hosts import repository
from tests.cluster.on_kubernetes import MANIFESTS, manifest, manifests
from tests.support import spark_jars
from watersmeet.cli.explain import explain_script

_DOCKERFILE = (MANIFESTS / "Dockerfile").read_text()


def job() -> Any:
    """The pod of the Job."""
    return manifest("Job")["spec"]["template"]["spec"]


def settings() -> dict[str, str]:
    """Spark's settings in the ConfigMap."""
    lines = manifest("ConfigMap")["data"]["spark-defaults.conf"].splitlines()
    return dict(line.split(None, 1) for line in lines if not line.startswith("#"))


def instructions(name: str) -> list[str]:
    return [
        each["value"]
        for each in DockerfileParser(fileobj=io.BytesIO(_DOCKERFILE.encode())).structure
        if each["instruction"] == name
    ]


def test_kubernetes_takes_all_objects() -> None:
    objects = [*manifests(), yaml.safe_load(manifest("ConfigMap")["data"]["executor.yaml"])]
    assert len(objects) == 7
    for each in objects:
        kubernetes_validate.validate(each, "1.33", strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**objects[0], "metadatum": {}}, "1.33", strict=True)


def test_the_names_of_objects_agree() -> None:
    account = manifest("ServiceAccount")["metadata"]["name"]
    binding = manifest("RoleBinding")
    assert [each["name"] for each in binding["subjects"]] == [account]
    assert binding["roleRef"]["name"] == manifest("Role")["metadata"]["name"]
    assert job()["serviceAccountName"] == account
    service = manifest("Service")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == manifest("Job")["spec"]["template"]["metadata"]["labels"]
    assert settings()["spark.driver.host"] == service["metadata"]["name"]


def test_ports_mounts_and_secrets_agree() -> None:
    (driver,) = job()["containers"]
    ports = [int(settings()[f"spark.driver.{name}"]) for name in ("port", "blockManager.port")]
    assert [each["port"] for each in manifest("Service")["spec"]["ports"]] == ports
    assert [each["containerPort"] for each in driver["ports"]] == ports
    volumes = {each["name"]: each for each in job()["volumes"]}
    mounts = {each["name"]: each["mountPath"] for each in driver["volumeMounts"]}
    assert volumes.keys() == mounts.keys()
    config = manifest("ConfigMap")
    assert volumes["job"]["configMap"]["name"] == config["metadata"]["name"]
    variables = {each["name"]: each for each in driver["env"]}
    assert variables["SPARK_CONF_DIR"]["value"] == mounts["job"]
    files = [driver["args"][2], settings()["spark.kubernetes.executor.podTemplateFile"]]
    assert [Path(each).parent for each in files] == [Path(mounts["job"])] * 2
    assert {Path(each).name for each in files} | {"spark-defaults.conf"} == config["data"].keys()
    assert mounts["work"] == instructions("WORKDIR")[0]
    named = set(re.findall(r"\$\{env:(\w+)\}", config["data"]["spark-defaults.conf"]))
    assert named <= variables.keys()
    prefix = "spark.kubernetes.executor.secretKeyRef."
    of_executors = {name.removeprefix(prefix): value for name, value in settings().items() if name.startswith(prefix)}
    references = {
        name: each["valueFrom"].get("secretKeyRef") for name, each in variables.items() if "valueFrom" in each
    }
    assert of_executors == {name: f"{each['name']}:{each['key']}" for name, each in references.items() if each}


def test_nobody_is_root() -> None:
    (user,) = instructions("USER")
    identity = int(user.partition(":")[0])
    executor = yaml.safe_load(manifest("ConfigMap")["data"]["executor.yaml"])["spec"]
    for each in (job(), executor):
        assert each["securityContext"]["runAsNonRoot"]
        assert each["securityContext"]["runAsUser"] == identity != 0
        (container,) = each["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not executor["automountServiceAccountToken"]


def test_the_image_is_one_and_the_job_can_be_planned() -> None:
    (driver,) = job()["containers"]
    assert driver["image"] == settings()["spark.kubernetes.container.image"]
    assert f"--tag {driver['image']} ." in _DOCKERFILE
    assert len(list(explain_script(manifest("ConfigMap")["data"]["job.sql"], Path("none")))) == 1


def test_the_linter_of_dockerfiles_has_nothing_to_say() -> None:
    linter = str(Path(sys.executable).with_name("hadolint"))
    run = subprocess.run(
        [linter, str(MANIFESTS / "Dockerfile")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout) == (0, "")
    wrong = subprocess.run(
        [linter, "-"], input="FROM python\nRUN cd /", capture_output=True, text=True, timeout=60, check=False
    )
    assert wrong.returncode == 1


def test_what_the_dockerfile_names_is_there() -> None:
    copied = [line.split() for line in instructions("COPY") if not line.startswith("--from")]
    sources = [each for words in copied for each in words[:-1] if not each.startswith("--")]
    assert len(sources) == 7
    assert all((repository() / each).exists() for each in sources)
    assert os.access(MANIFESTS / "entrypoint.sh", os.X_OK)
    (entry,) = instructions("ENTRYPOINT")
    assert any(words[-1] in entry for words in copied)
    assert f"\nuv=={re.findall(r'uv==([0-9.]+)', _DOCKERFILE)[0]} " in (repository() / "requirements.lock").read_text()
    version = re.findall(r"^FROM python:(3\.\d+)-", _DOCKERFILE, re.MULTILINE)[0]
    assert f"/lib/python{version}/site-packages/pyspark" in _DOCKERFILE


def test_the_jars_are_those_that_are_tested() -> None:
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    found = {
        ":".join(each.findtext(f"m:{part}", "", space) for part in ("groupId", "artifactId", "version"))
        for each in ET.parse(MANIFESTS / "pom.xml").iterfind("m:dependencies/m:dependency", space)
    }
    assert found == {coordinate for coordinates, _ in spark_jars._S3 for coordinate in coordinates}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_installation_of_the_image(tmp_path: Path) -> None:
    """The instruction runs as it is, in folders of its own."""
    (command,) = (each for each in instructions("RUN") if each.startswith("python -m venv"))
    sources, place = tmp_path / "build", tmp_path / "environment"
    sources.mkdir()
    for name in ("pyproject.toml", "requirements.lock", "README.md", "LICENSE"):
        shutil.copy(repository() / name, sources)
    shutil.copytree(repository() / "src", sources / "src")
    (bin_folder,) = {str(Path(sys.base_prefix) / "bin")}
    variables = {**os.environ, "VIRTUAL_ENV": str(place), "PATH": f"{place}/bin:{bin_folder}:{os.environ['PATH']}"}
    here = command.replace("/build", str(sources))
    run = subprocess.run(
        ["sh", "-ec", here], env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^watersmeet \S+$", run.stdout, re.MULTILINE)
    assert not sources.exists()
    assert list((place / "lib").glob("python3*/site-packages/pyspark/jars/spark-kubernetes_*.jar"))
