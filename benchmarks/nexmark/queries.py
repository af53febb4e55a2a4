"""Nexmark's queries in this project's SQL, and the streams that they read."""

from __future__ import annotations

from pathlib import Path

from benchmarks.nexmark.generator import SIDE_INPUT

_FOLDER = Path(__file__).with_name("queries")
NAMES = tuple(f"q{number}" for number in range(24))
#: The stream of bids whose time is that of arrival, for query 12.
ARRIVAL = "bid_arrival"
_COLUMNS = {
    "person": "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING,"
    " date_time TIMESTAMP, extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT,"
    " date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP, extra STRING",
}
_WATERMARK = "WATERMARK FOR date_time AS date_time - INTERVAL '4' SECONDS"


def text(name: str) -> str:
    """The text of a query, without its comment and the semicolon."""
    lines = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("--")).strip().removesuffix(";")


def comment(name: str) -> str:
    """What a query asks."""
    lines = (_FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("-- ") for line in lines if line.startswith("--"))


def definitions(folder: Path | None = None) -> list[str]:
    """The CREATE statements of the streams and the table, over the generator's files or, without them, embedded."""
    found = []
    for name, columns in _COLUMNS.items():
        found.append(f"CREATE STREAM {name} ({columns}, {_WATERMARK}){_files(folder, name, limited=True)}")
    found.append(f"CREATE STREAM {ARRIVAL} ({_COLUMNS['bid']}){_files(folder, 'bid', limited=True)}")
    side = _files(folder or Path("/nowhere"), SIDE_INPUT)
    found.append(f"CREATE TABLE {SIDE_INPUT} (key BIGINT, value STRING){side}")
    return found


def _files(folder: Path | None, name: str, *, limited: bool = False) -> str:
    if folder is None:
        return ""
    limit = ", max_files_per_trigger = 1" if limited else ""
    return f" WITH (connector = 'files', format = 'parquet', path = '{folder / name}'{limit})"
