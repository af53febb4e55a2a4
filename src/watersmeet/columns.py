"""Names of columns that have a meaning of their own.

Those that begin with ``$`` travel between operators and are stored by them; those that begin with ``_`` stand in the
frames of sources and sinks.  Those that begin with ``_tp_`` can be named in SQL.
"""

from __future__ import annotations

from collections.abc import Collection

#: Event time on the operator's axis (microseconds, or plain sequence numbers), NULL only on padded rows.
TIME = "$t"
#: Further terms of the declared order, as bytes in that order, while rows travel from their source.
TIE = "$tie"
#: Number of a row, unique in its operator's bucket; given when the row is first seen, kept with it.
RID = "$rid"
#: Whether a stored row had found a partner in the batch that brought it.
MATCHED = "$m"
#: Weight of a change: +1 or −1.
WEIGHT = "$w"
#: How many rows a gathered one stands for.
ROWS = "$rows"
#: Name of a result row in a changelog, under which it may be retracted.
ID = "$id"

#: When a row arrived: the event time of streams that declare none.
TP_TIME = "_tp_time"
#: Whether a row is added (+1) or retracted (−1).
TP_DELTA = "_tp_delta"
#: Where a Kafka record stood, and its headers (NULL: it has none).
TP_PARTITION, TP_OFFSET, TP_HEADERS = "_tp_partition", "_tp_offset", "_tp_headers"
#: Their types in SQL.
RECORD_COLUMNS = {
    TP_PARTITION: "INT",
    TP_OFFSET: "BIGINT",
    TP_HEADERS: "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
#: A row's place in its source, which a replay repeats.
SEQUENCE = "_seq"
#: How the name of that place ends where rows carry it; its last eight bytes number the rows of a task.
CARRIED_SEQUENCE = ":$seq"
#: What a frontier is kept for: a Kafka partition, or all of the source.
PART = "_part"
#: Why a row cannot be read (NULL: it can).
BAD = "_bad"
#: The text of a row that cannot be read.
RAW = "_raw"
#: The text of every row, where the source has one.
TEXT = "_text"
#: A frame that a worker has packed, among records that Spark is to decode.
PACKED = "_wm_packed"
#: A frontier that the stream's producer stored between its rows.
STORED_FRONTIER = "_frontier"

#: Names that sources use themselves, so that no stream may declare them.
RESERVED = (SEQUENCE, PART, BAD, RAW, TEXT, STORED_FRONTIER, *RECORD_COLUMNS)


def spark_name(name: str) -> str:
    """A column's name as Spark's SQL and functions take it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"


def same_name(name: str, candidates: Collection[str]) -> str | None:
    """Return the candidate of that name, else the only one that differs in case alone, else None."""
    if name in candidates:
        return name
    alike = [each for each in candidates if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
