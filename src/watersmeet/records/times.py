from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_T = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?Z$"


def timestamps(text, kind):
    ok = pc.fill_null(pc.match_substring_regex(text, _T), True)
    if not pc.all(ok).as_py():
        return text, pc.invert(ok)
    return text.cast(kind), pc.invert(ok)


def dates(text):
    return text.cast(pa.date32()), None
