"""The fork server: what it runs is as if Python had run it, and it ends with the process that started it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.workers import is_alive
from watersmeet.runtime.fork_server import SOCKET_VARIABLE
from watersmeet.runtime.worker_python import worker_python

STARTS_SERVER = "from watersmeet.runtime.fork_server import fork_server\nprint(fork_server(), flush=True)\ninput()\n"
SHOWN = """
import os, sys
print(__name__, sys.argv[1:], os.getcwd(), os.environ["GIVEN"], sys.stdin.readline().strip(), "duckdb" in sys.modules)
print(os.getppid(), file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
DRAWS = """
import os, sys, time
import numpy as np
print(time.tzname[0], flush=True)
for _ in range(2):
    if os.fork() == 0:
        print(np.random.rand(), flush=True)
        os._exit(0)
    os.wait()
"""
STAYS = """
import os, time
child = os.fork()
if child:
    print(os.getpid(), child, flush=True)
time.sleep(120)
"""
LINGERS = """
import pathlib, signal, sys, time

def end(*_):
    time.sleep(1)
    pathlib.Path("ended").touch()
    sys.exit(5)

signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(120)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    started = subprocess.Popen(
        [sys.executable, "-c", STARTS_SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert started.stdout is not None
        yield started.stdout.readline().strip(), started
    finally:
        started.kill()
        started.communicate()


def asked(server: str, folder: Path, module: str, *arguments: str) -> subprocess.Popen[str]:
    (folder / "shown.py").write_text(SHOWN)
    (folder / "stays.py").write_text(STAYS)
    (folder / "draws.py").write_text(DRAWS)
    (folder / "lingers.py").write_text(LINGERS)
    return subprocess.Popen(
        [worker_python(), "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, SOCKET_VARIABLE: server, "GIVEN": "here"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("code", [0, 3])
def test_a_module_runs_as_with_plain_python(
    server: tuple[str, subprocess.Popen[str]], tmp_path: Path, code: int
) -> None:
    path = _path_when_it_answers(server[0])
    process = asked(path, tmp_path, "shown", str(code), "-x")
    out, parent = process.communicate("a line\n", timeout=60)
    assert out == f"__main__ ['{code}', '-x'] {tmp_path} here a line True\n"  # with the libraries of workers
    assert process.returncode == code
    assert int(parent) not in (process.pid, os.getpid())


def test_without_a_server_python_starts_as_usual(tmp_path: Path) -> None:
    process = asked(str(tmp_path / "none.sock"), tmp_path, "shown", "4")
    out, _ = process.communicate("a line\n", timeout=60)
    assert out == f"__main__ ['4'] {tmp_path} here a line False\n"
    assert process.returncode == 4


def test_an_error_is_reported_where_python_would(server: tuple[str, subprocess.Popen[str]], tmp_path: Path) -> None:
    process = asked(_path_when_it_answers(server[0]), tmp_path, "shown", "none")
    _, errors = process.communicate("a line\n", timeout=60)
    assert errors.splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'none'"
    assert process.returncode == 1


def test_who_asked_ends_with_a_fork_that_is_killed(server: tuple[str, subprocess.Popen[str]], tmp_path: Path) -> None:
    process = asked(_path_when_it_answers(server[0]), tmp_path, "stays")
    assert process.stdout is not None
    fork, child = map(int, process.stdout.readline().split())
    assert fork != process.pid
    os.kill(fork, signal.SIGKILL)
    try:
        assert process.wait(30) == 1  # though the fork's child lives
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate(timeout=60)


def test_a_fork_ends_with_who_asked_for_it(server: tuple[str, subprocess.Popen[str]], tmp_path: Path) -> None:
    process = asked(_path_when_it_answers(server[0]), tmp_path, "stays")
    assert process.stdout is not None
    fork, child = map(int, process.stdout.readline().split())
    try:
        process.kill()
        _wait_for_the_end_of(fork)
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate(timeout=60)


def test_who_asked_ends_after_its_fork_when_it_is_told_to_end(
    server: tuple[str, subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = asked(_path_when_it_answers(server[0]), tmp_path, "lingers")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait(30) == 0
    assert (tmp_path / "ended").exists()
    process.communicate(timeout=60)


@pytest.mark.parametrize("answer", [b"!", b""])
def test_who_asked_ends_with_0_when_it_is_told_to_end_before_the_answer(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.settimeout(30)
        listening.bind(str(tmp_path / "slow.sock"))
        listening.listen()
        process = asked(str(tmp_path / "slow.sock"), tmp_path, "shown", "4")
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(30)
            while not connection.recv(65_536).endswith(b"\n"):
                pass
            process.terminate()
            assert connection.recv(1) == b""  # a fork would end by this
            connection.sendall(answer)
        assert process.wait(30) == 0
    process.communicate(timeout=60)


def test_forks_have_their_time_zone_and_draw_numbers_of_their_own(
    server: tuple[str, subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    path = _path_when_it_answers(server[0])
    found = [asked(path, tmp_path, "draws").communicate(timeout=60)[0].split() for _ in range(2)]
    assert [each[0] for each in found] == ["EST", "EST"]
    assert len({number for each in found for number in each[1:]}) == 4


def test_a_server_that_was_killed_is_started_anew() -> None:
    script = textwrap.dedent("""
        import os, signal
        from watersmeet.runtime import fork_server
        path = fork_server.fork_server()
        assert fork_server.fork_server() == path
        (first,) = fork_server._servers
        first.kill()
        first.wait()
        assert fork_server.fork_server() == path
        print(len(fork_server._servers), fork_server._servers[-1].poll())
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "2 None\n", done.stderr


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_other_settings_of_python_s_start_are_not_for_the_server(
    server: tuple[str, subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "77")
    process = asked(_path_when_it_answers(server[0]), tmp_path, "shown", "0")
    assert process.communicate("a line\n", timeout=60)[0].endswith("a line False\n")


def test_the_server_ends_with_the_process_that_started_it() -> None:
    script = textwrap.dedent("""
        import os, subprocess
        from unittest.mock import patch
        started = []
        popen = subprocess.Popen
        def keep(*given, **named):
            started.append(popen(*given, **named))
            return started[-1]
        with patch("subprocess.Popen", keep):
            from watersmeet.runtime.fork_server import fork_server
            fork_server()
        print(started[0].pid, flush=True)
        os.kill(os.getpid(), 9)
    """)
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout
    _wait_for_the_end_of(int(out))


def _wait_for_the_end_of(process: int) -> None:
    deadline = time.monotonic() + 60
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(process)


def _path_when_it_answers(path: str) -> str:
    """The path, once the server has imported all: it answers a request that is none."""
    deadline = time.monotonic() + 60
    while not Path(path).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(path)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(4) == b"\0\0\0\1"
    return path
