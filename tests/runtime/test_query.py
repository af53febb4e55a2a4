"""A running query and the runs of Spark's streaming query that it consists of, with a host that starts none."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from watersmeet.runtime import query
from watersmeet.runtime.job import Run
from watersmeet.runtime.query import RunningQuery
from watersmeet.runtime.query_mode import QueryMode

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

    def starts_again(self, _: Exception) -> bool:
        return True


def test_a_query_stops_that_was_asked_to_while_it_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeHost()
    monkeypatch.setattr(query, "MicroBatches", lambda *_: host)
    monkeypatch.setattr(query, "require_shared", lambda *_: None)
    checkpoint = SimpleNamespace(
        read_counters=dict,
        read_plan=lambda: None,
        refuse_sealed=lambda _: None,
        prepare=lambda: None,
        folder="",
        has_ended=lambda: False,
        write_counters=lambda _: None,
    )
    settings = SimpleNamespace(is_real_time=False, idle_timeout=None)
    plan = SimpleNamespace(query=SimpleNamespace(settings=settings))
    job = SimpleNamespace(name="q", plan=plan, checkpoint=checkpoint)
    running = RunningQuery(None, job, QueryMode.CONTINUOUS)  # type: ignore[arg-type]
    assert host.starts_second.wait(_PATIENCE_SECONDS)
    stopping = threading.Thread(target=running.stop, daemon=True)
    stopping.start()
    assert host.streams[0].stopped.wait(_PATIENCE_SECONDS)
    host.second_may_start.set()
    stopping.join(_PATIENCE_SECONDS)
    assert not stopping.is_alive()
    assert host.streams[1].stopped.is_set()
