"""The options of a stream of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from watersmeet.connectors.formats.envelope import value_format
from watersmeet.errors import ConfigError
from watersmeet.settings.option_parsing import parse_options

NAME = "files"
#: The codecs of a sink, by format.
_COMPRESSIONS = {
    "json": ("none", "gzip"),
    "csv": ("none", "gzip"),
    "parquet": ("none", "snappy", "gzip", "zstd"),
}
PREFIXES = {"format_options": ("json.", "csv.", "parquet.")}


class FilesOptions(BaseModel):
    """The WITH options of a stream of files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, Field(min_length=1)]
    format: Literal["json", "csv", "parquet", "debezium-json"] = "json"
    max_files_per_trigger: Annotated[int, Field(gt=0)] | None = None
    header: bool = False
    changelog: bool = False
    compression: str | None = None
    format_options: dict[str, str] = {}


def options_of(options: Mapping[str, str]) -> FilesOptions:
    """Return the checked options of a WITH clause; raises ``ConfigError`` for missing, unknown or wrong ones."""
    given = parse_options(FilesOptions, NAME, options, nested=PREFIXES)
    if given.header and given.format != "csv":
        raise ConfigError(f"files: header goes with format = 'csv', not {given.format!r}", option="header")
    for name in given.format_options:
        if name.lower() == "csv.header":
            raise ConfigError(f"files has no option {name!r}", hint="write header = 'true'", option=name)
        if not name.startswith(f"{value_format(given.format)}."):
            raise ConfigError(f"files: {name} does not go with format = '{given.format}'", option=name)
    if given.compression is not None:
        _check_compression(given, given.compression)
    return given


def _check_compression(given: FilesOptions, compression: str) -> None:
    allowed = _COMPRESSIONS.get(given.format)
    if allowed is None:
        raise ConfigError(
            f"files: compression is for writing, and format = '{given.format}' is only read", option="compression"
        )
    if compression not in allowed:
        raise ConfigError(
            f"files: compression = {compression!r} does not go with format = '{given.format}'",
            hint=f"write {' or '.join(map(repr, allowed))}",
            option="compression",
        )
    for name in given.format_options:
        if name.lower() == f"{given.format}.compression":
            raise ConfigError(f"files: compression and {name} say the same", hint=f"leave out {name}", option=name)


def without_prefix(given: FilesOptions, prefix: str) -> dict[str, str]:
    """Return the options of a format, by their names without the prefix."""
    return {name.removeprefix(prefix): value for name, value in given.format_options.items() if name.startswith(prefix)}
