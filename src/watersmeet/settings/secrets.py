"""Secrets in options: by reference (``${env:NAME}``, ``${file:/path}``), resolved late, never shown.

An option that holds a secret written out is refused where the stream is defined, since definitions are kept in the
catalogue and shown by SHOW CREATE.  Text that other programs write (errors, logs) is shown with secrets hidden.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from watersmeet.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
_SENSITIVE = re.compile(r"password|secret|token|jaas|credential|\.key$|keystore\.key", re.IGNORECASE)
_PUBLIC = re.compile(r"\.(url|id|ms|class)$", re.IGNORECASE)  # sasl.oauthbearer.token.endpoint.url and the like
_LOGIN = re.compile(r"""(password|secret|token)\w*\s*=\s*["'][^"']""", re.IGNORECASE)  # within a JAAS configuration
_MASK = "***"

_resolved: set[str] = set()  # values that references led to, so that they can be hidden


def require_references(options: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` for an option that holds a secret and no reference to one."""
    for name, value in options.items():
        if _is_written_out(name, value):
            raise ConfigError(
                f"option {name} holds a secret written out, which the catalogue would keep",
                hint=f"refer to it: '{name}' = '${{env:NAME}}' or '${{file:/path}}'",
            )


def resolve(text: str) -> str:
    """``text`` with every ``${env:NAME}`` and ``${file:/path}`` replaced; called as late as can be.

    Raises ``ConfigError``, which names the reference and never a value, where it leads nowhere.
    """

    def found(reference: re.Match[str]) -> str:
        value = _look_up(*reference.groups())
        if value:
            _resolved.add(value)
        return value

    return _REFERENCE.sub(found, text)


def masked(options: Mapping[str, str]) -> dict[str, str]:
    """The options as they may be printed: references stay as written, secrets written out are hidden."""
    return {name: _MASK if _is_written_out(name, value) else value for name, value in options.items()}


def hide(text: str, options: Mapping[str, str] | None = None) -> str:
    """``text``, which another program wrote, without any secret resolved so far or written out in ``options``."""
    written = {value for name, value in (options or {}).items() if _is_written_out(name, value)}
    for secret in sorted(_resolved | written, key=len, reverse=True):
        text = text.replace(secret, _MASK)
    return text


def _is_written_out(name: str, value: str) -> bool:
    if _SENSITIVE.search(name) is None or _PUBLIC.search(name) is not None:
        return False
    rest, references = _REFERENCE.subn("", value)
    return references == 0 or _LOGIN.search(rest) is not None


def _look_up(kind: str, name: str) -> str:
    if kind == "env":
        if name not in os.environ:
            raise ConfigError(f"the environment has no variable {name}, which an option refers to")
        return os.environ[name]
    try:
        return Path(name).read_text().rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{name}, which an option refers to, cannot be read ({error.strerror})") from None
