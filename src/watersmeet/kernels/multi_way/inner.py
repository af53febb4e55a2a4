"""The terms of a step where all joins are inner ones, as DuckDB SQL (join.py says what they compute)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from watersmeet.kernels.api import in_one_table, most_kept, quote
from watersmeet.kernels.multi_way.estimates import Estimates
from watersmeet.kernels.multi_way.rows import StepRows
from watersmeet.kernels.multi_way.statistics import Statistics

#: New rows of an input whose partial results are counted, and partial results that are counted at most.
MEASURED_ROWS, MEASURED_PARTIALS = 500, 100_000


def terms(rows: StepRows, statistics: Statistics) -> Iterator[str]:
    """Yield SQL for the results that each input is the first to have a new row for; its new rows probe the others."""
    count = rows.count()
    for first, new in rows.new.items():
        if new.num_rows and (probes := _probes(rows, first, statistics.orders[first])) is not None:
            partial = f"({rows.match.rows_sql(first, rows.fresh[first])})"
            for number, ((found, on), builds) in enumerate(zip(probes, statistics.builds[first], strict=True)):
                # DuckDB builds its hash table over the second relation, which should be the smaller one
                if builds:
                    partial = f"({partial} JOIN ({found}) ON {on})"
                    continue
                if number:  # what is built upon is read from one table, which DuckDB joins as it finds best
                    most = most_kept(rows.state, count)
                    partial = in_one_table(rows.state, f"SELECT * FROM {partial}", count, most)
                partial = f"(({found}) JOIN {partial} ON {on})"
            yield f"SELECT {rows.match.output_sql} FROM {partial}"


def _probes(rows: StepRows, first: int, order: Sequence[int]) -> list[tuple[str, str]] | None:
    """Return, for each input in the order, its rows and what one must meet; None where an input has none."""
    probes, joined = [], [first]
    for input in order:
        found = rows.sql(input, is_old=input < first, is_new=False)
        if found is None:
            return None
        probes.append((found, rows.match.condition_sql(joined, input)))
        joined.append(input)
    return probes


# -- statistics ----------------------------------------------------------------------------------------------------


def update(statistics: Statistics, rows: StepRows) -> None:
    """Update the statistics if they are due, from the rows of this step; steps without rows do not count."""
    new = [rows.new[input].num_rows for input in sorted(rows.new)]
    if not any(new):
        return
    if statistics.are_due:
        statistics.grow_old()
        _add_to_sample(statistics, rows)
        old = [rows.count_stored(input) for input in sorted(rows.new)]
        estimates = Estimates(rows.match, statistics.sample, old, new)
        statistics.choose_orders(estimates)
        for first in rows.new:
            _measure(statistics, rows, first, estimates)
    statistics.steps += 1


def _add_to_sample(statistics: Statistics, rows: StepRows) -> None:
    counted = " UNION ALL ".join(
        f"SELECT {input} AS input, {_hash_sql(rows, input)} AS hash FROM {rows.fresh[input]} "
        f"WHERE {rows.match.has_key_sql(input)}"
        for input in rows.new
    )
    found = rows.state.query(
        f"SELECT input::UBIGINT AS input, hash, count(*)::UBIGINT AS rows FROM ({counted}) "
        f"WHERE hash <= {statistics.sample.last} GROUP BY ALL"
    )
    columns = (found[name].to_numpy() for name in ("input", "hash", "rows"))
    statistics.sample.add({input: new.num_rows for input, new in rows.new.items()}, *columns)


def _hash_sql(rows: StepRows, input: int) -> str:
    return f"hash({', '.join(quote(key) for key in rows.match.inputs[input].keys)})"


def _measure(statistics: Statistics, rows: StepRows, first: int, estimates: Estimates) -> None:
    """Let some new rows of an input probe in the order of now, and count their partial results."""
    new, order = rows.new[first], statistics.orders[first][:-1]  # what the last probe gives is a result
    if not new.num_rows or not order or (probes := _probes(rows, first, order)) is None:
        return
    some = new.take(pa.array(range(0, new.num_rows, -(-new.num_rows // MEASURED_ROWS))))
    partials = [f"p0 AS ({rows.match.rows_sql(first, rows.state.register(some))})"]
    for number, (found, on) in enumerate(probes):
        joined = f"SELECT * FROM ({found}) JOIN p{number} ON {on} LIMIT {MEASURED_PARTIALS}"
        partials.append(f"p{number + 1} AS MATERIALIZED ({joined})")
    counts = ", ".join(f"(SELECT count(*) FROM p{number})" for number in range(1, len(partials)))
    counted = rows.state.query(f"WITH {', '.join(partials)} SELECT [{counts}] AS found", joins_as_written=True)
    statistics.record(estimates, first, some.num_rows, counted["found"][0].as_py())
