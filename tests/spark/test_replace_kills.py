"""`watersmeet replace` killed at one moment after the other: the old query goes on or the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.test_crash import rows_of
from tests.spark.test_rescale_kills import CHECKPOINT, JOB, NAMES, command, end, kill_once, version
from tests.support.jobs import batch_answer, json_lines, json_rows, write_lines

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(1_800)]

OLD = JOB.replace("FULL JOIN", "JOIN").replace("8", "4")
#: By way: the new job, further arguments, what the command writes in that order, and the distance of its pairs.
WAYS = {
    "state changed": (
        OLD.replace("4", "8"),
        (),
        ("rescaled-1/*/*", "spark-1/metadata", "spark-1/offsets/0", "spark-1/commits/0", "query-1.json"),
        8,
    ),
    "empty": (
        OLD.replace("o.id = p.id", "o.id = p.id AND o.ts <= p.ts"),
        ("--query", "into_sink_from_o_p", "--from", "stored"),
        ("rescaled-1/*/*", "spark-1/offsets/0", "spark-1/commits/0", "query-1.json"),
        4,
    ),
    "from the beginning": (
        OLD.replace("o.id = p.id", "o.id = p.id AND o.ts <= p.ts"),
        ("--query", "into_sink_from_o_p", "--from", "beginning"),
        ("spark-1/metadata", "spark-1/offsets/0", "spark-1/state/*/*", "spark-1/commits/0", "query-1.json"),
        4,
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_replacement_that_is_killed_is_done_or_not(tmp_path: Path, way: str) -> None:
    new, arguments, moments, distance = WAYS[way]
    left, right = rows_of(5), rows_of(6)
    half = len(left) // 2
    (tmp_path / "old.sql").write_text(OLD.format(tmp_path))
    (tmp_path / "new.sql").write_text(new.format(tmp_path))

    def feed(number: int) -> None:
        part = slice(number * half, (number + 1) * half)
        write_lines(tmp_path / "o" / f"{number}.json", json_lines(left[part], NAMES), age=number)
        write_lines(tmp_path / "p" / f"{number}.json", json_lines(right[part], NAMES), age=number)

    feed(0)
    end(command(tmp_path, "run", "old.sql", "--drain"), tmp_path)
    first = json_rows(tmp_path / "out")
    for moment in moments:
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / CHECKPOINT).glob(moment)}

        def has_come(moment: str = moment, before: dict[Path, int] = before) -> bool:
            found = ((path, path.stat().st_mtime_ns) for path in (tmp_path / CHECKPOINT).glob(moment) if path.exists())
            return version(tmp_path) == 3 or any(before.get(path) != time for path, time in found)

        kill_once(command(tmp_path, "replace", "new.sql", *arguments), has_come, tmp_path)
        if version(tmp_path) == 3:
            assert moment == "query-1.json"  # the plan file is written right after it
            break
        assert json_rows(tmp_path / "out") == first, moment
    if version(tmp_path) == 2:
        end(command(tmp_path, "run", "old.sql", "--drain"), tmp_path)  # the old query goes on as if nothing had been
        assert json_rows(tmp_path / "out") == first
        switched: Callable[[], bool] = lambda: version(tmp_path) == 3  # noqa: E731
        kill_once(command(tmp_path, "replace", "new.sql", *arguments), switched, tmp_path)
    end(command(tmp_path, "replace", "new.sql"), tmp_path)  # finds nothing to do
    feed(1)
    end(command(tmp_path, "run", "new.sql", "--bounded"), tmp_path)
    found = json_rows(tmp_path / "out")
    tables = {"o": (NAMES, left), "p": (NAMES, right)}
    within = f"SELECT o.id, o.ts, p.id, p.ts FROM o JOIN p ON o.id = p.id AND abs(o.ts - p.ts) <= {distance}"
    always = batch_answer(f"{within}{'' if way == 'state changed' else ' AND o.ts <= p.ts'}", **tables)
    rest = list(found)
    for row in first:
        rest.remove(row)
    assert first
    assert rest
    if way == "from the beginning":
        # what both versions give of the first half is written once
        both = [row for row in first if row in always]
        assert sorted([*rest, *both], key=repr) == always
    elif way == "empty":
        second = {"o": (NAMES, left[half:]), "p": (NAMES, right[half:])}
        assert rest == batch_answer(f"{within} AND o.ts <= p.ts", **second)
    else:
        newest = max(int(str(row[1])) for row in (*left[:half], *right[:half]))
        later = [[row for row in rows if int(str(row[1])) > newest] for rows in (found, always)]
        assert later[0] == later[1] != []
        assert len(set(found)) == len(set(always) & set(found))
        narrow = batch_answer(within.replace(f"<= {distance}", "<= 4"), **tables)
        assert not [row for row in narrow if found.count(row) < narrow.count(row)]
    assert sorted(path.name for path in (tmp_path / CHECKPOINT).glob("spark*")) == ["spark-1"]
