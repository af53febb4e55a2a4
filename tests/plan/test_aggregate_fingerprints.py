"""Checkpoints of aggregates go on: what identifies their state has not changed since groups can end."""

from __future__ import annotations

import pytest

from watersmeet.testing.harness import Harness, load_script

STREAM = "CREATE STREAM a (k STRING, x INT, d DECIMAL(9,2), ts BIGINT, WATERMARK FOR ts AS ts);"


@pytest.mark.parametrize(
    ("query", "known"),
    [
        ("SELECT k, count(*), sum(x), max(d) FROM a GROUP BY k", ["f63ce8c07d361063"]),
        ("SELECT count(*), avg(x) FROM a", ["e7527076d909eb7e", "774e3dfc6f5e7257"]),
    ],
)
def test_a_plain_changelog_is_what_it_was(query: str, known: list[str]) -> None:
    assert _fingerprints(query) == known


def test_what_is_emitted_and_when_is_part_of_it() -> None:
    window = "SELECT window_end, count(*) FROM TUMBLE(a, ts, INTERVAL '1' SECOND) GROUP BY window_end EMIT"
    of_subquery = "SELECT n FROM (SELECT k, count(*) AS n FROM a GROUP BY k) JOIN a b ON n = b.x"
    plain = "SELECT k, count(*) AS n FROM a GROUP BY k"
    assert _fingerprints(f"{window} FINAL") != _fingerprints(f"{window} CHANGELOG")
    assert _fingerprints(of_subquery)[:1] != _fingerprints(plain)


def _fingerprints(query: str) -> list[str]:
    return [spec.fingerprint for spec in Harness(*load_script(f"{STREAM}{query};"))._operators]
