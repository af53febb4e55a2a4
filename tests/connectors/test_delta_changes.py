"""Delta tables as streams that append: what each version adds, in any batches, and how it is shared out."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.support.delta_tables import IDS, ROWS, Stream, added, append, commit, found, ids, log_of, rows
from watersmeet.connectors.delta.changes import Begin, Place
from watersmeet.connectors.delta.listing import partitions_of
from watersmeet.connectors.delta.log import DeltaLog
from watersmeet.engine.delta import FileKind, ListedFile, Stored, decoded
from watersmeet.errors import ConnectorError


def test_the_rows_that_there_are_and_then_those_of_each_version(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, ids(1, 2), IDS)
    append(table, ids(3), IDS)
    stream = Stream(table, IDS)
    assert sorted(found(stream.batch())) == [1, 2, 3]
    assert stream.batch() == []
    append(table, ids(4), IDS)
    Table(table).optimize.compact()
    append(table, ids(5, 6), IDS)
    assert found(stream.batch()) == [4, 5, 6], "compaction adds nothing"
    assert stream.batch() == []
    assert stream.place.version == Table(table).version() + 1


def test_a_batch_may_end_within_a_snapshot_and_within_a_version(tmp_path: Path) -> None:
    table, schema = tmp_path / "t", pa.schema([("id", pa.int64()), ("part", pa.int32())])
    several = [{"id": number, "part": number} for number in range(3)]
    write_deltalake(table, pa.Table.from_pylist(several, schema=schema), partition_by=["part"])
    stream = Stream(table, schema)
    append(table, [{"id": 10 + number, "part": number} for number in range(3)], schema)
    batches = [sorted(found(stream.batch(2))) for _ in range(4)]
    assert [len(batch) for batch in batches] == [2, 2, 2, 0]
    assert sorted(id for batch in batches for id in batch) == [0, 1, 2, 10, 11, 12]


def test_a_run_that_ends_reads_no_later_version_than_there_was_when_it_began(tmp_path: Path) -> None:
    for number in range(3):
        append(tmp_path, ids(number), IDS)
    stream = Stream(tmp_path, IDS, begin=Begin(0, snapshot=False))
    end = stream.changes().latest(stream.place, None, last=1)
    assert found(stream.between(stream.place, end)) == [0, 1]
    assert stream.changes().latest(end, None, last=1) == end


def test_the_first_batch_is_read_again_as_it_was(tmp_path: Path) -> None:
    """Spark does not keep where a query began, so a run that begins anew may find a newer table."""
    table = tmp_path / "t"
    append(table, ids(1), IDS)
    stream = Stream(table, IDS)
    end = stream.changes().latest(stream.place, None)
    append(table, ids(2), IDS)
    later = Stream(table, IDS)
    assert later.place != stream.place
    assert found(later.between(later.place, end)) == [1]
    later.place = end
    assert found(later.batch()) == [2]


def test_versions_that_change_rows_stop_a_stream_that_only_appends(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, rows((1, "a"), (2, "b")), ROWS)
    stream, skipping = Stream(table, ROWS), Stream(table, ROWS, skips=True)
    append(table, rows((3, "c")), ROWS)
    Table(table).update(updates={"v": "'z'"}, predicate="id = 1")
    append(table, rows((4, "d")), ROWS)
    assert found(stream.batch()) == [1, 2, 3], "what was there before is read first"
    with pytest.raises(ConnectorError) as raised:
        stream.batch()
    assert raised.value.message == (
        "s only appends, but version 2 removed or changed rows (UPDATE) in the Delta table T"
    )
    assert "skip_change_commits = 'true'" in str(raised.value.hint)
    assert "mode = 'changelog_kv'" in str(raised.value.hint)
    assert found(skipping.batch()) == [1, 2, 3, 4]
    assert skipping.place.skipped == 1
    Table(table).delete("id = 4")
    assert skipping.batch() == []
    assert skipping.place.skipped == 2


@pytest.mark.parametrize("how", ["delete", "overwrite"])
def test_whatever_takes_rows_away_stops_it(tmp_path: Path, how: str) -> None:
    table = tmp_path / "t"
    append(table, ids(1), IDS)
    stream = Stream(table, IDS)
    if how == "delete":
        Table(table).delete()
    else:
        write_deltalake(table, pa.Table.from_pylist(ids(2), schema=IDS), mode="overwrite")
    with pytest.raises(ConnectorError, match=r"version 1 removed or changed rows \((DELETE|WRITE)\)"):
        stream.drain()


def test_where_a_stream_begins(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(4):
        append(table, ids(number), IDS)
    for version, expected in ((0, [0, 1, 2, 3]), (2, [2, 3]), (4, [])):
        assert found(Stream(table, IDS, begin=Begin(version, snapshot=False)).drain()) == expected
    log = DeltaLog(str(table), "T")
    times = [log.commit(version).time for version in range(4)]  # type: ignore[union-attr]
    assert log.since(times[0] - 5, 3) == 0
    assert log.since(times[3] + 1, 3) == 4
    for version in range(4):
        first = next(at for at, time in enumerate(times) if time >= times[version])
        assert log.since(times[version], 3) == first
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(
        ConnectorError, match="no version 0: the log begins with version 1, and what was committed since"
    ):
        log.since(times[0] - 5, 3)


def test_times_never_fall_and_are_those_of_the_versions(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, ids(1), IDS)
    stream = Stream(table, IDS)
    for number, time in ((2, 5_000), (3, 4_000), (4, 4_000), (5, 9_000)):
        append(table, ids(number), IDS)
        of_version = max((table / "_delta_log").glob("*.json"))
        lines = [json.loads(line) for line in of_version.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"] |= {"timestamp": 4_102_444_800_000 + time}  # in the year 2100
        of_version.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, *others = stream.drain(iter([1] * 20))
    epoch = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    assert first["_tp_time"] < epoch
    passed = [(row["_tp_time"] - epoch) // dt.timedelta(milliseconds=1) for row in others]
    assert passed == [5_000, 5_001, 5_002, 9_000]


def test_rows_that_were_there_came_when_their_file_was_written(tmp_path: Path) -> None:
    """But never after the version: what changes them must be newer."""
    append(tmp_path, ids(1), IDS)
    first, last = (DeltaLog(str(tmp_path), "T").commit(version) for version in (0, append_later(tmp_path)))
    assert first is not None
    assert last is not None
    assert first.time < last.time
    read = {row["id"]: round(row["_tp_time"].timestamp() * 1000) for row in Stream(tmp_path, IDS).batch()}
    assert read == {1: first.added[0].modified, 2: last.time}


def append_later(table: Path) -> int:
    """A file that another machine has written, whose clock is ahead, in the version that comes back."""
    pq.write_table(pa.table({"id": [2]}), table / "x.parquet")
    now = log_of(table, 0)[0]["commitInfo"]["timestamp"] + 5
    ahead = {**added(table / "x.parquet"), "modificationTime": now + 60_000}
    return commit(table, {"commitInfo": {"timestamp": now}}, {"add": ahead})


# -- how files are shared out ------------------------------------------------------------------------------------------


def test_small_files_share_a_task_and_large_ones_do_not(tmp_path: Path) -> None:
    def file(number: int) -> ListedFile:
        return ListedFile(Stored(f"{number}", {}), FileKind.ADDED, 0, number, 0)

    small = partitions_of([(file(number), 1000) for number in range(100)], cores=2)
    assert [len(list(decoded(each.value))) for each in small] == [31, 31, 31, 7]
    large = partitions_of([(file(number), 200 << 20) for number in range(3)], cores=2)
    assert [len(list(decoded(each.value))) for each in large] == [1, 1, 1]
    assert partitions_of([], cores=2) == []


def test_a_place_is_kept_whole(tmp_path: Path) -> None:
    place = Place("id", "s", Begin(3, snapshot=True), 5, False, 2, 17, 1)
    assert Place.decoded(json.loads(json.dumps(place.encoded()))) == place
    assert not place.is_begin
    assert Place.first("id", "s", Begin(3, snapshot=True)).is_begin
    assert not replace(Place.first("id", "s", Begin(3, snapshot=True)), file=1).is_begin
