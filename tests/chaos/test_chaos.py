"""A fixed sample of real faults, on the Spark of all tests; `make chaos` lets many more happen, of more sorts.

`python -m tests.chaos "PART OF A NAME"` lets one sort happen at length.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.chaos.__main__ import FAULTS
from tests.chaos.campaign import Campaign, complaint
from tests.chaos.damage import Kept
from tests.chaos.driver import Here
from tests.chaos.jobs import LEFT
from tests.chaos.load import Load
from tests.chaos.oracle import difference, expected, set_aside
from tests.chaos.rig import Rig
from tests.chaos.table import Outcome, Tally
from watersmeet.errors import ConnectorError, WatersmeetError

SAMPLE = {
    "worker killed, a bucket's state committed": 1,
    "checkpoint damaged: newest commit": 1,
    "checkpoint damaged: plan.json": 1,
    "records with another type": 1,
}


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_real_faults_lose_and_double_nothing(spark: SparkSession, tmp_path: Path) -> None:
    tally = Tally()
    session = watersmeet.connect(spark, workspace=tmp_path / "rig" / "disk" / "workspace")
    with Rig("here", tmp_path / "rig", 1, lambda places: Here(session, places)) as rig:
        campaign = Campaign(rig, tally, 1)
        for fault in FAULTS:
            if fault.name in SAMPLE:
                campaign.once(fault, SAMPLE[fault.name])
        campaign.check()
    assert tally.faults == []
    assert tally.counts.keys() == SAMPLE.keys()
    assert tally.counts["checkpoint damaged: plan.json"] == {Outcome.REFUSED: 1}


def test_what_is_lost_doubled_or_wrong_is_found(tmp_path: Path) -> None:
    load = Load(1, tmp_path, None)
    load.feed(3)
    due = expected(LEFT, load)
    assert due.total() >= 72
    assert not difference(due, due.copy())
    row = next(iter(due))
    lost, doubled, wrong = (Counter(due) for _ in range(3))
    lost[row] -= 1
    doubled[row] += 1
    wrong[row] -= 1
    wrong[(*row[:2], -7)] += 1
    assert str(difference(due, +lost)).startswith("1 lost, such as")
    assert str(difference(due, doubled)).startswith("1 doubled or wrong, such as")
    assert "1 lost" in (said := str(difference(due, +wrong)))
    assert "1 doubled or wrong" in said
    assert set_aside(LEFT, load) == Counter(["no row o 0"])


def test_rows_of_a_seed_are_the_same_and_none_is_late(tmp_path: Path) -> None:
    loads = [Load(seed, tmp_path / str(number), None) for number, seed in enumerate((1, 1, 2))]
    for load in loads:
        load.feed(2)
        load.close_windows()
        load.feed()
    assert loads[0].rows == loads[1].rows != loads[2].rows
    for rows in loads[0].rows.values():
        newest = 0
        for _, _, ts in rows:
            assert ts >= newest - 10
            newest = max(newest, ts)


def test_what_was_damaged_is_put_back_unless_it_was_written_anew(tmp_path: Path) -> None:
    deleted, cut, renewed = (tmp_path / name for name in ("deleted", "cut", "renewed"))
    for path in (deleted, cut, renewed):
        path.write_bytes(b"whole")
    kept = [Kept.of(path) for path in (deleted, cut, renewed)]
    kept[0].delete()
    kept[1].change(lambda content: content[:2])
    kept[2].delete()
    renewed.write_bytes(b"newer")
    for each in kept:
        each.restore()
    assert [path.read_bytes() for path in (deleted, cut, renewed)] == [b"whole", b"whole", b"newer"]


def test_rows_in_another_order_are_the_same_rows(tmp_path: Path) -> None:
    load = Load(1, tmp_path, None)
    load.feed(3)
    paths = [load.path_of(name, number) for number in range(3) for name in ("o", "p")]
    before = [(path.stat().st_mtime, path.read_bytes()) for path in paths]
    load.reorder(2)
    after = [(path.stat().st_mtime, path.read_bytes()) for path in paths]
    assert [was == now for was, now in zip(before, after, strict=True)] == [True, True, False, False, False, False]
    assert [was[0] for was in before] == [now[0] for now in after]
    for path, (_, was) in zip(paths, before, strict=True):
        if path.suffix == ".json":
            assert sorted(path.read_bytes().splitlines()) == sorted(was.splitlines())
        else:
            tables = pq.read_table(path), pq.read_table(pa.BufferReader(was))
            assert tables[0].sort_by("v") == tables[1].sort_by("v")


def _ending(error: Exception) -> str:
    from tests.chaos.driver import ending_of

    return complaint(ending_of(error))


def test_an_end_without_clear_words_is_a_fault() -> None:
    assert _ending(ConnectorError("the disk is full", hint="free some space")) == ""
    assert "does not say what to do" in _ending(ConnectorError("the disk is full"))
    assert "not one of our errors" in _ending(ValueError("An error"))
    assert "not in words" in _ending(WatersmeetError("query q failed: java.lang.NullPointerException", hint="x"))


def test_the_table_adds_up_what_campaigns_kept(tmp_path: Path) -> None:
    for number in range(2):
        tally = Tally()
        tally.add("worker killed", Outcome.WENT_ON, [])
        tally.add("worker killed", Outcome.WRONG if number else Outcome.REFUSED, [])
        (tmp_path / str(number)).mkdir()
        tally.write(tmp_path / str(number))
    whole = Tally()
    for number in range(2):
        whole.take(tmp_path / str(number) / "tally.json")
    assert whole.total == 4
    assert whole.table().splitlines()[2:] == ["| worker killed | 4 | 2 |  | 1 | 1 |"]
