"""Rows that close their own windows, beside the properties of the windowed join (test_interval_properties.py)."""

from __future__ import annotations

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.testing.harness import Harness, StepInput, load_script

STREAMS = """
CREATE STREAM a (id INT, ts BIGINT, ttl BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM b (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
"""


def test_a_condition_that_overflows_is_one_sentence() -> None:
    """The expiry is computed with 128 bits; the condition, as in Spark, with 64."""
    sql = "SELECT a.id FROM a LEFT JOIN b ON a.id = b.id AND b.ts >= a.ts AND b.ts - a.ttl <= a.ts;"
    harness = Harness(*load_script(STREAMS + sql))
    with pytest.raises(WatersmeetError, match=r"an expression of join_1 cannot be evaluated: .*Overflow") as raised:
        harness.step({"a": StepInput([(2, 10, -(2**63))]), "b": StepInput([(2, 15)])})
    assert "CAST to a wider type" in str(raised.value.hint)


@pytest.mark.slow
def test_state_follows_the_windows_and_not_the_time_that_has_passed() -> None:
    """Each step brings a row for five seconds, every fourth one for forty."""
    sql = "SELECT a.id FROM a LEFT JOIN b ON a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + a.ttl;"
    harness = Harness(*load_script(STREAMS + sql))
    for now in range(70):
        ttl = 40 if now % 4 == 0 else 5
        outcome = harness.step({"a": StepInput([(now, now, ttl)]), "b": StepInput([(-1, now)])})
        # of a: those of the last five seconds, and a quarter of the last forty; of b: the newest
        assert outcome.count("state_rows") <= 6 + 10 + 1
        assert outcome.count("segments") <= 120
