"""A headless Chromium, spoken to over a pipe by its DevTools protocol: opens a page, evaluates, takes pictures."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ANSWER_SECONDS = 30.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-pipe",
)


class ChromiumMissingError(Exception):
    """There is no Chromium on this machine."""


class Browser:
    """One tab of a browser; ``problems`` are its errors: of scripts, of the console, of the security policy."""

    def __init__(self, process: subprocess.Popen[bytes], writes: int, reads: int) -> None:
        self._process, self._writes, self._reads = process, writes, reads
        self._number = 0
        self._unread = b""
        self._session: str | None = None
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            found = self._next(deadline)
            if found.get("id") == self._number:
                assert "error" not in found, found
                return dict(found["result"])
            self._note(found)

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 30.0) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"never true: {expression}; {self.value('document.body.innerText')}"
            time.sleep(0.05)

    def picture(self, path: Path) -> None:
        """Save a picture of the whole page as PNG."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._reads], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "Chromium does not answer"
            read = os.read(self._reads, 1 << 20)
            assert read, f"Chromium has ended with {self._process.poll()}"
            self._unread += read
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(event["params"]["exceptionDetails"]))
            case "Log.entryAdded" if event["params"]["entry"]["level"] == "error":
                self.problems.append(event["params"]["entry"]["text"])


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium with a profile of its own; ``ChromiumMissingError`` if there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise ChromiumMissingError
    to_browser, writes = os.pipe()
    reads, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:

        def place() -> None:  # it reads commands from 3 and answers on 4
            high = [os.dup(each) for each in (to_browser, from_browser)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(3, 4),
            preexec_fn=place,  # noqa: PLW1509 - it only copies descriptors
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Browser(process, writes, reads)
        finally:
            process.kill()
            process.wait()
            os.close(writes)
            os.close(reads)
