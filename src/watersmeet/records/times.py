from __future__ import annotations
import pyarrow as pa
import pyarrow.compute as pc
_T = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?"
_D = r"^\d{4}-\d{2}-\d{2}$"
_ALL=pa.array([True])
_NONE=pa.array([False])
def timestamps(text, kind):
    z = r"(Z|[+-]\d{2}:\d{2})$" if kind.tz else "$"
    try:
        if kind.tz and pc.all(pc.fill_null(pc.match_substring_regex(text, _T + "$"), True)).as_py():
            return text.cast(pa.timestamp("us")).cast(kind), _NONE
        if pc.all(pc.fill_null(pc.match_substring_regex(text, _T+z), True)).as_py(): return text.cast(kind), _NONE
    except pa.ArrowInvalid: pass
    return text, _ALL
def dates(text):
    try:
        if pc.all(pc.fill_null(pc.match_substring_regex(text, _D), True)).as_py(): return text.cast(pa.date32()), _NONE
    except pa.ArrowInvalid: pass
    return text, _ALL
