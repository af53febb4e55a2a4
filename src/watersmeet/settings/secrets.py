"""Secrets in options: written as references (``${env:NAME}``, ``${file:/path}``), resolved late and never printed.

A stream or table is refused where an option holds a secret in clear text, because the catalogue keeps definitions and
SHOW CREATE prints them. Text that other programs write (errors, logs) is printed with secrets hidden.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from watersmeet.errors import ConfigError
from watersmeet.settings.secret_detection import REFERENCE, is_jaas, is_secret_name, secrets_in

_MASK = "***"
_SHORTEST_PART = 4
"""Lines and other parts of a secret that are shorter than this are not hidden by themselves."""
_JAAS_FLAG = re.compile(r"\b(required|requisite|sufficient|optional)\b", re.IGNORECASE)

_known: set[str] = set()  # resolved and written secrets of this process, so that they can be hidden


def require_references(options: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` for the first option that holds a secret in clear text.

    Every secret must be a whole reference. The error names the option and never its value.
    """
    for name, value in options.items():
        if secrets_in(name, value):
            raise ConfigError(
                f"option {name} holds a secret written out, which the catalogue would keep",
                hint=_what_to_write(name),
                option=name,
            )


def resolve(text: str) -> str:
    """Replace every ``${env:NAME}`` and ``${file:/path}`` in ``text``. Call it as late as possible.

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
    """Return the options for printing: references stay, every value that holds a secret becomes ``***``."""
    return {name: masked_value(name, value) for name, value in options.items()}


def masked_value(name: str, value: str) -> str:
    """Return the value of option ``name`` for printing."""
    return _MASK if secrets_in(name, value) else value


def masked_definition(text: str, options: Mapping[str, str]) -> str:
    """Return a CREATE statement for printing: ``***`` in place of the values of ``options`` that hold a secret."""
    from sqlglot.dialects.dialect import Dialect

    written = {value for name, value in options.items() if secrets_in(name, value)}
    if not written:
        return text
    kept, place = [], 0
    for token in Dialect.get_or_raise("spark").tokenize(text):
        if token.text in written:
            kept += [text[place : token.start], f"'{_MASK}'"]
            place = token.end + 1
    parts = {part for name, value in options.items() for part in secrets_in(name, value)}
    return _without("".join([*kept, text[place:]]), (part for part in parts if len(part) >= _SHORTEST_PART))


def hide(text: str, options: Mapping[str, str] | None = None) -> str:
    """Replace secrets in ``text`` that another program wrote: all known ones, and those written in ``options``.

    Known are resolved references and what ``remember`` was called with. Percent-encoded, quoted and multi-line forms
    of a secret are replaced too.
    """
    written = {secret for name, value in (options or {}).items() for secret in secrets_in(name, value)}
    return _without(text, _known | written)


def _without(text: str, secrets: Iterable[str]) -> str:
    for form in sorted(_forms(secrets), key=len, reverse=True):
        text = text.replace(form, _MASK)
    return text


def _forms(secrets: Iterable[str]) -> set[str]:
    """Return the ways in which other programs write the secrets."""
    found: set[str] = set()
    for secret in secrets:
        found |= {secret, quote(secret, safe=""), quote(secret), re.sub(r"([\\\"'])", r"\\\1", secret)}
        found.update(line for line in secret.splitlines() if len(line) >= _SHORTEST_PART)
    return found


def _what_to_write(name: str) -> str:
    whole = f"'{name}' = '${{env:NAME}}' or '${{file:/path}}'"
    if is_jaas(name):
        return f'refer to each secret in it, as in password="${{env:NAME}}", or to all of it: {whole}'
    if is_secret_name(name):
        return f"refer to it: {whole}"
    if name == "url":
        return "leave it out of the url, and add password = '${env:NAME}' or '${file:/path}'"
    if name == "path":
        return "leave it out of the path: configure credentials where the file system is configured"
    return "write ${env:NAME} or ${file:/path} in its place, and nothing beside it"


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
    except OSError as error:
        raise ConfigError(f"{name}, which an option refers to, cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{name}, which an option refers to, is not text in UTF-8") from None
    except ValueError:  # a NUL in the path
        raise ConfigError(f"{name!r}, which an option refers to, is not a path") from None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # the bytes of a variable that is not UTF-8 arrive as lone surrogates
        return False
    return True
