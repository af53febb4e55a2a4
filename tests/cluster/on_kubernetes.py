"""The job of examples/kubernetes, by its manifests, on an API server that runs pods as processes of this machine.

    python -m tests.cluster.on_kubernetes FOLDER

While it runs, one executor is killed.  It ends with 1 if its answer is not DuckDB's, or if Spark has done what the Role
of the manifests does not allow.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pyspark
import yaml

from tests.cluster.hosts import repository
from tests.cluster.job import FILES, expected, tables
from tests.cluster.kubernetes_api import Object, api_server
from tests.cluster.lake import STORE, open_store, results, write_streams
from tests.cluster.pods import Pods
from tests.support.jobs import QUICK_JVM

MANIFESTS = repository() / "examples" / "kubernetes"
_SECONDS = 500.0
_SECRETS = {"watersmeet-store:access-key": "reader", "watersmeet-store:secret-key": "not-a-secret"}


def manifests() -> list[Any]:
    """All objects of the example."""
    return [each for path in sorted(MANIFESTS.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]


def manifest(kind: str) -> Object:
    """The one object of a kind."""
    (found,) = (each for each in manifests() if each["kind"] == kind)
    return dict(found)


def image() -> dict[str, str]:
    """What the image sets, as it is here."""
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "JAVA_HOME", "LANG")}
    home = str(Path(pyspark.__file__).parent)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # the repository is where the image has installed the project
    return {**kept, "PATH": path, "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable, "AWS_REGION": "us-east-1"}


def settings_here() -> str:
    """What differs from the example's settings: everything is on this machine, which is small."""
    jars = os.environ["CLUSTER_JARS"]
    return "\n".join(
        [
            "spark.driver.host 127.0.0.1",
            "spark.driver.bindAddress 127.0.0.1",
            "spark.driver.port 0",
            "spark.driver.blockManager.port 0",
            "spark.executor.memory 600m",
            "spark.executor.cores 1",
            "spark.sql.shuffle.partitions 2",
            f"spark.hadoop.fs.s3a.endpoint {STORE}",
            # the image has them among Spark's own
            *(f"spark.{process}.extraClassPath {jars}" for process in ("driver", "executor")),
            *(f"spark.{process}.extraJavaOptions {QUICK_JVM}" for process in ("driver", "executor")),
        ]
    )


def allowed() -> set[tuple[str, str]]:
    """The verbs and resources of the Role."""
    return {
        (verb, resource)
        for rule in manifest("Role")["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }


def main(folder: str) -> int:
    """Run the job; return 1 if anything is wrong."""
    store = open_store()
    named = dict(zip(("orders", "payments"), tables().values(), strict=True))
    write_streams(store, named, FILES)
    pods = Pods(Path(folder), ["sh", str(MANIFESTS / "entrypoint.sh")], image(), _SECRETS)
    try:
        with api_server(pods.cluster) as url:
            _start(pods, url)
            _follow(pods)
    finally:
        pods.stop()
    found, due = results(store, "paired"), expected()
    print("equal to the batch answer" if found == due else f"{found - due}, missing {due - found}")
    print(f"{sum('-exec-' in pod['metadata']['name'] for pod in pods.started)} executors were started")
    used = pods.cluster.used
    print(f"not allowed by the Role: {sorted(used - allowed())}")
    return int(found != due or not used <= allowed())


def _start(pods: Pods, url: str) -> None:
    """Create the ConfigMap and the pod of the Job, with a few changes."""
    job = manifest("ConfigMap")
    small = "event_time_unit = 's', max_files_per_trigger = '1'"
    job["data"]["job.sql"] = job["data"]["job.sql"].replace("event_time_unit = 's'", small)
    job["data"]["spark-defaults.conf"] += settings_here()
    pods.cluster.create("configmaps", job)
    template = manifest("Job")["spec"]["template"]
    template["metadata"]["name"] = "driver"
    (container,) = template["spec"]["containers"]
    container["args"] = [each.replace("https://kubernetes.default.svc", url) for each in container["args"]]
    container["args"].append("--bounded")
    pods.cluster.create("pods", template)


def _follow(pods: Pods) -> None:
    """Wait for the driver's end, and kill an executor after the first batch."""
    ends, has_killed = time.monotonic() + _SECONDS, False
    while True:
        driver = pods.cluster.get("pods", "driver")
        assert driver is not None
        if driver["status"]["phase"] in ("Succeeded", "Failed"):
            break
        if not has_killed and "1 batch," in pods.log_of("driver"):
            print(f"killed {pods.kill_executor()}", file=sys.stderr, flush=True)
            has_killed = True
        assert time.monotonic() < ends, f"the driver has not ended after {_SECONDS:.0f} s: {pods.log_of('driver')}"
        time.sleep(0.2)
    assert driver["status"]["phase"] == "Succeeded", pods.log_of("driver")
    assert has_killed, "no executor was killed"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
