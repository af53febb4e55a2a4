"""Secrets in options: written as references (``${env:NAME}``, ``${file:/path}``), resolved late and never printed.

An option that holds a secret in clear text is refused where the stream is defined, since the catalogue keeps
definitions and SHOW CREATE prints them.  A secret is one reference and nothing beside it:

    an option whose name says so    kafka.ssl.truststore.password = '${env:TRUST}'
    a value in a JAAS configuration kafka.sasl.jaas.config = '… required username="app" password="${env:PW}";'
    a part of a URL                 url = 'jdbc:postgresql://app:${env:PW}@db/shop'

Text that other programs write (errors, logs) is shown with secrets hidden.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from watersmeet.errors import ConfigError
from watersmeet.settings.written_secrets import REFERENCE, is_jaas, is_secret_name, secrets_in

_REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
_MASK = "***"
_SHORTEST_PART = 4
"""Lines and other parts of a secret that are shorter than this are not hidden by themselves."""
_JAAS_FLAG = re.compile(r"\b(required|requisite|sufficient|optional)\b", re.IGNORECASE)

_SENSITIVE = re.compile(r"passw(or)?d|pwd|secret|token|jaas|credential|\.key$", re.IGNORECASE)
_PUBLIC = re.compile(r"\.(url|id|ms|class)$", re.IGNORECASE)  # sasl.oauthbearer.token.endpoint.url and the like
_COLUMN = "columns."  # an expression for a made-up column, whatever its name
_BROKERS = ("brokers", "kafka.bootstrap.servers")

#: Options of login modules that hold no secret; every other one does.
_HARMLESS_LOGIN = frozenset(
    ("username", "user", "servicename", "service_name", "principal", "keytab", "usekeytab", "storekey", "clientid")
    + ("useticketcache", "ticketcache", "renewtgt", "donotprompt", "refreshkrb5config", "debug", "isinitiator", "scope")
    + ("usefirstpass", "tryfirstpass", "tokenauth")
)
_LOGIN_OPTION = re.compile(r"""([^\s=;"']+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;]*)""")
_LOGIN_FRAME = re.compile(r"(\s*[\w.$]*(\s+(required|requisite|sufficient|optional))?\s*;?\s*)*", re.IGNORECASE)

#: ``user:password@`` after ``://``; a number and a slash after the colon are a port.
_USER_INFO = re.compile(r"://[^\s/?#:@]*:(?!\d+/)([^@\s]*)@")
_ORACLE_LOGIN = re.compile(r"^jdbc:oracle:\w+:[^/@\s]+/([^@\s]+)@")
_PARAMETER = re.compile(r"[?&;]([\w.-]+)=([^&;#\s]*)")
_SECRET_PARAMETER = re.compile(
    r"passw(or)?d|pwd|secret|token|sig$|signature|credential|api_?key|access_?key", re.IGNORECASE
)

_resolved: set[str] = set()  # values that references led to, so that they can be hidden


def require_references(options: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` for the first option that holds a secret in clear text."""
    for name, value in options.items():
        if any(_clear_text(name, value)):
            raise ConfigError(f"option {name} holds a secret in clear text", hint=_hint(name), option=name)


def resolve(text: str) -> str:
    """``text`` with every ``${env:NAME}`` and ``${file:/path}`` replaced; called as late as possible.

    Raises ``ConfigError`` for a reference that leads nowhere; it names the reference and never a value.
    """

    def found(reference: re.Match[str]) -> str:
        value = _look_up(*reference.groups())
        if value.strip():
            name = "jaas" if _JAAS_FLAG.search(value) else "url"
            _known.update({value, *(part for part in secrets_in(name, value) if len(part) >= _SHORTEST_PART)})
        return value

    return REFERENCE.sub(found, text)


def remember(options: Mapping[str, str]) -> None:
    """Hide from now on the secrets that ``options`` hold in clear text, which a catalogue may have kept earlier."""
    for name, value in options.items():
        _known.update(secrets_in(name, value))


def masked(options: Mapping[str, str]) -> dict[str, str]:
    """The options as they may be printed: references as written, secrets in clear text hidden."""
    return {name: hide(value, {name: value}) for name, value in options.items()}


def hide(text: str, options: Mapping[str, str] | None = None) -> str:
    """``text`` without any secret resolved so far, or in clear text in ``options``."""
    written = {secret for name, value in (options or {}).items() for secret in _clear_text(name, value)}
    for secret in sorted(filter(None, _resolved | written), key=len, reverse=True):
        text = text.replace(secret, _MASK)
    return text


def _hint(name: str) -> str:
    if "jaas" in name.lower():
        return 'write each secret value as one reference: password="${env:NAME}" or "${file:/path}"'
    if _is_sensitive(name):
        return f"refer to it: '{name}' = '${{env:NAME}}' or '${{file:/path}}', with nothing beside it"
    return "leave the credentials out, or write the password as one reference: scheme://user:${env:NAME}@host"


# -- secrets in clear text ---------------------------------------------------------------------------------------------


def _clear_text(name: str, value: str) -> Iterator[str]:
    """The secrets that stand in an option in clear text."""
    if name.startswith(_COLUMN):
        return
    if "jaas" in name.lower():
        yield from _in_login(value)
    elif _is_sensitive(name) and value and not _is_reference(value):
        yield value
    urls = [f"://{each.strip()}" for each in value.split(",")] if name in _BROKERS else [value]
    for url in urls:
        yield from _in_url(url)


def _is_sensitive(name: str) -> bool:
    return _SENSITIVE.search(name) is not None and _PUBLIC.search(name) is None


def _is_reference(value: str) -> bool:
    return _REFERENCE.fullmatch(value.strip()) is not None


def _in_login(configuration: str) -> Iterator[str]:
    """The secrets of a JAAS configuration: ``Module flag name=value name="value" …;``."""
    if not configuration.strip() or _is_reference(configuration):
        return
    text, references = _without_references(configuration)
    for name, given in _LOGIN_OPTION.findall(text):
        value = given[1:-1] if given[:1] in ("'", '"') else given
        is_plain = value.lower() in ("", "true", "false") or name.lower() in _HARMLESS_LOGIN
        if not is_plain and value not in references:
            yield _with_references(value, references)
    if _LOGIN_FRAME.fullmatch(_LOGIN_OPTION.sub(" ", text)) is None:
        yield configuration  # not understood, so nobody knows what it holds


def _in_url(value: str) -> Iterator[str]:
    """The passwords in a URL: before the host, and in parameters."""
    if "://" not in value and not value.startswith("jdbc:"):
        return
    text, references = _without_references(value)
    found = [*_USER_INFO.findall(text), *_ORACLE_LOGIN.findall(text)]
    found += [given for name, given in _PARAMETER.findall(text) if _SECRET_PARAMETER.search(name)]
    for secret in found:
        if secret and secret not in references:
            yield _with_references(secret, references)


def _without_references(text: str) -> tuple[str, dict[str, str]]:
    """The text with a private character in place of each reference, and which reference each stands for."""
    references: dict[str, str] = {}

    def stand_in(reference: re.Match[str]) -> str:
        mark = chr(0xE000 + len(references))
        references[mark] = reference[0]
        return mark

    return _REFERENCE.sub(stand_in, text), references


def _with_references(text: str, references: Mapping[str, str]) -> str:
    return "".join(references.get(char, char) for char in text)


def _look_up(kind: str, name: str) -> str:
    if kind == "env":
        if name not in os.environ:
            raise ConfigError(f"the environment has no variable {name}, which an option refers to")
        value = os.environ[name]
        if not _is_text(value):
            raise ConfigError(f"environment variable {name}, which an option refers to, is not text in UTF-8")
        return value
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{name}, which an option refers to, is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise ConfigError(f"{name}, which an option refers to, cannot be read ({reason})") from None
