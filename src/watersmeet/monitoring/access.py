"""Where the live page listens, and who may read it.

On loopback any program of this machine may, and a browser only by a name of this machine: a site whose name an attacker
lets point to 127.0.0.1 (DNS rebinding) is refused.  Anywhere else, and wherever a token is set, the token is needed.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from watersmeet.errors import ConfigError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

#: Holds the token, if it is not to be a random one.
TOKEN_VARIABLE = "WATERSMEET_UI_TOKEN"
DEFAULT_PORT = 4140
LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\[\]:/\s]+):(?P<port>[0-9]{1,5})")
_LEAST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen.  If the port ``may_move``, another one is taken where it is in use."""

    host: str = LOOPBACK
    port: int = DEFAULT_PORT
    may_move: bool = True

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def shown_host(self) -> str:
        """The host as it stands in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host


def parse_address(text: str | None) -> Address:
    """The address that ``HOST:PORT`` names (None: loopback); ``ConfigError`` if it names none."""
    if text is None:
        return Address()
    found = _ADDRESS.fullmatch(text)
    if found is None or not 0 <= int(found["port"]) <= 65535:
        raise ConfigError(
            f"{text!r} is no address to listen on",
            hint=f"write HOST:PORT, as in {LOOPBACK}:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}; port 0 takes a free one",
        )
    return Address(found["host"].strip("[]"), int(found["port"]), may_move=False)


def token_for(address: Address) -> str | None:
    """The token that readers need: the variable's, else a random one, else none on loopback.

    Raises ``ConfigError`` for a token that can be guessed.
    """
    given = os.environ.get(TOKEN_VARIABLE)
    if given is None:
        return None if address.is_loopback else secrets.token_urlsafe(24)
    if len(given) < _LEAST_TOKEN or not given.isascii() or not given.isprintable() or re.search(r"[\s;,\"\\]", given):
        raise ConfigError(
            f"the token in {TOKEN_VARIABLE} has fewer than {_LEAST_TOKEN} characters, or one that no header can carry",
            hint="make one with: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )
    return given


def is_known_host(address: Address, header: str) -> bool:
    """Whether a request's Host header names this machine, as far as that has to be checked."""
    if not address.is_loopback:
        return True  # the token is what counts: a foreign site does not have its cookie
    name = re.sub(r":[0-9]*$", "", header).strip("[]").lower()
    return name in {"localhost", LOOPBACK, "::1", address.host}


def has_token(token: str | None, request: HTTPConnection, cookie: str) -> bool:
    """Whether a request carries the token, in a cookie or as ``Authorization: Bearer``."""
    if token is None:
        return True
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    given = [request.cookies.get(cookie, ""), bearer.strip() if scheme.lower() == "bearer" else ""]
    return any(same(token, each) for each in given)


def same(token: str, given: str) -> bool:
    """Whether two tokens are equal, in a time that does not tell how much of them is."""
    return hmac.compare_digest(token.encode(), given.encode(errors="surrogatepass"))
