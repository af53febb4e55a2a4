"""Header lines of CSV files: which ones match the declared names, and which lines of a task are headers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from watersmeet.connectors.files.csv_headers import FIRST_BLOCK, header_check, without_headers
from watersmeet.errors import ConnectorError

NAMES = ("id", "Note", "a,b")
LATER_BLOCK = "\0" + "80".zfill(16)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ('id,Note,"a,b"', {}),
        ('ID, note , "A,B"', {}),
        ("id;note;a,b", {"sep": ";"}),
        ("id\tnote\ta,b", {"delimiter": r"\t"}),
        ("id||note||'a,b'", {"SEP": "||", "quote": "'"}),
        ("'id','note','a,b'", {"quote": "'"}),
    ],
)
def test_the_declared_names_pass(line: str, options: dict[str, str]) -> None:
    header_check(NAMES, options)(line, "f.csv")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('note,id,"a,b"', "f.csv: its first line names the columns in another order"),
        ("id,note,a,b", "f.csv: its first line does not name the declared columns"),
        ("id,note", "f.csv: its first line does not name the declared columns"),
        ('id;note;"a,b"', "f.csv: its first line does not name the declared columns"),
        ("", "f.csv: its first line does not name the declared columns"),
    ],
)
def test_others_do_not(line: str, message: str) -> None:
    with pytest.raises(ConnectorError) as raised:
        header_check(NAMES, {})(line, "f.csv")
    assert raised.value.message == message
    assert "declared: id, Note, a,b" in str(raised.value)


def test_each_file_loses_its_first_line_and_no_other() -> None:
    # a.csv goes over two batches, c.csv has nothing else, and the middle of d.csv is read before its beginning
    lines = [("a", FIRST_BLOCK, "h"), ("a", FIRST_BLOCK, "1"), ("a", FIRST_BLOCK, "2"), ("b", LATER_BLOCK, "3")]
    lines += [("c", FIRST_BLOCK, "h"), ("d", LATER_BLOCK, "4"), ("d", FIRST_BLOCK, "h"), ("d", FIRST_BLOCK, "5")]
    for size in range(1, len(lines) + 1):
        checked: list[tuple[str, str]] = []
        batches = [_batch(lines[i : i + size]) for i in range(0, len(lines), size)]
        kept = without_headers(batches, lambda line, file, seen=checked: seen.append((line, file)))  # type: ignore[misc]
        assert [value for batch in kept for value in batch.column("value").to_pylist()] == ["1", "2", "3", "4", "5"]
        assert checked == [("h", "a"), ("h", "c"), ("h", "d")]


def _batch(lines: Sequence[tuple[str, str, str]]) -> pa.RecordBatch:
    return pa.record_batch({"value": [line[2] for line in lines], "place": [line[0] + line[1] for line in lines]})


def test_a_first_line_that_is_not_utf_8_is_other_columns() -> None:
    line = pa.array(["größe,ts".encode("latin-1")]).view(pa.string())
    batch = pa.record_batch({"value": line, "place": ["a.csv" + FIRST_BLOCK]})
    with pytest.raises(ConnectorError, match="first line: gr��e, ts"):
        list(without_headers([batch], header_check(("größe", "ts"), {})))
