"""Texts as times and dates, where Arrow and Spark read them alike."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_MOMENT = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?"
# Java's offsets end at 18 hours
_WITH_ZONE = _MOMENT + r"(Z|[+-](0\d|1[0-7]):[0-5]\d)$"
_WITHOUT_ZONE = _MOMENT + "$"
_YEAR_10000 = 253_402_300_800_000_000
_DATE = r"^\d{4}-\d{2}-\d{2}$"


def timestamps(texts: pa.ChunkedArray, kind: pa.TimestampType) -> pa.ChunkedArray | None:
    """Texts as ``kind`` (in microseconds); None unless all are plainly such times.

    Texts look like ``2026-01-31T23:59:59.123456``.  Those for a type with a zone end with ``Z`` or ``+01:00``, or none
    does and all are in UTC.  Those for a type without a zone have none.
    """
    if kind.tz is not None and _all_match(texts, _WITH_ZONE):
        found = _cast(texts, kind)
        return found if found is not None and _is_within_years(found) else None
    if not _all_match(texts, _WITHOUT_ZONE):
        return None
    read = _cast(texts, pa.timestamp("us"))
    return None if read is None else read.cast(kind)


def dates(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Texts as ``date32``; None unless all are plainly dates such as ``2026-01-31``."""
    return _cast(texts, pa.date32()) if _all_match(texts, _DATE) else None


def _is_within_years(times: pa.ChunkedArray) -> bool:
    """Whether no time is after the year 9999, which an offset may bring about."""
    latest = pc.max(times).cast(pa.int64())
    return not latest.is_valid or latest.as_py() < _YEAR_10000


def _all_match(texts: pa.ChunkedArray, pattern: str) -> bool:
    matches = pc.fill_null(pc.match_substring_regex(texts, pattern), True)
    return bool(pc.all(matches, min_count=0).as_py())


def _cast(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:  # there is no such day or hour
        return None
