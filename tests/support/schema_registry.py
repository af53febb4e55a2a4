"""A real schema registry on loopback: Apicurio's, which has Confluent's interface, with what it stores in a file.

It comes from Maven Central by Spark's own Ivy, as the broker does (kafka_broker.py), and is unpacked once, beside Ivy's
cache.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kafka_broker import START_SECONDS, STOP_SECONDS, JarsNotFoundError, java_command
from tests.support.prometheus import free_port

VERSION = "2.6.13.Final"
"""The last one for Java 17."""
_NAME = f"apicurio-registry-app-{VERSION}"
_PATH = f"io/apicurio/apicurio-registry-app/{VERSION}/{_NAME}-all.tar.gz"
_REPOSITORIES = ("https://repo1.maven.org/maven2", "https://maven-central.storage-download.googleapis.com/maven2")
_FOLDER = Path.home() / ".ivy2.5.2" / "watersmeet-tests" / _NAME
_DOWNLOAD_SECONDS = 300.0


def _unpacked() -> Path:
    """The folder of the registry's jars; raises ``JarsNotFoundError`` where they cannot be had."""
    if _FOLDER.exists():
        return _FOLDER
    _FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_FOLDER.parent) as name:
        packed = Path(name) / "all.tar.gz"
        _download(packed)
        whole = Path(name) / "whole"
        with tarfile.open(packed) as archive:
            archive.extractall(whole, filter="data")
        with contextlib.suppress(OSError):  # another run was quicker
            whole.rename(_FOLDER)
    return _FOLDER


def _download(target: Path) -> None:
    reasons = []
    for repository in _REPOSITORIES:
        try:
            with urllib.request.urlopen(f"{repository}/{_PATH}", timeout=_DOWNLOAD_SECONDS) as found:
                with target.open("wb") as file:
                    shutil.copyfileobj(found, file)
                return
        except OSError as error:
            reasons.append(str(error))
    raise JarsNotFoundError(f"{_NAME}: {'; '.join(reasons)}")


@dataclass(slots=True)
class RegistryServer:
    """A registry: its address, and how it is stopped, and started again with what it has stored."""

    port: int
    command: Sequence[str]
    output: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of Confluent's interface."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it; returns when it answers.  Raises ``RuntimeError`` if it does not."""
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(self.command, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                return
            time.sleep(0.1)
        self.stop(at_once=True)
        raise RuntimeError(f"the registry did not come up: {self.output.read_text(errors='replace')[-2000:]}")

    def stop(self, *, at_once: bool = False) -> None:
        """Stop it, or kill it as a crash does; what it has stored stays."""
        if self.process is None:
            return
        process, self.process = self.process, None
        if at_once:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=STOP_SECONDS)

    def ask(self, path: str, body: Mapping[str, Any] | None = None, method: str | None = None) -> Any:
        """What it answers; an error is raised with its text."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/vnd.schemaregistry.v1+json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()}") from None

    def register(
        self, subject: str, schema: object, kind: str = "AVRO", references: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """Register a schema (text, or JSON), and return its number."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        more = {} if kind == "AVRO" else {"schemaType": kind}
        body = {"schema": text, **more, "references": list(references)}
        return int(self.ask(f"/subjects/{subject}/versions", body)["id"])


@contextlib.contextmanager
def schema_registry() -> Iterator[RegistryServer]:
    """A registry that is empty; ended, and what it stored removed, at the end.

    Raises ``JarsNotFoundError`` where its jars cannot be had, ``RuntimeError`` where it does not come up.
    """
    jars, port = _unpacked(), free_port()
    with tempfile.TemporaryDirectory(prefix="watersmeet-registry-") as name:
        database = f"jdbc:h2:file:{name}/registry"
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": port,
            "quarkus.datasource.jdbc.url": database,
            "registry.datasource.url": database,
        }
        command = [java_command(), "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-D{key}={value}" for key, value in settings.items()]
        server = RegistryServer(port, [*command, "-jar", str(jars / f"{_NAME}-runner.jar")], Path(name) / "output.txt")
        try:
            server.start()
            yield server
        finally:
            server.stop()
