"""A real Prometheus for tests: it scrapes one address, on loopback, and is asked by its HTTP API."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_START_SECONDS = 60.0


def free_port() -> int:
    """A port of loopback on which nobody listens now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **asked: str) -> Any:
        """What the API answers; an error of an expression is raised with its text."""
        url = f"{self._url}{path}?{urllib.parse.urlencode(asked)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{asked}: {error.read().decode()}") from None
        assert told["status"] == "success"
        assert not told.get("warnings")
        return told["data"]

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now."""
        result: list[dict[str, Any]] = self.get("/api/v1/query", query=expression)["result"]
        return result

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextmanager
def prometheus(folder: Path, target: str, rules: Path) -> Iterator[Prometheus]:
    """A server that scrapes ``target`` every second and evaluates ``rules`` as often."""
    program = shutil.which("prometheus")
    assert program is not None, "prometheus is needed: scripts/browser.sh installs it"
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": "watersmeet", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # which is YAML
    port = free_port()
    command = [program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with (folder / "prometheus.log").open("w") as output:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=subprocess.STDOUT
        )
        try:
            server, deadline = Prometheus(port), time.monotonic() + _START_SECONDS
            while not server.is_ready():
                assert process.poll() is None, (folder / "prometheus.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield server
        finally:
            process.terminate()
            process.wait(30)
