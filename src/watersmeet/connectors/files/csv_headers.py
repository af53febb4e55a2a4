"""Header lines of CSV files: check them against the declared columns, then skip them.

Cells are read by position, so a file with another column order must not be read. Only the task that reads a file knows
which line is its first, so each task checks the files it reads, including files that arrive later.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from watersmeet.errors import ConnectorError

VALUE, PLACE = "value", "place"
#: The end of the place of a file's first block (see ``files``): NUL, then the block's start in 16 digits.
FIRST_BLOCK = "\0" + "0" * 16
_SHOWN = 200
_ESCAPED = {r"\t": "\t", r"\0": "\0", r"\\": "\\"}


def skip_headers(lines: DataFrame, names: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Return ``lines`` (``value``, ``place``) without the first line of each file. Remove blank lines before.

    ``options`` are those of format CSV, without their prefix. The query fails with a ``ConnectorError`` at a file
    whose first line does not name the columns ``names`` in this order; case and blanks around a name are ignored.
    """
    check = header_check(names, options)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return without_headers(batches, check)

    return lines.mapInArrow(run, lines.schema)


def header_check(names: Sequence[str], options: Mapping[str, str]) -> Callable[[str, str], None]:
    """Return a function that takes a first line and its file, and raises ``ConnectorError`` for other columns."""
    given = {name.lower(): value for name, value in options.items()}
    separator = given.get("sep", given.get("delimiter", ","))
    separator = _ESCAPED.get(separator, separator)
    quote = given.get("quote", '"')

    def check(line: str, file: str) -> None:
        found = _cells(line, separator, quote)
        if [name.lower() for name in found] == [name.lower() for name in names]:
            return
        same = sorted(name.lower() for name in found) == sorted(name.lower() for name in names)
        raise ConnectorError(
            f"{file}: its first line names the columns in another order"
            if same
            else f"{file}: its first line does not name the declared columns",
            detail=f"first line: {', '.join(found)[:_SHOWN]}\ndeclared: {', '.join(names)}",
            hint="declare the columns in the order of the files"
            if same
            else "declare the columns as the files have them, or leave out header if the files have no such line",
        )

    return check


def without_headers(batches: Iterable[pa.RecordBatch], check: Callable[[str, str], None]) -> Iterator[pa.RecordBatch]:
    """Return the batches of a task without the first lines of files; each of those lines goes to ``check``."""
    last = None
    for batch in batches:
        runs = pc.run_end_encode(batch.column(PLACE))
        begin = 0
        for place, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            if place != last and place.endswith(FIRST_BLOCK):
                line = batch.column(VALUE)[begin].cast(pa.binary()).as_py()
                check(line.decode(errors="replace"), place.removesuffix(FIRST_BLOCK))
                begin += 1
            if begin < end:
                yield batch.slice(begin, end - begin)
            begin, last = end, place


def _cells(line: str, separator: str, quote: str) -> list[str]:
    if len(separator) != 1:
        cells = [cell.strip().strip(quote) for cell in line.split(separator)]
    elif len(quote) != 1:
        cells = line.split(separator)
    else:
        cells = next(csv.reader([line], delimiter=separator, quotechar=quote, skipinitialspace=True), [])
    return [cell.strip() for cell in cells]
