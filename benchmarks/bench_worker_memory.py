"""Measures whether workers keep to ``worker_memory`` while an operator holds several times as much, and at what rate.

    python -m benchmarks.bench_worker_memory [--query NAME...] [--memory SIZE] [--rows N] [--batches N] [--held N]
        [--bytes N] [--stalled]

A query over streams of N rows a batch, on Spark, two cores.  Each key has a row in every ``held / 2`` batches, so that
a windowed query holds the rows of the last ``--held`` batches of each stream, and one without a window a row, or a
group, of each key.  A row has a text of ``--bytes`` bytes.  ``--memory none`` leaves ``worker_memory`` at its default.
With ``--stalled``, the frontier stays behind all rows until the end, when all that waited is due at once.
Figures are resident sizes: the peak of the largest Python process as the kernel counts it, pages of shared libraries
and of mapped files included.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.arguments import count
from benchmarks.engines import SETTINGS
from benchmarks.memory import Peak

if TYPE_CHECKING:
    from watersmeet import Session

_START = 1_700_000_000_000_000
_GAP = 10  # microseconds between two rows of a side
_SECONDS = 0.5
_WITHIN = "WITHIN INTERVAL '{millis}' MILLISECONDS"
_PAIRS = "SELECT l.k, l.l, r.r, l.note AS said FROM l {kind} JOIN r ON l.k = r.k"


@dataclass(frozen=True, slots=True)
class Query:
    """A query over the streams ``l``, ``r`` and ``m``; ``mutable``: their rows replace each other by key."""

    sql: str
    streams: str = "lr"
    mutable: bool = False
    versioned: str = ""
    settings: str = ""


_NO_LIMIT = "join_max_buffered_bytes = 1000000000000"

QUERIES = {
    **{kind: Query(f"{_PAIRS.format(kind=kind)} {_WITHIN} EMIT FINAL") for kind in ("inner", "left", "full")},
    "semi": Query(f"SELECT l.k, l.note FROM l LEFT SEMI JOIN r ON l.k = r.k {_WITHIN}"),
    "anti": Query(f"SELECT l.k, l.note FROM l LEFT ANTI JOIN r ON l.k = r.k {_WITHIN} EMIT FINAL"),
    "corrected": Query(f"{_PAIRS.format(kind='FULL')} {_WITHIN} EMIT CHANGELOG"),
    "sliding": Query(
        f"{_PAIRS.format(kind='INNER')} {_WITHIN} EMIT FINAL",
        settings="join_algorithm = 'sliding'",
    ),
    "evicting": Query(
        _PAIRS.format(kind="INNER"), settings="join_max_buffered_bytes = 1000000000, eviction = 'oldest'"
    ),
    "multi": Query(
        f"SELECT l.k, l.l, r.r, m.m, l.note AS said FROM l JOIN r ON l.k = r.k {_WITHIN} JOIN m ON l.k = m.k {_WITHIN}",
        streams="lrm",
        settings="multi_join = 'on'",
    ),
    "asof": Query(
        "SELECT l.k, l.l, r.r, r.note FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k EMIT FINAL"
    ),
    "next": Query(
        "SELECT l.k, l.l, r.r, r.note FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.ts <= r.ts) ON l.k = r.k EMIT FINAL"
    ),
    "temporal": Query(
        "SELECT l.k, l.l, r.r, r.note FROM l LEFT JOIN r FOR SYSTEM_TIME AS OF l.ts ON l.k = r.k", versioned="r"
    ),
    "changes": Query(f"{_PAIRS.format(kind='FULL')} EMIT CHANGELOG", mutable=True),
    "newest": Query("SELECT k, l, note FROM l EMIT CHANGELOG", streams="l", mutable=True),
    "groups": Query("SELECT k, count(*) AS n, max(note) AS said FROM l GROUP BY k EMIT CHANGELOG", streams="l"),
    "changing_groups": Query(
        "SELECT l % {keys} AS k, count(*) AS n, max(note) AS said FROM l GROUP BY l % {keys} EMIT CHANGELOG",
        streams="l",
        mutable=True,
    ),
    "windows": Query(
        "SELECT window.start, k, count(*) AS n, max(note) AS said FROM l "
        "GROUP BY window(ts, '{millis} milliseconds'), k EMIT FINAL",
        streams="l",
    ),
    "sessions": Query(
        "SELECT session_window.start, k, count(*) AS n, max(note) AS said FROM l "
        "GROUP BY session_window(ts, '{gap} milliseconds'), k EMIT FINAL",
        streams="l",
    ),
    "top": Query(
        "SELECT k, l, note FROM l QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) <= 2 EMIT CHANGELOG",
        streams="l",
    ),
    "running": Query(
        "SELECT k, l, note, count(*) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '{millis}' MILLISECONDS "
        "PRECEDING AND CURRENT ROW) AS n FROM l EMIT FINAL",
        streams="l",
    ),
    "ordered": Query("SELECT k, l, note, ts FROM l ORDER BY ts", streams="l"),
}


def main() -> None:
    """Run the queries; print a line of figures and a line of JSON for each."""
    from watersmeet.settings.query_settings import parse_settings

    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--query", choices=QUERIES, nargs="+", default=["inner"])
    arguments.add_argument("--memory", default="600MB")
    arguments.add_argument("--rows", type=count, default=400_000)
    arguments.add_argument("--batches", type=count, default=60)
    arguments.add_argument("--held", type=count, default=40)
    arguments.add_argument("--bytes", type=count, default=29)
    arguments.add_argument("--stalled", action="store_true")
    options = arguments.parse_args()
    if options.batches < options.held + 2:
        arguments.error("--batches must be at least two more than --held: the rate is that of the full state")
    setting = None if options.memory == "none" else parse_settings({"worker_memory": options.memory}).worker_memory
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        streams = {stream for query in options.query for stream in QUERIES[query].streams}
        _write(folder, sorted(streams), options)
        for query in options.query:
            _measure(query, folder, setting, options)


def _measure(name: str, folder: Path, setting: int | None, options: argparse.Namespace) -> None:
    import watersmeet
    from watersmeet.runtime.query_mode import QueryMode

    query = QUERIES[name]
    session = watersmeet.connect(workspace=folder / f"workspace-{name}", master="local[2]", config=SETTINGS)
    _create_streams(session, folder, query, delay="1" if options.stalled else "0")
    limit = "" if "join_max_buffered_bytes" in query.settings else _NO_LIMIT
    memory = f"worker_memory = '{options.memory}'" if setting else ""
    settings = [each for each in (query.settings, limit, memory) if each]
    millis = options.held * options.rows * _GAP // 1000
    text = query.sql.format(millis=millis, gap=millis // 4, keys=_keys(options))
    text += f" SETTINGS {', '.join(settings)}" if settings else ""
    began = time.monotonic()
    with Peak() as peak:
        mode = QueryMode.BOUNDED if options.stalled else QueryMode.DRAIN
        (started,) = session.run(f"INSERT INTO nothing {text}", mode)
        running = started.query  # type: ignore[union-attr]
        full = len(query.streams) * options.rows * options.held
        since_full = []  # seconds and rows, from when the state has its size
        while not running.wait(_SECONDS):
            if (rows := sum(running.report().rows_in.values())) >= full:
                since_full.append((time.monotonic(), rows))
    seconds = time.monotonic() - began
    report = running.report()
    rows_in = sum(report.rows_in.values())
    session.spark.stop()
    rate = _rate(since_full)
    share = f", {100 * peak.largest_worker / setting:.0f}% of the setting" if setting else ""
    print(
        f"{name}: {rows_in:,} rows in {seconds:.0f} s, {report.rows_out:,} results; "
        f"state {report.state_bytes / 1e6:,.0f} MB; largest worker {peak.largest_worker / 1e6:,.0f} MB{share}; "
        f"all workers {peak.workers / 1e6:,.0f} MB, JVM {peak.jvm / 1e6:,.0f} MB; "
        f"with the full state {rate:,.0f} rows/s",
        flush=True,
    )
    print(
        json.dumps(
            {
                "query": name,
                "rows_in": rows_in,
                "rows_out": report.rows_out,
                "seconds": seconds,
                "state_bytes": report.state_bytes,
                "largest_worker_bytes": peak.largest_worker,
                "worker_bytes": peak.workers,
                "jvm_bytes": peak.jvm,
                "rows_per_s": rate,
            }
        ),
        flush=True,
    )


def _rate(samples: list[tuple[float, int]]) -> float:
    """Return rows a second between the first of some samples and the last; NaN if they are too few."""
    if len(samples) < 2:
        return float("nan")
    (first, before), (last, after) = samples[0], samples[-1]
    return (after - before) / (last - first)


def _create_streams(session: Session, folder: Path, query: Query, delay: str) -> None:
    """Create the streams; their watermark is behind the newest row by the ``delay``, in days."""
    for stream in query.streams:
        is_mutable = query.mutable or stream in query.versioned
        kind, key = ("MUTABLE STREAM", " PRIMARY KEY (k)") if is_mutable else ("STREAM", "")
        session.sql(
            f"CREATE {kind} {stream} (k BIGINT, {stream} BIGINT, note STRING, ts TIMESTAMP, "
            f"WATERMARK FOR ts AS ts - INTERVAL '{delay}' DAYS){key} WITH (connector = 'files', format = 'parquet', "
            f"path = '{folder / stream}', max_files_per_trigger = '1')"
        )
    session.sql("CREATE STREAM nothing WITH (connector = 'blackhole')")


def _keys(options: argparse.Namespace) -> int:
    return int(options.rows * max(options.held // 2, 1))


def _write(folder: Path, streams: list[str], options: argparse.Namespace) -> None:
    """Write the streams, a file for each batch; keys come in another order in each."""
    rows = options.rows
    notes = pa.array([f"note {place % 1000:>{options.bytes - 5}}" for place in range(rows)])
    steps = {"l": 7_919, "r": 104_729, "m": 15_485_863}
    for stream in streams:
        (folder / stream).mkdir()
        for number in range(options.batches):
            places = np.arange(number * rows, (number + 1) * rows)
            table = pa.table(
                {
                    "k": places * steps[stream] % _keys(options),
                    stream: places,
                    "note": notes,
                    "ts": pa.array(_START + places * _GAP, pa.timestamp("us", tz="UTC")),
                }
            )
            pq.write_table(table, folder / stream / f"{number:05}.parquet")


if __name__ == "__main__":
    main()
