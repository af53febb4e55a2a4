"""The fork server: a process with the libraries of workers imported, from which Spark's Python processes are forked.

Spark starts a Python process for each kind of worker, and one whenever a query starts.  Each would import the same
libraries for two seconds or more.  The driver starts the fork server beside the JVM; what Spark starts as Python
(worker_python.py) asks it for a fork over a Unix socket and hands over its standard streams, then only waits for the
fork's exit code.  Without a server, or where one does not answer, Python starts as usual.

The server, and with it the socket, lives as long as the process that started it: its standard input is a pipe from
there.  The socket lies in a folder that only its owner can enter.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from watersmeet.runtime.process_folder import LONGEST_SOCKET_PATH, process_folder

#: The environment variable that names the server's socket.
SOCKET_VARIABLE = "WATERSMEET_FORK_SERVER"
#: What Python and its libraries read when they start, with the values that Spark gives its workers: the seed by which a
#: key has one hash in all of them, and the threads of a library.
_READ_AT_START = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
#: Variables of libraries, which they may read when they are imported.
_OF_LIBRARIES = ("OMP_", "OPENBLAS_", "MKL_", "ARROW_", "LD_", "DYLD_", "MALLOC_")
_MAX_REQUEST = 1 << 20
_STREAMS = (0, 1, 2)
_CODE_BYTES = 4
#: Spark waits ten seconds for a worker, also for one that then starts without the server.
_ANSWER_SECONDS = 4.0
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Request:
    """What ``python -m MODULE ARGUMENTS`` would run, and where."""

    module: str
    arguments: Sequence[str]
    folder: str
    path: Sequence[str]
    environment: dict[str, str]


#: Those that this process has started: the last one serves.
_servers: list[subprocess.Popen[bytes]] = []


def fork_server() -> str | None:
    """Start a server that ends with this process, if none runs; return the path of its socket.

    None: the path would be too long.
    """
    path = process_folder().path / "fork.sock"
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        return None
    if not _servers or _servers[-1].poll() is not None:
        path.unlink(missing_ok=True)  # of a server that was killed
        _servers.append(_started(path))
    return str(path)


def _started(path: Path) -> subprocess.Popen[bytes]:
    """A server that is ended with this process."""
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**_READ_AT_START, **os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,  # Ctrl-C is for the driver
    )
    owner = os.getpid()

    def end() -> None:
        if os.getpid() == owner:  # not in a fork of this process
            with server:  # closes its pipe, and waits for its end
                server.kill()

    atexit.register(end)
    return server


def run_in_fork(
    server: str, module: str, arguments: Sequence[str], path: Sequence[str], streams: Sequence[int]
) -> int | None:
    """Run a module in a fork of the server, with these standard streams; return its exit code.

    Returns None if no server answers, or it has started with other settings; nothing has been run then.  After SIGTERM,
    by which Spark ends a process, it ends the fork, waits for its end and returns 0.
    """
    request = Request(module, arguments, str(Path.cwd()), path, dict(os.environ))
    is_told = False
    with socket.socket(socket.AF_UNIX) as connection:

        def end(*_: object) -> None:
            nonlocal is_told
            is_told = True
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

        # Java keeps the exit code of a process, by its id, until the streams of that process are closed, and gives it
        # to a later process that has the same id.  So we end after the fork, which has our streams, and with 0.
        before = signal.signal(signal.SIGTERM, end)
        if not _is_answered(connection, server, request, streams):
            signal.signal(signal.SIGTERM, before)
            return 0 if is_told else None
        _close_streams()
        connection.settimeout(None)
        if is_told:
            end()  # the connection may not have been there yet
        code = connection.recv(_CODE_BYTES, socket.MSG_WAITALL)
    if is_told:
        return 0
    return int.from_bytes(code, signed=True) if len(code) == _CODE_BYTES else 1  # killed


def _is_answered(connection: socket.socket, server: str, request: Request, streams: Sequence[int]) -> bool:
    """Ask a server for a fork; return whether there is one now."""
    connection.settimeout(_ANSWER_SECONDS)
    try:
        connection.connect(server)
        socket.send_fds(connection, [b"?"], streams)
        connection.sendall(json.dumps(asdict(request)).encode() + b"\n")
        return connection.recv(1) == b"!"
    except OSError:
        return False


def _close_streams() -> None:
    """Close standard input and output: the fork has them, and who is at their other end must see them end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in _STREAMS[:2]:
        os.dup2(nothing, stream)
    os.close(nothing)


def _serve(path: str) -> None:
    """Fork for each request, until the standard input ends."""
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as ready:
        listening.bind(path)
        listening.listen()  # who asks from now on waits for the imports
        from watersmeet.runtime import worker_libraries  # noqa: F401

        gc.collect()
        gc.freeze()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
        ready.register(listening, selectors.EVENT_READ)
        ready.register(sys.stdin, selectors.EVENT_READ)
        while True:
            asked = [key.fileobj for key, _ in ready.select()]
            if sys.stdin in asked:
                return
            connection, _ = listening.accept()
            with connection:
                if os.fork() == 0:
                    ready.close()
                    listening.close()
                    _answer(connection)


def _answer(connection: socket.socket) -> NoReturn:
    """Read a request, run it as this process, send its exit code and end."""
    code = 1  # also if the request is refused: who asked expects another answer
    try:
        _, streams, _, _ = socket.recv_fds(connection, 1, len(_STREAMS))
        with connection.makefile("rb") as lines:
            request = Request(**json.loads(lines.readline(_MAX_REQUEST)))
        if _settings(request.environment) == _settings(os.environ):
            for stream, ours in zip(streams, _STREAMS, strict=True):
                os.dup2(stream, ours)
                os.close(stream)
            connection.sendall(b"!")
            os.register_at_fork(after_in_child=connection.close)  # who asked waits for us, not for our children
            threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
            code = _run(request)
    finally:
        with suppress(OSError):
            connection.sendall(code.to_bytes(_CODE_BYTES, signed=True))
        os._exit(code)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What has been read at the start, and cannot be changed by a fork."""
    read = [name for name in environment if name in _READ_AT_START or name.startswith(_OF_LIBRARIES)]
    return {**_READ_AT_START, **{name: environment[name] for name in read}}


def _end_with(connection: socket.socket) -> None:
    """End this process when who asked for it ends: that is whom Spark kills."""
    with suppress(OSError):
        connection.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)  # a daemon ends its workers
    time.sleep(_END_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _run(request: Request) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    sys.path[:] = request.path
    sys.argv = [request.module, *request.arguments]
    try:
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the last place that can report it
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    _serve(sys.argv[1])
