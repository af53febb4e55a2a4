"""Where a query begins: what SETTINGS seek_to may say, and what a checkpoint keeps of it."""

from __future__ import annotations

import pytest

from watersmeet.errors import ConfigError
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.settings.query_settings import parse_settings
from watersmeet.settings.seek import Seek, Starts


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
        f"SETTINGS: option seek_to = {given!r}: write 'earliest', 'latest' or a time such as "
        "'2026-01-01 00:00:00+00:00'"
    )
    assert raised.value.option == "seek_to"


def test_without_it_nothing_is_said() -> None:
    assert parse_settings({}).seek_to is None


def test_a_plan_file_from_before_it_reads_as_before() -> None:
    assert PlanFile.model_validate_json('{"version": 2, "id": "x", "buckets": [0, 1]}').seek is None


def test_a_new_checkpoint_keeps_where_streams_began() -> None:
    starts = Starts(None)
    assert starts.of("a", lambda: {0: 5}) == {0: 5}
    assert starts.of("a", lambda: {0: 7}) == {0: 5}
    plan = PlanFile(buckets=(0,), starts=starts.found)
    later = Starts(PlanFile.model_validate_json(plan.model_dump_json()).starts)
    assert later.of("a", lambda: {0: 9}) == {0: 5}


def test_only_spark_knows_it_for_an_older_checkpoint() -> None:
    older = PlanFile.model_validate_json('{"version": 2, "id": "x", "buckets": [0, 1]}')
    assert Starts(older.starts).of("a", lambda: {0: 9}) is None


def test_a_plan_file_keeps_it() -> None:
    plan = PlanFile(buckets=(0,), seek=Seek(to="latest", since=1_000))
    assert PlanFile.model_validate_json(plan.model_dump_json()).seek == Seek(to="latest", since=1_000)
