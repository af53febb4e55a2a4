"""The frames of an operator as rows of another one's input, or as frames for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns import ID, PACKED, STORED_FRONTIER, WEIGHT
from watersmeet.engine.frames import Frame, FrameKind, bundled_for, decode_table, passed_on, to_record_batch
from watersmeet.engine.pack import Packer
from watersmeet.engine.projection import Projection, evaluated, project
from watersmeet.engine.unpack import FRONTIER
from watersmeet.kernels.api import NEVER, shift


def rows_with_frontiers(frames: Iterable[Frame], schema: pa.Schema, buckets: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all frames, and rows that hold nothing but a frontier or another frame, for ``buckets``.

    ``schema`` has ``$frontier`` and ``_wm_packed`` at its end.
    """
    for frame in frames:
        if frame.kind is FrameKind.ROWS:
            for rows in decode_table(frame.payload).to_batches():
                nothing = [pa.nulls(rows.num_rows, schema.field(name).type) for name in (FRONTIER, PACKED)]
                yield pa.RecordBatch.from_arrays([*rows.columns, *nothing], schema=schema)
        elif frame.kind is FrameKind.MARK:
            if frame.frontier != NEVER:
                yield pa.RecordBatch.from_pylist([{FRONTIER: frame.frontier}], schema=schema)
        else:
            whole = to_record_batch([passed_on(frame, buckets)]).to_struct_array()
            nothing = [pa.nulls(1, field.type) for field in list(schema)[:-1]]
            yield pa.RecordBatch.from_arrays([*nothing, whole], schema=schema)


@dataclass(frozen=True, slots=True)
class ResultProjection:
    """How the results of a query become rows of an input, computed in the worker (plan/worker_results.py).

    - ``times``: (name, name of the internal event time, type, units of ``$t`` in one of the type) of event times that
      the SELECT list reads.
    - ``taken`` and ``computed``: the SELECT list, (column of the input, column of the results or DuckDB SQL, type).
    - ``nulls``: columns of the SELECT list that are NULL, (name, type).
    - ``where``: what is tested on the results, in DuckDB's SQL.
    - ``part``: the query, as a sender of frontiers; ``lag``: how far event times lie behind them.
    - ``no_time``: the column that stands for the event time of results that have none.
    - ``rows``: from the input's columns to what is packed.

    If the input is ``weighted``, its rows have weights and names, and the latter begin with ``prefix``.
    """

    times: tuple[tuple[str, str, pa.DataType, int], ...]
    taken: tuple[tuple[str, str, pa.DataType], ...]
    computed: tuple[tuple[str, str, pa.DataType], ...]
    nulls: tuple[tuple[str, pa.DataType], ...]
    where: str | None
    part: str
    lag: int
    no_time: str | None
    weighted: bool
    prefix: str
    rows: Projection


@dataclass(frozen=True, slots=True)
class Reader:
    """An input that reads results: how they become its rows, and what packs these.

    Frames for a ``later`` operator, of that name, are bundled (None: they are for the next one).
    """

    projection: ResultProjection
    packer: Packer
    later: str | None = None

    def send(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Yield the frames as they travel."""
        yield from frames if self.later is None else bundled_for(frames, self.later)


def packed_results(frames: Iterable[Frame], readers: Sequence[Reader], buckets: Sequence[int]) -> Iterator[Frame]:
    """Yield the frames of all readers; frames that are no rows are passed on to the next operator, with ``buckets``."""
    for frame in frames:
        if frame.kind is FrameKind.ROWS:
            results = decode_table(frame.payload)
            for reader in readers:
                yield from reader.send(reader.packer.pack(rows_of_input(results, reader.projection)))
        elif frame.kind is FrameKind.MARK:
            for reader in readers if frame.frontier != NEVER else ():
                reader.packer.observe(reader.projection.part, shift(frame.frontier, -reader.projection.lag))
        else:
            yield passed_on(frame, buckets)


def rows_of_input(results: pa.Table, projection: ResultProjection) -> pa.Table:
    """Return results as the rows of an input, with the columns that packing needs."""
    rows = project(_with_input_columns(results, projection), projection.rows)
    assert rows is not None  # results have no bad rows
    return rows


def _with_input_columns(results: pa.Table, projection: ResultProjection) -> pa.Table:
    """Return the rows of an input, with the columns that its projection reads."""
    for name, internal, kind, scale in projection.times:
        times = results[internal]
        results = results.append_column(name, (times if scale == 1 else pc.divide(times, scale)).cast(kind))
    if projection.where is not None:
        kept = evaluated(results, [("kept", projection.where, pa.bool_())])["kept"]
        results = results.filter(pc.fill_null(kept, False))
    made = evaluated(results, projection.computed)
    columns = {name: results[source].cast(kind) for name, source, kind in projection.taken} | made
    count = results.num_rows
    columns |= {name: pa.chunked_array([pa.nulls(count, kind)]) for name, kind in projection.nulls}
    if projection.no_time is not None:
        columns[projection.no_time] = pa.chunked_array([pa.array([0] * count, pa.timestamp("us", tz="UTC"))])
    if projection.weighted:
        names = results.column_names
        columns[WEIGHT] = results[WEIGHT] if WEIGHT in names else pa.chunked_array([pa.array([1] * count, pa.int8())])
        ids = results[ID] if ID in names else pa.chunked_array([pa.nulls(count, pa.string())])
        columns[ID] = pc.binary_join_element_wise(projection.prefix, ids, "") if projection.prefix else ids
    columns[STORED_FRONTIER] = pa.chunked_array([pa.nulls(count, pa.int64())])
    return pa.table(columns)
