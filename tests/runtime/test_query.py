"""A running query and the runs of Spark's streaming query that it consists of, with a host that starts none."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from watersmeet.errors import ConnectorError, OutageError, SinkOutageError, WatersmeetError
from watersmeet.lookup.retry import OnError, RetryPolicy
from watersmeet.runtime import query
from watersmeet.runtime.job import Run
from watersmeet.runtime.outages import Outages
from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.settings.query_settings import QuerySettings

_PATIENCE_SECONDS = 20.0


class FakeStream:
    """A streaming query of Spark that fails, or runs until it is stopped."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.stopped = threading.Event()
        self._jsq = SimpleNamespace(recentProgress=list)

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802 - as Spark names it
        if self.fails:
            raise ValueError("a worker was killed")
        return self.stopped.wait(seconds)

    def stop(self) -> None:
        self.stopped.set()


class FakeHost:
    """Starts a run that fails, and after it one that is slow to start."""

    def __init__(self, *_: Any) -> None:
        self.streams: list[FakeStream] = []
        self.starts_second, self.second_may_start = threading.Event(), threading.Event()

    def start(self, **_: Any) -> Run:
        if self.streams:
            self.starts_second.set()
            assert self.second_may_start.wait(_PATIENCE_SECONDS)
        self.streams.append(FakeStream(fails=not self.streams))
        return Run(self.streams[-1], lambda: None)  # type: ignore[arg-type]

    def cause(self, error: Exception) -> Exception:
        return error

    def starts_again(self, _: Exception) -> bool:
        return True


def running(
    monkeypatch: pytest.MonkeyPatch, host: Any, mode: QueryMode = QueryMode.CONTINUOUS, **of_job: Any
) -> RunningQuery:
    """A query on a host, with a checkpoint of nothing."""
    monkeypatch.setattr(query, "MicroBatches", lambda *_: host)
    monkeypatch.setattr(query, "require_shared", lambda *_: None)
    checkpoint = SimpleNamespace(
        read_counters=dict,
        read_plan=lambda: None,
        refuse_sealed=lambda _: None,
        prepare=lambda _: None,
        removed_if_refused=nullcontext,
        folder="",
        has_ended=lambda: any(start["declares_end"] for start in getattr(host, "done", [])),
        write_counters=lambda _: None,
        write_failure=lambda _: None,
        seal=lambda: None,
    )
    settings = QuerySettings()
    plan = SimpleNamespace(query=SimpleNamespace(settings=settings), inputs=(), streams=(), operators=())
    outages = of_job.pop("outages", None) or Outages("q", settings, pause=lambda _: False)
    known = {"name": "q", "plan": plan, "checkpoint": checkpoint, "outages": outages, "outputs": ()}
    job = SimpleNamespace(**{**known, "limits_batches": True, **of_job})
    return RunningQuery(None, job, mode)  # type: ignore[arg-type]


def test_a_query_stops_that_was_asked_to_while_it_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeHost()
    started = running(monkeypatch, host)
    assert host.starts_second.wait(_PATIENCE_SECONDS)
    stopping = threading.Thread(target=started.stop, daemon=True)
    stopping.start()
    assert host.streams[0].stopped.wait(_PATIENCE_SECONDS)
    host.second_may_start.set()
    stopping.join(_PATIENCE_SECONDS)
    assert not stopping.is_alive()
    assert host.streams[1].stopped.is_set()


def test_what_a_stop_ends_is_not_said_to_begin_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host, failed = FakeHost(), threading.Event()

    def starts_again(_: Exception) -> bool:
        failed.set()
        return True

    monkeypatch.setattr(host, "starts_again", starts_again)
    with caplog.at_level(logging.WARNING):
        started = running(monkeypatch, host)
        assert failed.wait(_PATIENCE_SECONDS)
        started.stop()
    assert (len(host.streams), caplog.messages) == (1, [])
    assert started.wait(0), "a stop is no error"


# -- outages -----------------------------------------------------------------------------------------------------------


class Scripted:
    """A host whose starts and runs go as the script says; ``done`` are the starts that succeeded.

    A start fails with an error that it is given, or gives a run that ends with one, or well (None).
    """

    def __init__(self, *script: tuple[str, Exception | None]) -> None:
        self.script = list(script)
        self.asked: list[dict[str, bool]] = []
        self.done: list[dict[str, bool]] = []

    def start(self, **asked: bool) -> Run:
        asked = {"declares_end": False, **asked}
        self.asked.append(asked)
        what, error = self.script.pop(0)
        if what == "start":
            assert error is not None
            raise error
        self.done.append(asked)
        return Run(Ending(error), lambda: None)  # type: ignore[arg-type]

    def cause(self, error: Exception) -> Exception:
        return error

    def starts_again(self, _: Exception) -> bool:
        return False


class Ending:
    """A streaming query of Spark that ends at once."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self._jsq = SimpleNamespace(recentProgress=list)

    def awaitTermination(self, _: float) -> bool:  # noqa: N802 - as Spark names it
        if self.error is not None:
            raise self.error
        return True

    def stop(self) -> None:
        pass


def outage() -> OutageError:
    return OutageError("no broker answers")


def test_a_run_that_failed_by_an_outage_is_followed_by_one_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ValueError("Job aborted: watersmeet.errors.OutageError: no broker answers\n\tat a.B(B.java)")
    host = Scripted(("run", text), ("start", outage()), ("start", outage()), ("run", outage()), ("run", None))
    reached: list[int] = []
    output = SimpleNamespace(target="t", reach=lambda: reached.append(len(host.asked)))
    assert running(monkeypatch, host, QueryMode.DRAIN, outputs=(output,)).wait(_PATIENCE_SECONDS)
    assert host.asked == [{"limited": True, "available_now": True, "declares_end": False}] * 5
    assert reached == [1, 2, 3, 4], "sinks are asked first"


def test_a_sink_that_does_not_answer_keeps_runs_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    host, asked = Scripted(("run", outage()), ("run", None)), list[int]()

    def reach() -> None:
        asked.append(len(host.asked))
        if len(asked) < 4:
            raise SinkOutageError("down")

    output = SimpleNamespace(target="t", reach=reach)
    assert running(monkeypatch, host, QueryMode.DRAIN, outputs=(output,)).wait(_PATIENCE_SECONDS)
    assert asked == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("script", "ends"),
    [
        pytest.param([("run", None), ("start", outage()), ("run", None)], [False, True, True], id="not yet declared"),
        pytest.param([("run", None), ("run", outage()), ("run", None)], [False, True, False], id="declared"),
    ],
)
def test_the_end_of_input_is_declared_once(
    monkeypatch: pytest.MonkeyPatch, script: list[tuple[str, Exception | None]], ends: list[bool]
) -> None:
    host = Scripted(*script)
    assert running(monkeypatch, host, QueryMode.BOUNDED).wait(_PATIENCE_SECONDS)
    assert [each["declares_end"] for each in host.asked] == ends


def test_an_outage_longer_than_the_setting_is_the_querys_error(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1_000, 25))
    outages = Outages("q", QuerySettings(), lambda: next(clock), lambda _: False)
    host = Scripted(*[("run", outage())] * 9)
    with pytest.raises(
        OutageError, match=r"no broker answers; query q has tried \d times in \d+ s\nhint: nothing is lost"
    ):
        running(monkeypatch, host, outages=outages).wait(_PATIENCE_SECONDS)
    assert 2 <= len(host.asked) < 5


def test_another_failure_after_an_outage_is_the_querys_error(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Scripted(("run", outage()), ("run", ConnectorError("no such table")))
    with pytest.raises(ConnectorError, match=r"^no such table$"):
        running(monkeypatch, host).wait(_PATIENCE_SECONDS)


def test_a_query_can_be_stopped_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = RetryPolicy(on_error=OnError.RETRY, first_pause=900, longest_pause=900)
    monkeypatch.setattr("watersmeet.runtime.outages._WITHOUT_END", slow)
    outages = Outages("q", QuerySettings(source_retry=3_600))
    host = Scripted(*[("run", outage())] * 1_000)
    started = running(monkeypatch, host, outages=outages)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not outages.waiting and time.monotonic() < deadline:
        started.wait(0.01)
    stopping = threading.Thread(target=started.stop, daemon=True)
    stopping.start()
    stopping.join(_PATIENCE_SECONDS)
    assert not stopping.is_alive()
    assert started.wait(0), "a stop is no error"


class DyingHost(FakeHost):
    """Starts a run that fails; then Spark is gone, and cannot be asked why."""

    def cause(self, _: Exception) -> Exception:
        raise ConnectionError("Spark is gone")

    def starts_again(self, _: Exception) -> bool:
        return False


def test_a_query_whose_failure_cannot_be_explained_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with pytest.raises(WatersmeetError, match="query q failed"):
        running(monkeypatch, DyingHost()).wait(_PATIENCE_SECONDS)
