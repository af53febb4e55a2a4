"""Nexmark's queries fed step by step, in the harness or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pyarrow as pa

from benchmarks.nexmark import queries
from benchmarks.nexmark.events import STREAMS, Events
from benchmarks.nexmark.generator import SIDE_INPUT, SIDE_ROWS, in_portions, write_files
from benchmarks.nexmark.references import DELTA, difference, over
from watersmeet.catalog.streams import StreamDef
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.sql.statements import Query
from watersmeet.testing.cells import Row
from watersmeet.testing.rig import Rig, StepInput
from watersmeet.testing.script import load_script


def wrong_rows(
    name: str,
    events: Events,
    folder: Path,
    open_rig: Callable[[Mapping[str, StreamDef], Query], Rig],
    *,
    random: Random,
    steps: int,
    restarts: bool,
) -> str | None:
    """Run a query over the events and say how its results differ from DuckDB's; None if they do not.

    Each stream is cut into as many steps at random places, so in a step one may be ahead of another.
    """
    files = write_files(folder, events, 1)
    rig = open_rig(*load_script(";\n".join([*queries.definitions(), queries.text(name)])))
    if rig.looks_up(SIDE_INPUT):
        rig.fill(SIDE_INPUT, [(number, str(number)) for number in range(SIDE_ROWS)])
    (tables,) = in_portions(events, 1)
    rows = {stream: [tuple(row.values()) for row in tables[stream].to_pylist()] for stream in STREAMS}
    rows[queries.ARRIVAL] = rows["bid"]
    cuts = {
        stream: [0, *sorted(random.randint(0, len(each)) for _ in range(steps - 1)), len(each)]
        for stream, each in rows.items()
        if rig.inputs_of(stream)
    }
    changes: list[tuple[int, Row]] = []
    for step in range(steps):
        inputs = {each: StepInput(rows[each][places[step] : places[step + 1]]) for each, places in cuts.items()}
        outcome = rig.step(inputs)
        assert not outcome.side
        assert outcome.count("late") == 0
        changes += outcome.changes
        if restarts and random.random() < 0.5:
            rig.restart()
    changes += rig.step({}, [Event(EventKind.END)]).changes
    with over(files) as con:
        return difference(con, name, _table(rig, changes), [each for each in rig.column_names if each != DELTA])


def _table(rig: Rig, changes: list[tuple[int, Row]]) -> pa.Table:
    columns = {name: pa.array([row[place] for _, row in changes]) for place, name in enumerate(rig.column_names)}
    return pa.table({**columns, DELTA: pa.array([weight for weight, _ in changes], pa.int64())})
