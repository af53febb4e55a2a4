"""The options ``registry.…``: where a stream's schema registry is, and which schema counts."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from watersmeet.errors import ConfigError, ConnectorError
from watersmeet.extras import require_extra
from watersmeet.records.schema_registry.client import Registered, SchemaRegistry, SchemaType
from watersmeet.settings.option_parsing import parse_options
from watersmeet.settings.secrets import resolve

PREFIX = "registry."
URL, SUBJECT, VERSION = f"{PREFIX}url", f"{PREFIX}subject", f"{PREFIX}version"
#: The formats that a registry keeps schemas of, and the modules that each needs.
_FORMATS = {"avro": SchemaType.AVRO, "protobuf": SchemaType.PROTOBUF, "json": SchemaType.JSON}
_MODULES = {SchemaType.PROTOBUF: ("grpc_tools",), SchemaType.JSON: ("jsonschema",)}


def _urls(text: object) -> object:
    if not isinstance(text, str):
        return text
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found or any(urlsplit(each).scheme not in ("http", "https") or not urlsplit(each).netloc for each in found):
        raise ValueError("write http://host:port or https://host:port, several separated by commas")
    return found


class RegistryOptions(BaseModel):
    """The options ``registry.…`` of a stream, without their prefix and with unresolved references."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Annotated[tuple[str, ...], BeforeValidator(_urls)]
    subject: Annotated[str, Field(min_length=1)]
    version: Annotated[str, Field(pattern=r"^(latest|[1-9][0-9]*)$")] = "latest"
    auto_register: bool = True
    user: str | None = None
    password: str | None = Field(default=None, repr=False)
    token: str | None = Field(default=None, repr=False)
    ca: str | None = None


def has_registry(options: Mapping[str, str]) -> bool:
    """Return whether any of the options is one of a schema registry."""
    return any(name.startswith(PREFIX) for name in options)


def registry_options(options: Mapping[str, str]) -> RegistryOptions:
    """Return the options of the registry; raises ``ConfigError`` for missing, unknown or wrong ones."""
    given = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    try:
        found = parse_options(RegistryOptions, "a schema registry", given)
    except ConfigError as error:
        error.option = f"{PREFIX}{error.option}"
        raise
    if (found.user is None) != (found.password is None):
        raise ConfigError("registry.user and registry.password go together", option=f"{PREFIX}user")
    if found.token is not None and found.user is not None:
        raise ConfigError("registry.token and registry.user both say who asks: give one", option=f"{PREFIX}token")
    return found


def check_registry(options: Mapping[str, str], format: str) -> None:
    """Raise ``ConfigError`` for wrong options, for a format that no registry keeps, and for a missing package."""
    registry_options(options)
    if format not in _FORMATS:
        raise ConfigError(
            f"format {format} takes no schema registry",
            hint=f"with registry.url the format is one of {', '.join(_FORMATS)}",
            option=URL,
        )
    modules = _MODULES.get(schema_type(format), ())
    if modules:
        require_extra("registry", f"format {format} with a schema registry", modules)


def schema_type(format: str) -> SchemaType:
    """Return what the registry calls a format that ``check_registry`` accepts."""
    return _FORMATS[format]


def registry_of(options: RegistryOptions) -> SchemaRegistry:
    """Return the registry, with resolved references.

    Raises ``ConfigError`` and ``ConnectorError`` where one leads nowhere.
    """
    authorization = ""
    if options.token is not None:
        authorization = f"Bearer {resolve(options.token)}"
    elif options.user is not None and options.password is not None:
        pair = f"{resolve(options.user)}:{resolve(options.password)}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return SchemaRegistry(tuple(map(resolve, options.url)), authorization, _certificates(options.ca))


def _certificates(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise ConnectorError(f"registry.ca: {path} cannot be read ({reason})") from None


def required_version(options: RegistryOptions) -> Registered:
    """Return the version of the subject that the options name.

    Raises ``ConnectorError`` if it is not there, and as ``SchemaRegistry.version``.
    """
    registry = registry_of(options)
    found = registry.version(options.subject, options.version)
    if found is not None:
        return found
    what = (
        f"subject {options.subject}"
        if options.version == "latest"
        else f"version {options.version} of {options.subject}"
    )
    raise ConnectorError(
        f"the schema registry at {registry.shown} has no {what}",
        hint="registry.subject names another subject than <topic>-value; a producer registers its schema before it "
        "writes",
    )


def pinned(options: Mapping[str, str], format: str) -> dict[str, str]:
    """Return a stream's options with the number of the version that ``latest`` is now.

    JSON needs none as a source: documents are checked by their own schemas.
    """
    found = dict(options)
    if has_registry(options) and _FORMATS[format] is not SchemaType.JSON:
        found[VERSION] = str(required_version(registry_options(options)).version)
    return found
