"""Find the secrets that options hold in clear text: by the option's name, in JAAS configurations and in URLs.

A secret is safe only as a whole reference: ``${env:NAME}`` or ``${file:/path}`` with nothing beside it. Ambiguous text
counts as a secret, because the catalogue would keep it.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from watersmeet.settings.jaas import jaas_secrets

REFERENCE = re.compile(r"\$\{(env|file):([^}]+)\}")
#: Replaces references before a value is split, because they contain ``:``, ``/`` and ``@`` themselves.
_MARK = "\0"

_SENSITIVE = re.compile(
    r"pass(word|wd|phrase)|\bpwd\b|secret|token|jaas|credential|signature|user\.info"
    r"|(api|access|account|private)[._-]?key|\.key$|\bkey\.list$|authorization",
    re.IGNORECASE,
)
_PUBLIC = re.compile(r"[._](url|id|ms|seconds|class|file|location|path|source|enabled)$", re.IGNORECASE)
_USER_INFO = re.compile(r"user\.info$", re.IGNORECASE)  # user:password
_SENSITIVE_PARAMETER = re.compile(r"(key|sig|auth|authorization|pass|sas)", re.IGNORECASE)

#: Options whose values are SQL expressions for generated data (connector ``datagen``).
_EXPRESSIONS = "columns."
_BROKERS = re.compile(r"(^|\.)(brokers|bootstrap\.servers)$", re.IGNORECASE)
_ADDRESSES = re.compile(r"(^|[._])(brokers|servers|urls?|path)$", re.IGNORECASE)
_USER_AND_PASSWORD = re.compile(r"(?:jdbc:(?!sqlite:)(?:\w+:)*|(?!jdbc:|file:)[^\s/@,]+?:(?!/))([^@]*)@")
_PARAMETER = re.compile(r"[?&;]\s*([\w.%-]+)\s*=\s*(?=([^&;#]*))")
_DATABASE_PARAMETER = re.compile(r"[?&;(,\s]\s*([\w.%-]+)\s*=\s*(?=([^&;#]*))")
_ADDRESS = re.compile(r"([A-Za-z][\w+.-]*:)?//(?=(.*))", re.DOTALL)
_URL_IN_TEXT = re.compile(r"([A-Za-z][\w+.-]*:)//(?=([^\s\"'<>]*))")
_DELIMITERS = re.compile(r"[\s/?@:#)\"'=\0]+")
_SHORTEST_PIECE = 4


def secrets_in(name: str, value: str) -> tuple[str, ...]:
    """Return the secrets in clear text within the value of option ``name``, in no particular order."""
    if name.startswith(_EXPRESSIONS):
        return ()
    marked = REFERENCE.sub(_MARK, value)
    within = _url_secrets(name, marked)
    if is_jaas(name):
        within |= jaas_secrets(marked, _MARK)
    # a program that splits such text in another way prints pieces of it
    pieces = {piece for secret in within for piece in _DELIMITERS.split(secret) if len(piece) >= _SHORTEST_PIECE}
    found = _named_secret(name, marked) | within | pieces
    # beside a reference, a part of the secret appears alone once the reference is resolved and hidden
    parts = {part for secret in found for part in secret.split(_MARK)}
    return tuple(each for each in {value if _MARK in each else each for each in found} | parts if each.strip())


def is_jaas(name: str) -> bool:
    """Return whether the value of an option is a JAAS configuration."""
    return "jaas" in name.lower()


def is_secret_name(name: str) -> bool:
    """Return whether an option of that name holds a secret and nothing else."""
    return _SENSITIVE.search(name) is not None and _PUBLIC.search(name) is None


def _named_secret(name: str, marked: str) -> set[str]:
    if is_jaas(name) or not is_secret_name(name) or marked == _MARK:
        return set()
    return {marked, marked.partition(":")[2]} if _USER_INFO.search(name) else {marked}


# -- URLs --------------------------------------------------------------------------------------------------------------


def _url_secrets(name: str, marked: str) -> set[str]:
    """Return passwords before an ``@`` and in parameters, as they are written and percent-decoded."""
    found: set[str] = set()
    is_location = _ADDRESSES.search(name) is not None
    is_database = marked.lower().startswith("jdbc:")
    for scheme, rest in (_ADDRESS if is_location else _URL_IN_TEXT).findall(marked):
        found |= _user_secrets(_user_info(rest, is_database=is_database), scheme.lower())
    if is_location or is_database or "://" in marked:
        found |= _parameter_secrets(marked, _DATABASE_PARAMETER if is_database else _PARAMETER)
    if is_location:
        found |= _schemeless_secrets(name, marked)
    return found | {unquote(secret) for secret in found}


def _user_info(rest: str, *, is_database: bool) -> str:
    """Return the user and password before the ``@`` of a URL, given what follows ``//``; empty where there are none.

    A password may contain ``/`` and ``?`` although a URL does not allow it: ``KEY:a/b@bucket``.
    """
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        return authority.rpartition("@")[0]
    host, colon, port = authority.rpartition(":")
    if "@" not in rest or not colon or host.startswith("["):
        return ""
    # the drivers of databases read everything between the first colon and an @ as the password
    return rest.rpartition("@")[0] if is_database or not (port.isdigit() or port in ("", _MARK)) else ""


def _user_secrets(user_info: str, scheme: str) -> set[str]:
    if ":" not in user_info:
        user_info = unquote(user_info)
    user, colon, password = user_info.partition(":")
    if not colon:  # the user name of an HTTP URL is often a token
        password = user if scheme in ("http:", "https:") else ""
    return {password} - {"", _MARK}


def _parameter_secrets(marked: str, parameter: re.Pattern[str]) -> set[str]:
    """Return the values of parameters such as ``?password=`` and ``;secret=``."""
    parameters = ((unquote(name), value.strip()) for name, value in parameter.findall(marked))
    return {
        value
        for name, value in parameters
        if (is_secret_name(name) or _SENSITIVE_PARAMETER.fullmatch(name)) and value not in ("", _MARK)
    }


def _schemeless_secrets(name: str, marked: str) -> set[str]:
    """Return passwords in addresses without ``//``: ``user:password@host``."""
    if _BROKERS.search(name):
        addresses = (each.rpartition("//")[2] for each in marked.split(","))
        return set().union(*(_user_secrets(each.rpartition("@")[0].strip(), "http:") for each in addresses))
    if "//" in marked.partition("@")[0]:
        return set()
    found = _USER_AND_PASSWORD.match(marked)
    return set() if found is None else {found[1]} - {"", _MARK}
