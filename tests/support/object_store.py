"""An object store on loopback that speaks S3, behind a relay that can be cut."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.relay import Relay, relay

_PATIENCE_SECONDS = 60
BUCKET = "lake"


@contextmanager
def object_store() -> Iterator[tuple[Relay, dict[str, str]]]:
    """The way to a store with an empty bucket, and the variables by which clients find it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    program = str(Path(sys.executable).with_name("moto_server"))
    server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        _make_bucket(port)
        with relay(port) as line:
            yield (
                line,
                {
                    "AWS_ACCESS_KEY_ID": "writer",
                    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
                    "AWS_REGION": "us-east-1",
                    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{line.port()}",
                    "AWS_ALLOW_HTTP": "true",
                },
            )
    finally:
        server.kill()
        server.wait(_PATIENCE_SECONDS)


def _make_bucket(port: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
