r"""Secrets in JAAS configurations of Kafka clients.

    module flag name=value name="value" ... ; module ...

Values are bare words or quoted with ``"`` or ``'``, with ``\`` as escape; spaces may surround ``=``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:"(?P<double>(?:\\.|[^"\\])*)"|'(?P<single>(?:\\.|[^'\\])*)'|(?P<sign>[=;])|(?P<word>[^\s"'=;]+)"""
    r"""|(?P<rest>\S.*))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MODULE = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*")
_FLAGS = {"required", "requisite", "sufficient", "optional"}
_HARMLESS = {
    "username",
    "servicename",
    "principal",
    "keytab",
    "ticketcache",
    "clientid",
    "oauth.client.id",
    "scope",
    "unsecuredloginstringclaim_sub",
    "awsprofilename",
    "awsrolearn",
    "awsrolesessionname",
    "awsstsregion",
    "extension_logicalcluster",
    "extension_identitypoolid",
}
_BOOLEANS = {"true", "false"}
#: useKeyTab, storeKey, renewTGT, isInitiator, doNotPrompt, refreshKrb5Config, tokenauth, ...
_FLAG_LIKE = re.compile(r"(use|store|renew|is|do|refresh|clear|debug|tokenauth|aws)\w*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    written: str
    is_sign: bool = False
    is_word: bool = False


def jaas_secrets(text: str, reference: str) -> set[str]:
    """Return the secrets in clear text, as they are written and as they are read; ``reference`` stands for a reference.

    A value is a secret unless its option is known to be harmless. Of text that is no JAAS configuration, everything
    that is not known to be harmless is a secret.
    """
    found: set[str] = set()
    for entry in _entries(list(_tokens(text))):
        found |= _entry_secrets(entry, reference)
    return found - {"", reference}


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            yield _Token(_ESCAPE.sub(r"\1", quoted), quoted)
        else:
            written = match["sign"] or match["word"] or match["rest"]
            yield _Token(written, written, is_sign=match["sign"] is not None, is_word=match["word"] is not None)


def _entries(tokens: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    begin = 0
    for place, token in enumerate(tokens):
        if token.is_sign and token.text == ";":
            yield tokens[begin:place]
            begin = place + 1
    yield tokens[begin:]


def _entry_secrets(entry: Sequence[_Token], reference: str) -> set[str]:
    found: set[str] = set()
    place = _options_start(entry, reference)
    while place < len(entry):
        token = entry[place]
        is_option = (
            token.is_word and place + 2 < len(entry) and entry[place + 1].text == "=" and entry[place + 1].is_sign
        )
        if is_option and not entry[place + 2].is_sign:
            value = entry[place + 2]
            if not _is_harmless(token.text, value):
                found |= {value.text, value.written}
            place += 3
            continue
        if not token.is_sign and token.text != reference:
            found |= {token.text, token.written}
        place += 1
    return found


def _options_start(entry: Sequence[_Token], reference: str) -> int:
    """Return how many tokens are the login module and its flag."""
    if not entry or not entry[0].is_word or _is_assigned(entry, 0):
        return 0
    if not _MODULE.fullmatch(entry[0].text) and entry[0].text != reference:
        return 0
    if _is_assigned(entry, 1):
        return 1
    return 2 if len(entry) > 1 and entry[1].text.lower() in _FLAGS else 0


def _is_assigned(entry: Sequence[_Token], place: int) -> bool:
    return place + 1 < len(entry) and entry[place + 1].is_sign


def _is_harmless(name: str, value: _Token) -> bool:
    if value.is_word and ("//" in value.text or "/*" in value.text):  # Kafka reads a comment there
        return False
    if name.lower() in _HARMLESS:
        return True
    return value.text.lower() in _BOOLEANS and _FLAG_LIKE.fullmatch(name) is not None
