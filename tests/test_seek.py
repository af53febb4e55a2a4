"""Where a query begins: what SETTINGS seek_to may say, and what a checkpoint keeps of it."""

from __future__ import annotations

import pytest

from watersmeet.errors import ConfigError
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.settings.query_settings import parse_settings
from watersmeet.settings.seek import Seek


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("earliest", "earliest"),
        (" Latest ", "latest"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01 00:00:00.5+01:00", "2026-01-01 00:00:00.5+01:00"),
        ("2026-01-01", "2026-01-01"),
    ],
)
def test_what_seek_to_may_be(given: str, kept: str) -> None:
    assert parse_settings({"seek_to": given}).seek_to == kept


@pytest.mark.parametrize("given", ["yesterday", "", "2026-13-01", 5, True])
def test_what_it_may_not_be(given: object) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_settings({"seek_to": given})
    assert str(raised.value) == (
        f"SETTINGS: option seek_to = {given!r}: value error, write 'earliest', 'latest' or a time such as "
        "'2026-01-01 00:00:00+00:00'"
    )
    assert raised.value.option == "seek_to"


def test_without_it_nothing_is_said() -> None:
    assert parse_settings({}).seek_to is None


def test_a_plan_file_from_before_it_reads_as_before() -> None:
    assert PlanFile.model_validate_json('{"version": 2, "id": "x", "buckets": [0, 1]}').seek is None


def test_a_plan_file_keeps_it() -> None:
    plan = PlanFile(buckets=(0,), seek=Seek(to="latest", since=1_000))
    assert PlanFile.model_validate_json(plan.model_dump_json()).seek == Seek(to="latest", since=1_000)
