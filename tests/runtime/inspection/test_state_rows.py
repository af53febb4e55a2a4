"""Rows of ``state(…)`` in notebooks and as tables: showing them takes none away."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from watersmeet.errors import BindError
from watersmeet.html import MOST_ROWS
from watersmeet.runtime.inspection.selecting import StateRows

SCHEMA = pa.schema([("n", pa.int64())])


def state_rows(*sizes: int) -> StateRows:
    numbers = iter(range(sum(sizes)))
    batches = [pa.record_batch([pa.array([next(numbers) for _ in range(size)], pa.int64())], SCHEMA) for size in sizes]
    return StateRows(SCHEMA, iter(batches))


def test_what_a_notebook_shows_can_still_be_read() -> None:
    found = state_rows(20, 0, 20, 20, 20)
    html = found._repr_html_()
    assert f'<td class="number">{MOST_ROWS - 1}</td>' in html
    assert "there are more" in html
    assert found._repr_html_() == html
    assert list(found.rows()) == [(number,) for number in range(80)]


def test_a_notebook_reads_no_more_than_it_shows() -> None:
    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield pa.record_batch([pa.array([1])], SCHEMA)

    assert "there are more" in StateRows(SCHEMA, endless())._repr_html_()


def test_a_failure_while_rows_are_read_is_text() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        raise BindError("no <b> here")
        yield

    assert "no &lt;b&gt; here" in StateRows(SCHEMA, failing())._repr_html_()


def test_tables_can_be_taken_again_and_keep_types_without_rows() -> None:
    found = state_rows(2, 3)
    assert found.to_arrow() == found.to_arrow() == pa.table({"n": range(5)}, SCHEMA)
    assert found.to_pandas()["n"].tolist() == found.to_polars()["n"].to_list() == [0, 1, 2, 3, 4]
    assert state_rows().to_arrow().schema == SCHEMA
