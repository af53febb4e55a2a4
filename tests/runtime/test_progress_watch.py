"""What of a run's input was read, as Spark's progress and the logs in its checkpoint say."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from watersmeet.errors import ConnectorError
from watersmeet.runtime.progress_watch import ProgressWatch
from watersmeet.runtime.run_progress import Extent, InputProgress, Logged, Measure, Place, RunInput, Unit
from watersmeet.runtime.source_logs import SourceLog

SECONDS = 20.0


class Counted:
    """A source of so many records, whose places are numbers of them."""

    def __init__(self, total: int) -> None:
        self.total = total

    def ahead(self, place: Place, logged: Logged) -> int:
        return self.total - (0 if place is None else place["read"])


def measure(name: str, take: Callable[[], Extent]) -> Measure:
    return Measure(Unit.RECORDS, lambda source: source["description"] == name, take)


def of(total: int, name: str = "a") -> Measure:
    return measure(name, lambda: Counted(total))


def report(*sources: tuple[str, int | None, int | None]) -> dict[str, Any]:
    """Spark's progress of sources, each with where a batch began and ended."""

    def place(read: int | None) -> object:
        return None if read is None else {"read": read}

    return {
        "sources": [
            {"description": name, "startOffset": place(start), "endOffset": json.dumps(place(end))}
            for name, start, end in sources
        ]
    }


def watched(
    measures: Mapping[str, Sequence[Measure]],
    *reports: tuple[Mapping[str, Any], float],
    is_new: bool = True,
) -> ProgressWatch:
    """A watch, begun at 0, that has seen reports and their times one by one."""
    watch = ProgressWatch(RunInput(measures, lambda _: lambda _: (), is_new), 0.0)
    for each, now in reports:
        watch.take(each, now, SECONDS)
        assert not watch._is_counting
    watch.close(SECONDS)
    assert not watch._thread.is_alive()
    return watch


def records(name: str, ahead: int, done: int) -> InputProgress:
    return InputProgress(name, Unit.RECORDS, ahead, done)


def test_a_new_run_has_all_ahead_before_its_first_batch() -> None:
    watch = watched({"A": [of(10)]})
    assert watch.inputs == (records("A", 10, 0),)
    assert watch.remaining(5.0) is None


def test_a_resumed_run_has_what_is_left() -> None:
    assert watched({"A": [of(10)]}, is_new=False).inputs == (InputProgress("A", Unit.RECORDS),)
    watch = watched({"A": [of(10)]}, (report(("a", 4, 6)), 10.0), (report(("a", 6, 7)), 20.0), is_new=False)
    assert watch.inputs == (records("A", 6, 3),)


def test_of_reports_that_wait_the_first_says_where_the_run_began() -> None:
    goes_on = threading.Event()

    def take() -> Extent:
        assert goes_on.wait(SECONDS)
        return Counted(10)

    watch = ProgressWatch(RunInput({"A": [measure("a", take)]}, lambda _: lambda _: (), is_new=False), 0.0)
    for each in (report(("a", 2, 4)), report(("a", 4, 6)), report(("a", 6, 9))):
        watch.take(each, 1.0, 0)
        assert watch._is_counting
    goes_on.set()
    watch.close(SECONDS)
    assert watch.inputs == (records("A", 8, 7),)


def test_the_parts_of_a_stream_add_up_and_a_stream_that_is_read_twice_is_one() -> None:
    parts = {"A": [of(10, "old"), of(5, "new")], "B": [of(7, "b")]}
    first = report(("old", None, 10), ("new", None, None), ("b", None, 7), ("b", None, 3), ("control", None, None))
    assert watched(parts, (first, 1.0)).inputs == (records("A", 15, 10), records("B", 7, 3))


def test_two_streams_over_one_source_have_a_place_each() -> None:
    watch = watched({"A": [of(10)], "B": [of(10)]}, (report(("a", None, 8), ("a", None, 2)), 1.0))
    assert watch.inputs == (records("A", 10, 8), records("B", 10, 2))


def test_what_a_source_does_not_say_is_not_known() -> None:
    def away() -> Extent:
        raise ConnectorError("no broker answers")

    measures = {"A": [of(10)], "B": [measure("b", away)], "C": []}
    watch = watched(measures, (report(("a", None, 5), ("b", None, 5), ("c", None, 5)), 1.0))
    assert watch.inputs == (records("A", 10, 5), InputProgress("B", Unit.RECORDS), InputProgress("C"))
    assert watch.remaining(2.0) is None


def test_a_failure_leaves_nothing_known_and_ends_no_run() -> None:
    watch = watched({"A": [of(10)]}, ({"sources": [{"description": "a", "endOffset": {"other": 1}}]}, 1.0))
    assert watch.inputs == (InputProgress("A"),)
    watch.take(report(("a", None, 5)), 2.0, float("inf"))  # nobody counts it, and nobody waits
    assert watch.inputs == (InputProgress("A"),)


def test_what_is_left_takes_as_long_as_the_slowest_input_does_of_late() -> None:
    measures = {"A": [of(1000, "a")], "B": [of(100, "b")]}
    slow = [(report(("a", None, 10 * step), ("b", None, step)), 20.0 * step) for step in range(1, 5)]
    watch = watched(measures, *slow)
    # in the last 60 s, 30 of a and 3 of b; 960 and 96 are left
    assert watch.remaining(80.0) == pytest.approx(96 / 3 * 60)
    assert watch.remaining(90.0) == pytest.approx(96 / 3 * 60 - 10)
    assert watch.remaining(1e6) == 0
    stuck = [*slow, (report(("a", 40, 50), ("b", 4, 4)), 150.0)]
    assert watched(measures, *stuck).remaining(150.0) is None


class Files:
    """A folder of Spark's log; ``read`` counts what was read of it."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.read: list[str] = []

    def names(self, folder: str) -> list[str]:
        assert folder == "sources/0"
        return sorted(self.texts)

    def read_text(self, path: str) -> str:
        self.read.append(path.rpartition("/")[2])
        return self.texts[self.read[-1]]

    def log(self, batch: int, *, compacts: bool = False) -> None:
        """Write what Spark does with a batch of one file."""
        entries = [
            json.dumps({"path": f"file:///data/{each}%20a.json", "timestamp": 1, "batchId": each})
            for each in (range(batch + 1) if compacts else [batch])
        ]
        self.texts[f"{batch}.compact" if compacts else str(batch)] = "\n".join(["v1", *entries])


def test_the_log_of_a_source_names_the_files_of_its_batches() -> None:
    files = Files()
    for batch in range(3):
        files.log(batch)
    log = SourceLog(files, "sources/0")  # type: ignore[arg-type]
    assert log.names(1) == {"0 a.json", "1 a.json"}
    assert log.names(2) == {"0 a.json", "1 a.json", "2 a.json"}
    files.log(3, compacts=True)
    for name in ("0", "1", "2"):
        del files.texts[name]
    files.log(4)
    assert log.names(9) == {f"{each} a.json" for each in range(5)}
    assert files.read == ["0", "1", "2", "3.compact", "4"]


def test_a_log_that_was_compacted_before_is_read_from_there() -> None:
    files = Files()
    for batch in range(9):
        files.log(batch)
    files.log(9, compacts=True)
    files.log(10)
    log = SourceLog(files, "sources/0")  # type: ignore[arg-type]
    assert log.names(10) == {f"{each} a.json" for each in range(11)}
    assert log.names(4) == {f"{each} a.json" for each in range(5)}
    assert files.read == ["9.compact", "10"]
