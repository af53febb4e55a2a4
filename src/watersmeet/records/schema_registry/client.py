"""A schema registry with Confluent's HTTP interface: schemas by number, the versions of a subject, new versions.

A schema's number never gets another schema, so a process asks for each only once.  That a number is unknown is not
remembered: the schema may be registered later.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from watersmeet.errors import ConnectorError, OutageError
from watersmeet.settings.secrets import hide, masked_value

_TIMEOUT_SECONDS = 10.0
_MOST_BYTES = 32 << 20
_CONTENT = "application/vnd.schemaregistry.v1+json"
_LATER = (408, 425, 429)
_REFUSED = (401, 403)
#: The registry's own codes: the subject, the version, the schema is not there.
_ABSENT = range(40401, 40500)


class SchemaType(StrEnum):
    """What a schema is written in, as the registry calls it."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema; ``references`` are the texts that it refers to, by name, each after those that it needs itself."""

    type: SchemaType
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema of a subject, as the registry numbers it (``id``)."""

    schema: Schema
    id: int
    version: int


class UnknownSchemaError(Exception):
    """The registry has no such schema, or none that can be used; the text says which."""


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A registry at one of several ``urls``, the first that answers; ``ca`` are certificates of authorities (PEM)."""

    urls: tuple[str, ...]
    authorization: str = field(default="", repr=False)
    ca: str = field(default="", repr=False)

    @property
    def shown(self) -> str:
        """The addresses as messages name them."""
        return ", ".join(masked_value("url", url) for url in self.urls)

    def schema(self, number: int) -> Schema:
        """The schema of that number.

        Raises ``UnknownSchemaError`` if there is none, ``OutageError`` if the registry does not answer, and
        ``ConnectorError`` if it refuses.
        """
        found = _schemas.get((self, number))
        if found is None:
            answer = self._asked(f"/schemas/ids/{number}")
            if answer is None:
                raise UnknownSchemaError(f"the registry has no schema {number}")
            found = _schemas[self, number] = self._schema(answer)
        return found

    def version(self, subject: str, version: str) -> Registered | None:
        """A version of a subject (a number, or ``latest``); None if it is not there.  Raises as ``schema`` does."""
        if (found := _versions.get((self, subject, version))) is not None:
            return found
        answer = self._asked(f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}")
        if answer is None:
            return None
        found = Registered(self._schema(answer), _whole(answer, "id", self), _whole(answer, "version", self))
        _versions[self, subject, str(found.version)] = found
        return found

    def register(self, subject: str, schema: Schema) -> int:
        """Register a schema without references as the newest version, unless it is there; return its number.

        Raises as ``schema`` does; ``ConnectorError`` in the registry's words if the schema is not compatible.
        """
        known = _numbers.get((self, subject, schema))
        if known is None:
            answer = self._asked(f"/subjects/{quote(subject, safe='')}/versions", _body(schema))
            if answer is None:
                raise self._unexpected(f"it does not take schemas for subject {subject}")
            known = _numbers[self, subject, schema] = _whole(answer, "id", self)
        return known

    def _schema(self, answer: Mapping[str, Any]) -> Schema:
        text, kind = answer.get("schema"), answer.get("schemaType", SchemaType.AVRO.value)
        if not isinstance(text, str):
            raise self._unexpected("its answer has no schema")
        if kind not in list(SchemaType):
            raise UnknownSchemaError(f"the schema is of type {kind}")
        texts: dict[str, str] = {}
        self._add_references(answer.get("references") or [], texts, ())
        return Schema(SchemaType(kind), text, tuple(texts.items()))

    def _add_references(
        self, references: Sequence[Mapping[str, Any]], texts: dict[str, str], within: tuple[str, ...]
    ) -> None:
        for reference in references:
            name, subject, version = (str(reference.get(part)) for part in ("name", "subject", "version"))
            if name in texts:
                continue
            if name in within:
                raise UnknownSchemaError(f"the schema {name} refers to itself")
            answer = self._asked(f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}")
            if answer is None or not isinstance(answer.get("schema"), str):
                raise UnknownSchemaError(f"version {version} of {subject}, which the schema refers to, is not there")
            self._add_references(answer.get("references") or [], texts, (*within, name))
            texts[name] = answer["schema"]

    # -- requests ------------------------------------------------------------------------------------------------------

    def _asked(self, path: str, body: bytes | None = None) -> Mapping[str, Any] | None:
        """What the registry answers; None if it says that what is asked for is not there."""
        reasons = []
        for url in self.urls:
            try:
                return self._answer(url, path, body)
            except _UnreachableError as error:
                reasons.append(str(error))
        detail = "; ".join(f"{masked_value('url', url)}: {each}" for url, each in zip(self.urls, reasons, strict=True))
        raise OutageError(
            f"the schema registry at {self.shown} cannot be reached",
            detail=detail,
            hint="is it running, and is registry.url right?",
            waits_for=f"the schema registry at {self.shown}: {reasons[0]}",
        )

    def _answer(self, url: str, path: str, body: bytes | None) -> Mapping[str, Any] | None:
        headers = {"Accept": f"{_CONTENT}, application/json"}
        if body is not None:
            headers["Content-Type"] = _CONTENT
        if self.authorization:
            headers["Authorization"] = self.authorization
        request = Request(url.rstrip("/") + path, body, headers)
        try:
            with _opener(self.ca).open(request, timeout=_TIMEOUT_SECONDS) as answer:
                read = answer.read(_MOST_BYTES + 1)
                if answer.length:  # it has not come, or is too long
                    raise http.client.IncompleteRead(read, answer.length)
        except HTTPError as error:
            with error:
                self._raise_unless_absent(error.code, _said(error))
                return None
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise ConnectorError(
                    f"the certificate of the schema registry at {masked_value('url', url)} is not trusted: "
                    f"{reason.verify_message}",
                    hint="registry.ca names the file with the certificate of its authority",
                ) from None
            raise _UnreachableError(hide(_reason_text(reason))) from None
        found = _parsed(read)
        if found is None:
            raise self._unexpected("its answer is not a JSON object")
        return found

    def _raise_unless_absent(self, code: int, said: Mapping[str, Any]) -> None:
        """Return if the registry says that what is asked for is not there; else raise what its answer means."""
        words = hide(str(said.get("message") or f"HTTP status {code}"))
        if code == 404 and said.get("error_code") in _ABSENT:
            return
        if code >= 500 or code in _LATER:
            raise _UnreachableError(words)
        if code in _REFUSED:
            raise ConnectorError(
                f"the schema registry at {self.shown} refuses access: {words}",
                hint="registry.user and registry.password, or registry.token, say who asks",
            )
        if code in (409, 422):
            raise ConnectorError(f"the schema registry at {self.shown} does not take the schema: {words}")
        raise self._unexpected(words)

    def _unexpected(self, said: str) -> ConnectorError:
        return ConnectorError(
            f"{self.shown} does not answer as a schema registry: {said}",
            hint="does registry.url have the path of Confluent's interface? Apicurio's is /apis/ccompat/v7",
        )


class _UnreachableError(Exception):
    """The registry cannot answer now."""


class _NoRedirects(HTTPRedirectHandler):
    """A redirect is refused: what authorises the request is for one server alone."""

    def redirect_request(self, *_: object) -> None:
        return None


_schemas: dict[tuple[SchemaRegistry, int], Schema] = {}
_versions: dict[tuple[SchemaRegistry, str, str], Registered] = {}
_numbers: dict[tuple[SchemaRegistry, str, Schema], int] = {}


@cache
def _opener(ca: str) -> OpenerDirector:
    try:
        context = ssl.create_default_context(cadata=ca or None)
    except ssl.SSLError as error:
        raise ConnectorError(f"registry.ca has no certificates that can be read: {error.reason}") from None
    return build_opener(_NoRedirects, HTTPSHandler(context=context))


def _body(schema: Schema) -> bytes:
    kind = {} if schema.type is SchemaType.AVRO else {"schemaType": schema.type.value}
    return json.dumps({"schema": schema.text, **kind}).encode()


def _said(error: HTTPError) -> Mapping[str, Any]:
    try:
        return _parsed(error.read(_MOST_BYTES)) or {}
    except (OSError, http.client.HTTPException):
        return {}


def _parsed(text: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _whole(answer: Mapping[str, Any], name: str, registry: SchemaRegistry) -> int:
    found = answer.get(name)
    if not isinstance(found, int):
        raise registry._unexpected(f"its answer has no {name}")
    return found


def _reason_text(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return "no answer in time"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__
