"""The WITH options of a stream that is a Delta table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from watersmeet.errors import ConfigError
from watersmeet.settings.option_parsing import parse_options

NAME = "delta"


def _time(text: str) -> str:
    try:
        datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("write a time such as '2026-01-01 00:00:00+00:00'") from None
    return text.strip()


class DeltaOptions(BaseModel):
    """The WITH options of a Delta table; a sink needs only ``path``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Annotated[str, Field(min_length=1)]
    starting: Literal["earliest", "latest"] | None = None
    starting_version: Annotated[int, Field(ge=0)] | None = None
    starting_timestamp: Annotated[str, AfterValidator(_time)] | None = None
    max_files_per_trigger: Annotated[int, Field(gt=0)] | None = None
    skip_change_commits: bool = False


def options_of(options: Mapping[str, str]) -> DeltaOptions:
    """Return the checked options of a WITH clause; raises ``ConfigError`` for missing, unknown or wrong ones."""
    given = parse_options(DeltaOptions, NAME, options)
    starts = [name for name in ("starting", "starting_version", "starting_timestamp") if name in given.model_fields_set]
    if len(starts) > 1:
        raise ConfigError(
            f"delta: {starts[0]} and {starts[1]} both say where to begin",
            hint="leave one of them out",
            option=starts[1],
        )
    return given
