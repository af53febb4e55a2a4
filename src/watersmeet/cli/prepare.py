"""``watersmeet prepare``: records an archive of Spark's classes, with which later runs start sooner."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from watersmeet.cli.interrupt import interruptible

# what most jobs use: embedded streams, JSON files, a join with state, a changelog, an aggregate
_SCRIPT = """
CREATE STREAM l (k INT, v STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS);
CREATE STREAM r (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS)
  WITH (connector = 'files', path = '{files}', format = 'json');
INSERT INTO l VALUES (1, 'a', TIMESTAMP'2026-01-01 10:00:00'), (2, 'b', TIMESTAMP'2026-01-01 10:01:00');
CREATE STREAM results (v STRING, n BIGINT)
  WITH (connector = 'files', path = '{results}', format = 'json', changelog = 'true');
INSERT INTO results
  SELECT l.v, count(*) AS n FROM l LEFT JOIN r ON l.k = r.k WITHIN INTERVAL '10' MINUTES GROUP BY l.v;
"""
_LOOK_SECONDS = 0.2
_ROW = '{"k": 1, "ts": "2026-01-01T10:00:01Z"}'


def prepare() -> None:
    """Make Spark start sooner: run a small job once, and archive the JVM's classes (about 200 MB)."""
    from watersmeet.cli.rows import err
    from watersmeet.cli.spark import SparkStart, stop_session
    from watersmeet.runtime.query_mode import QueryMode
    from watersmeet.session.class_archive import class_archive, new_archive
    from watersmeet.session.jvm import end_jvm
    from watersmeet.session.results import Started

    with new_archive() as path, tempfile.TemporaryDirectory() as name, interruptible() as interrupt:
        folder = Path(name)
        (folder / "files").mkdir()
        (folder / "files" / "1.json").write_text(_ROW)
        session = SparkStart(folder / "workspace", record=path).session()
        script = _SCRIPT.format(files=folder / "files", results=folder / "results")
        for result in session.run(script, mode=QueryMode.BOUNDED):
            if isinstance(result, Started):
                while not interrupt.asked and not result.query.wait(_LOOK_SECONDS):
                    pass
        stop_session(session)
        if interrupt.asked:
            raise typer.Exit(interrupt.exit_code)
        err().print("archiving its classes …")
        end_jvm()
    archive = class_archive()
    assert archive is not None
    err().print(f"{archive} ({archive.stat().st_size >> 20} MB): Spark starts sooner from now on", soft_wrap=True)
