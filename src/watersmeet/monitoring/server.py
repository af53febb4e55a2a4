"""The server of the live page: the page, its JSON, and metrics for Prometheus.  It only reads."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from watersmeet.errors import ConfigError
from watersmeet.extras import require_extra
from watersmeet.monitoring.access import Address, has_token, is_known_host, same, token_for
from watersmeet.monitoring.status_json import statuses_json
from watersmeet.runtime.status import QueryStatus

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

Statuses = Callable[[], Sequence[QueryStatus]]

_START_SECONDS = 10.0
_STOP_SECONDS = 5.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/charts.js": ("charts.js", "text/javascript"),
    "/dom.js": ("dom.js", "text/javascript"),
    "/tree.js": ("tree.js", "text/javascript"),
}


class LivePage:
    """A server that shows queries until it is stopped; ``statuses`` is called for each request.

    Raises ``ConfigError`` if its packages are missing, or if it cannot listen at the address.
    """

    def __init__(self, statuses: Statuses, address: Address) -> None:
        require_extra("ui", "the live page", ("starlette", "uvicorn", "prometheus_client"))
        import uvicorn

        token = token_for(address)
        listening = _listen(address)
        port: int = listening.getsockname()[1]
        host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(address.host)
        #: Where the page is; with the token, if one is needed.
        self.url = f"http://{host or address.shown_host}:{port}/" + (
            "" if token is None else f"?token={quote(token, safe='')}"
        )
        config = uvicorn.Config(
            application(statuses, address, token, port),
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            loop="asyncio",
            http="h11",
            ws="none",
            limit_concurrency=64,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([listening],), name="watersmeet-live-page", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._listening = listening

    def stop(self) -> None:
        """Stop listening; requests that are being answered have a second."""
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def application(statuses: Statuses, address: Address, token: str | None, port: int) -> Starlette:
    """The ASGI application behind a guard: hosts and tokens are checked before anything else."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.responses import Response
    from starlette.routing import Route

    from watersmeet.monitoring.prometheus import CONTENT_TYPE, exposition

    def page_file(request: Request) -> Response:
        name, kind = _FILES[request.url.path]
        return Response((files("watersmeet.monitoring") / "page" / name).read_bytes(), media_type=kind)

    def status(_: Request) -> Response:
        # in ASCII: the name of a file in an error may hold bytes that are no UTF-8
        text = json.dumps(statuses_json(statuses(), time.time()), allow_nan=False)
        return Response(text, media_type="application/json")

    def metrics(_: Request) -> Response:
        return Response(exposition(statuses()), headers={"Content-Type": CONTENT_TYPE})

    routes = [Route(path, page_file, methods=["GET"]) for path in _FILES]
    routes += [Route("/status.json", status, methods=["GET"]), Route("/metrics", metrics, methods=["GET"])]
    guard = Middleware(_Guard, address=address, token=token, cookie=f"watersmeet_{port}")
    return Starlette(routes=routes, middleware=[guard])


class _Guard:
    """Refuses requests by a foreign name or without the token, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, address: Address, token: str | None, cookie: str) -> None:
        self._app, self._address, self._token, self._cookie = app, address, token, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import MutableHeaders
        from starlette.requests import Request
        from starlette.types import Message

        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """What is answered in place of the page; a token in the URL becomes a cookie, and leaves the address bar."""
        from starlette.responses import PlainTextResponse, RedirectResponse

        if not is_known_host(self._address, request.headers.get("host", "")):
            return PlainTextResponse("this page is only to be had by a name of this machine, such as localhost\n", 421)
        if self._token is None or has_token(self._token, request, self._cookie):
            return None
        if request.url.path == "/" and same(self._token, request.query_params.get("token", "")):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
            return answer
        return PlainTextResponse(
            "open the URL that the run printed, with its ?token=…, or send the header Authorization: Bearer TOKEN\n",
            401,
            {"WWW-Authenticate": "Bearer"},
        )


def _listen(address: Address) -> socket.socket:
    """A socket that listens at the address."""
    ports = [address.port, 0] if address.may_move else [address.port]
    for port in ports:
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(
                address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listening = socket.socket(family, kind, protocol)
        except OSError as error:
            raise _cannot_listen(address, error) from None
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(where)
            listening.listen()
        except OSError as error:
            listening.close()
            if port == ports[-1]:
                raise _cannot_listen(address, error) from None
        else:
            return listening
    raise AssertionError("there is at least one port")


def _cannot_listen(address: Address, error: OSError) -> ConfigError:
    return ConfigError(
        f"the live page cannot listen at {address.shown_host}:{address.port}: {error.strerror or error}",
        hint="name another address, or port 0 for a free port",
    )
