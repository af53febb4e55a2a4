"""A relay between clients and a server on loopback, which can be cut or slow, and can lose the server's answers."""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing.managers import BaseManager
from typing import TYPE_CHECKING, Any

_CHUNK = 65_536


class Relay:
    """Passes bytes on both ways."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._port = 0
        self._loses: bytes | None = None
        self._delay = 0.0
        self._instead: bytes | None = None
        self._most: int | None = None
        self._harmed = 0
        self.open()

    def port(self) -> int:
        """Where clients connect to."""
        return self._port

    def server_port(self) -> int:
        """Where the server itself listens."""
        return self._server

    def harmed(self) -> int:
        """How often a connection was cut, slow or refused an answer."""
        return self._harmed

    def slow(self, seconds: float) -> None:
        """Pass each piece of the server's answers on so much later, from now on."""
        self._delay = seconds

    def answer_instead(self, answer: bytes | None) -> None:
        """Answer each request so, without the server, and cut its connection, from now on; None: ask the server."""
        self._instead = answer

    def break_answers(self, octets: int | None) -> None:
        """Cut each connection after so many bytes of an answer, from now on; None: no more."""
        self._most = octets

    def lose_answer_to(self, request: bytes) -> None:
        """Cut the connection of the next client that sends these bytes, when the server has answered."""
        self._loses = request

    def has_lost(self) -> bool:
        """Whether that has happened."""
        return self._loses is None

    def open(self) -> None:
        """Take connections, on the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Refuse connections, and cut those there are."""
        listener, self._listener = self._listener, None
        self._harmed += len(self._open)
        for line in (*([listener] if listener else []), *self._open):
            _cut(line)
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server), timeout=10)
            except OSError:  # it is away, and may come back
                _cut(client)
                continue
            server.settimeout(None)
            self._open |= {client, server}
            lost = threading.Event()
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(source, target, source is client, lost), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_client: bool, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if is_client and self._instead is not None:
                    self._harmed += 1
                    source.sendall(self._instead)
                    break
                if not is_client and self._delay:
                    self._harmed += 1
                    time.sleep(self._delay)
                if not is_client and self._most is not None:
                    self._harmed += 1
                    target.sendall(data[: self._most])
                    break
                if is_client and self._loses is not None and self._loses in data:
                    self._loses = None
                    lost.set()
                elif not is_client and lost.is_set():
                    break
                target.sendall(data)
        for line in (source, target):
            _cut(line)
        self._open -= {source, target}


def _cut(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()


class _Processes(BaseManager):
    if TYPE_CHECKING:

        def Relay(self, port: int) -> Any: ...  # noqa: N802


_Processes.register("Relay", Relay)


@contextlib.contextmanager
def relay(port: int) -> Iterator[Relay]:
    """A relay to a port, in a process of its own: libraries may block this one while they wait for an answer."""
    with _Processes(ctx=multiprocessing.get_context("spawn")) as processes:
        yield processes.Relay(port)
