"""What stands in a checkpoint's folder besides what was written there whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet
from tests.support.jobs import PATIENCE_SECONDS, json_lines, json_rows, run_job, write_lines
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError
from watersmeet.runtime.checkpoint import Checkpoint
from watersmeet.runtime.plan_file import PlanFile
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.runtime.storage import Storage
from watersmeet.session.results import Started
from watersmeet.testing.harness import Harness, load_script

pytestmark = pytest.mark.spark

NAMES = ("id", "ts")
JOB = """
CREATE STREAM IF NOT EXISTS o (id INT, ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (connector = 'files', path = '{0}/o', event_time_unit = 's');
CREATE STREAM IF NOT EXISTS p (id INT, ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (connector = 'files', path = '{0}/p', event_time_unit = 's');
CREATE STREAM IF NOT EXISTS sink WITH (connector = 'files', path = '{0}/out');
INSERT INTO sink SELECT o.id, p.id AS pid FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '5' SECONDS EMIT FINAL;
"""
END = Event(EventKind.END).to_json()


@pytest.fixture
def checkpoint(spark: SparkSession, tmp_path: Path) -> Checkpoint:
    found = Checkpoint(Storage(spark), str(tmp_path / "checkpoint"))
    found.prepare(None)
    return found


def left_behind(folder: Path) -> Iterator[Path]:
    """What a write that was broken off leaves, in each place where Watersmeet or Spark writes."""
    yield folder / "control" / ".000000000000.json.tmp"
    yield folder / ".plan.json.tmp"
    yield folder / ".counters.json.tmp"
    yield folder / "hot_keys" / "query" / "join_1-abc" / f"{'0f' * 16}.part"
    yield folder / "spark" / "offsets" / ".0.916a4389-ca90-43b4-8fb3-9515b6811b38.tmp"
    yield folder / "spark" / "commits" / ".0.dab98f6f-ec4a-460b-9178-c2f654aee309.tmp"


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", [END, END[:9], b""], ids=["whole", "half", "empty"])
def test_a_bounded_run_keeps_its_rows_beside_an_event_that_was_not_written_whole(
    spark: SparkSession, tmp_path: Path, text: bytes
) -> None:
    write_lines(tmp_path / "o" / "0.json", json_lines([(1, 1), (2, 2)], NAMES), age=0)
    write_lines(tmp_path / "p" / "0.json", json_lines([(1, 1)], NAMES), age=0)
    folder = tmp_path / "workspace" / "queries" / "into_sink_from_o_p"
    for path in left_behind(folder):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    run_job(watersmeet.connect(spark, workspace=tmp_path / "workspace"), JOB.format(tmp_path))
    assert json_rows(tmp_path / "out") == [(1, 1), (2, None)]
    assert [path for path in left_behind(folder) if path.exists()] == []


def test_a_text_that_is_refused_leaves_the_name_to_the_one_that_resumes(spark: SparkSession, tmp_path: Path) -> None:
    script = JOB.format(tmp_path)
    write_lines(tmp_path / "o" / "0.json", json_lines([(1, 1)], NAMES), age=0)
    write_lines(tmp_path / "p" / "0.json", json_lines([(1, 1)], NAMES), age=0)
    run_job(watersmeet.connect(spark, workspace=tmp_path / "workspace"), script, QueryMode.DRAIN)
    later = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    with pytest.raises(CheckpointError, match="buckets"):
        run_job(later, script.replace("EMIT FINAL", "EMIT FINAL SETTINGS buckets = 7"), QueryMode.DRAIN)
    with pytest.raises(CheckpointError, match="the query has changed"):
        run_job(later, script.replace("'5' SECONDS", "'6' SECONDS"), QueryMode.DRAIN)
    (query,) = run_job(later, script, QueryMode.DRAIN)
    assert (query.name, json_rows(tmp_path / "out")) == ("into_sink_from_o_p", [(1, 1)])


def test_events_are_numbered_by_the_highest(checkpoint: Checkpoint) -> None:
    for _ in range(3):
        checkpoint.write_event(Event(EventKind.IDLE))
    control = Path(checkpoint.control)
    (control / "000000000000.json").unlink()
    (control / ".000000000000.json.crc").unlink()
    (control / "notes.txt").write_text("no event")
    checkpoint.write_event(Event(EventKind.END))
    assert sorted(path.name for path in control.glob("*.json")) == [f"{number:012d}.json" for number in (1, 2, 3)]
    assert checkpoint.has_ended()


@pytest.mark.parametrize("broken", range(4))
def test_a_plan_is_the_old_one_or_the_new_one(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    """Whoever is killed while it is written: each step of replacing it leaves a file that can be read."""
    plans = [PlanFile(buckets=(0,)), PlanFile(buckets=(0, 1))]
    checkpoint.write_plan(plans[0])
    left = iter(range(broken))

    def stopped(step: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **options: object) -> object:
            if next(left, None) is None:
                raise KeyboardInterrupt
            return step(*arguments, **options)

        return wrapped

    with monkeypatch.context() as patched:
        for name in ("unlink", "replace"):
            patched.setattr(Path, name, stopped(getattr(Path, name)))
        if broken < 3:
            with pytest.raises(KeyboardInterrupt):
                checkpoint.write_plan(plans[1])
        else:
            checkpoint.write_plan(plans[1])
    assert checkpoint.read_plan() == plans[broken > 1]
    assert (Path(checkpoint.folder) / ".plan.json.crc").exists() == (broken in (0, 3))


def without_checksums(folder: Path) -> None:
    for path in folder.rglob(".*.crc"):
        path.unlink()


@pytest.mark.parametrize("with_checksum", [True, False])
@pytest.mark.parametrize("content", [b"", b"[1]", b"nothing of ours", b'{"join_1": 1}', b'{"a.b": "x"}', b"\xff\xfe"])
def test_counters_that_are_damaged_are_forgotten(
    checkpoint: Checkpoint, content: bytes, with_checksum: bool, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint.write_counters({"join_1.in.o": 3})
    assert checkpoint.read_counters() == {"join_1.in.o": 3}
    path = Path(checkpoint.folder, "counters.json")
    path.write_bytes(content)
    if not with_checksum:
        without_checksums(path.parent)
    with caplog.at_level(logging.WARNING):
        assert checkpoint.read_counters() == {}
    assert str(path) in caplog.text
    checkpoint.write_counters({"join_1.in.o": 4})
    assert checkpoint.read_counters() == {"join_1.in.o": 4}


@pytest.mark.parametrize("with_checksum", [True, False])
@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff\xfe"])
def test_a_damaged_plan_or_event_is_one_sentence(checkpoint: Checkpoint, content: bytes, with_checksum: bool) -> None:
    checkpoint.write_plan(PlanFile(buckets=(0,)))
    checkpoint.write_event(Event(EventKind.END))
    plan, event = Path(checkpoint.folder, "plan.json"), Path(checkpoint.control, "000000000000.json")
    for path in (plan, event):
        path.write_bytes(content)
    if not with_checksum:
        without_checksums(plan.parent)
    with pytest.raises(CheckpointError, match=f"^{plan} ") as raised:
        checkpoint.read_plan()
    assert "from a copy, or start on a new checkpoint" in str(raised.value.hint)
    with pytest.raises(CheckpointError, match=f"^{event} .*damaged") as raised:
        checkpoint.has_ended()
    assert "from a copy, or start on a new checkpoint" in str(raised.value.hint)


def test_a_checkpoint_is_its_owner_s(spark: SparkSession, tmp_path: Path) -> None:
    for name in "op":
        write_lines(tmp_path / name / "0.json", json_lines([(1, 1), (2, None)], NAMES), age=0)
    session = watersmeet.connect(spark, workspace=tmp_path / "workspace")
    (tmp_path / "checkpoints").mkdir(mode=0o755)
    for result in session.run(JOB.format(tmp_path), QueryMode.DRAIN, str(tmp_path / "checkpoints")):
        if isinstance(result, Started):
            assert result.query.wait(PATIENCE_SECONDS)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes["workspace"] == 0o700
    assert modes["checkpoints"] == modes["out"] == 0o755  # the user's own, and for others to read
    checkpoint = tmp_path / "checkpoints" / "into_sink_from_o_p"
    assert checkpoint.stat().st_mode & 0o777 == 0o700
    quarantined = list((checkpoint / "side").glob("*.jsonl"))
    assert quarantined
    assert {path.stat().st_mode & 0o777 for path in quarantined} == {0o600}


@pytest.mark.parametrize(
    ("joins", "setting", "before"),
    [
        ("a JOIN b ON a.k = b.k JOIN c ON a.k = c.k WITHIN INTERVAL '5' SECONDS", "multi_join", "off"),
        ("a JOIN b ON a.k = b.k WITHIN INTERVAL '5' SECONDS ORDER BY a.ts", "join_algorithm", "symmetric"),
    ],
)
def test_a_checkpoint_of_another_algorithm_says_how_to_go_on(
    checkpoint: Checkpoint, joins: str, setting: str, before: str
) -> None:
    """One from before there were multi-way joins, or sliding ones."""
    streams = "".join(f"CREATE STREAM {name} (k INT, ts BIGINT, WATERMARK FOR ts AS ts);" for name in "abc")

    def operators(value: str) -> list[OperatorSpec]:
        sql = f"{streams} SELECT a.k FROM {joins} SETTINGS {setting} = '{value}';"
        return Harness(*load_script(sql), buckets=1)._operators

    stored = checkpoint.accept(None, (0,), operators(before))
    with pytest.raises(CheckpointError, match="the query has changed since the checkpoint") as raised:
        checkpoint.accept(stored, (0,), operators("auto"))
    assert str(raised.value.hint).startswith(
        f"undo the change (with SETTINGS {setting} = '{before}' joins run as they did)"
    )
    assert checkpoint.accept(stored, (0,), operators(before)) == stored


def test_operators_of_an_earlier_checkpoint_go_on_apart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions ran each operator in a task of its own, with a state store of its own."""
    query = "INSERT INTO o SELECT a.k, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k EMIT CHANGELOG;"
    script = "".join(
        f"CREATE STREAM {name} (k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (connector = 'files', format = 'json',"
        f" path = '{tmp_path / name}');"
        for name in "ab"
    )
    sink = f"connector = 'files', format = 'json', path = '{tmp_path / 'o'}', changelog = 'true'"
    session = watersmeet.connect(spark, tmp_path / "workspace")
    session.sql(f"{script} CREATE STREAM o (k INT, n BIGINT) WITH ({sink});")

    def run(number: int) -> None:
        for name in "ab":
            write_lines(tmp_path / name / f"{number}.json", json_lines([(1, number)], ("k", "ts")), age=number)
        for result in session.run(query, QueryMode.DRAIN):
            assert isinstance(result, Started)
            assert result.query.wait(PATIENCE_SECONDS)

    for name in "ab":
        (tmp_path / name).mkdir()
    with monkeypatch.context() as earlier:
        earlier.setattr("watersmeet.runtime.dataflow.joint_tasks", lambda *_: ())
        run(1)
    run(2)
    assert json_rows(tmp_path / "o") == [(1, 1, -1), (1, 1, 1), (1, 4, 1)]
    (folder,) = (tmp_path / "workspace" / "queries").iterdir()
    plan = Checkpoint(Storage(spark), str(folder)).read_plan()
    assert plan is not None
    assert (plan.version, plan.tasks) == (2, ())
    assert sorted(path.name for path in (folder / "spark" / "state").iterdir() if path.name.isdigit()) == ["0", "1"]
