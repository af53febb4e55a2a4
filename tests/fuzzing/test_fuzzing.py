"""A fixed sample of the fuzzing campaigns, which `make fuzz` runs at length.

Each seed gives the same in every run; a fault names its own: `python -m tests.fuzzing sql --first SEED --count 1`.
"""

from __future__ import annotations

import pytest

from tests.conftest import ALL
from tests.fuzzing import checkpoints, records, sql


@pytest.mark.timeout(1_800 if ALL else 60)
@pytest.mark.parametrize("first", range(0, 10_000, 1_000) if ALL else [0])
def test_sql_is_planned_or_refused_in_words(first: int) -> None:
    counts, faults = sql.campaign(first, 1_000 if ALL else 100)
    assert not faults, "\n\n".join(faults[:5])
    assert min(counts[what] for what in ("planned", "refused", "compared")) > 0


@pytest.mark.timeout(1_800 if ALL else 60)
def test_records_are_decoded_as_they_stand_or_left() -> None:
    counts, faults = records.campaign(0, 300 if ALL else 3)
    assert not faults, "\n\n".join(faults[:5])
    assert min(counts["decoded"], counts["left"]) > 0


@pytest.mark.timeout(1_800 if ALL else 60)
def test_damage_to_a_checkpoint_is_told_or_does_no_harm() -> None:
    counts, faults = checkpoints.campaign(0, 500 if ALL else 2)
    assert not faults, "\n\n".join(faults[:5])
    assert counts["refused"] > 0
