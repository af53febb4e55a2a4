"""How long a query waits for another system, what it says meanwhile, and what in the end."""

from __future__ import annotations

import logging
import threading

import pytest

from watersmeet.errors import OutageError, SinkOutageError
from watersmeet.runtime.outages import Outages
from watersmeet.settings.query_settings import parse_settings

DOWN = SinkOutageError("batch 7 could not be written", waits_for="PostgreSQL at db:5432: Connection refused")


class Time:
    """A clock that runs only in pauses."""

    def __init__(self) -> None:
        self.now, self.pauses = 100.0, list[float]()

    def pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        return False


def outages(time: Time, **settings: object) -> Outages:
    return Outages("q", parse_settings(settings), lambda: time.now, time.pause)


def failing(times: int, error: Exception = DOWN) -> tuple[list[int], object]:
    calls: list[int] = []

    def attempt() -> None:
        calls.append(len(calls))
        if len(calls) <= times:
            raise error

    return calls, attempt


def test_what_fails_is_tried_again_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    waits = outages(time, sink_retry="10 minutes")
    calls, attempt = failing(8)
    with caplog.at_level(logging.WARNING):
        waits.tried(attempt)  # type: ignore[arg-type]
    assert len(calls) == 9
    for pause, most in zip(time.pauses, [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10], strict=True):
        assert most / 2 <= pause <= most
    assert waits.waiting == ""
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == ("q: waiting for PostgreSQL at db:5432: Connection refused (attempt 1, 0 s of 10 minutes)")
    assert "(attempt 8, " in messages[7]
    assert messages[8] == f"q: goes on after {time.now - 100:.0f} s"
    waits.tried(failing(0)[1])  # type: ignore[arg-type]
    assert len(caplog.records) == 9, "and without an outage nothing is said"


def test_what_is_shown_while_it_waits() -> None:
    time, shown = Time(), list[str]()

    def pause(seconds: float) -> bool:
        shown.append(waits.waiting)
        return time.pause(seconds)

    waits = Outages("q", parse_settings({}), lambda: time.now, pause)
    waits.wait(OutageError("Kafka sent no records"))
    time.now += 37.9
    waits.wait(OutageError("Kafka sent no records"))
    assert shown[0] == "waiting: Kafka sent no records (attempt 1, 0 s of 1 minute)"
    assert shown[1] == "waiting: Kafka sent no records (attempt 2, 38 s of 1 minute)"


def test_the_last_attempt_comes_when_the_time_is_over_and_says_how_to_go_on() -> None:
    time = Time()
    waits = outages(time, sink_retry="1 second")
    calls, attempt = failing(99)
    with pytest.raises(SinkOutageError) as raised:
        waits.tried(attempt)  # type: ignore[arg-type]
    assert time.now == pytest.approx(101.0)
    assert raised.value.message == f"batch 7 could not be written; query q has tried {len(calls)} times in 1 s"
    assert raised.value.hint == (
        "nothing is lost: run it again once the cause is gone, and it goes on where it stopped; "
        "SETTINGS sink_retry = '10 minutes' waits longer"
    )
    assert waits.waiting == ""
    with pytest.raises(SinkOutageError) as again:
        waits.wait(raised.value)
    assert again.value is raised.value, "the end of one wait does not begin another"


def test_without_time_the_error_is_as_it_was() -> None:
    time = Time()
    with pytest.raises(SinkOutageError) as raised:
        outages(time, sink_retry=0).tried(failing(1)[1])  # type: ignore[arg-type]
    assert raised.value is DOWN
    assert not time.pauses


def test_sinks_and_sources_have_times_of_their_own() -> None:
    source = OutageError("no answer")
    waits = outages(Time(), source_retry=0)
    waits.wait(DOWN)
    with pytest.raises(OutageError) as raised:
        outages(Time(), source_retry=0).wait(source)
    assert raised.value is source
    time = Time()
    waits = outages(time, source_retry="2 hours")
    waits.wait(source)
    time.now += 7_200
    with pytest.raises(OutageError, match=r"tried 2 times in 720\d s") as raised:
        waits.wait(source)
    assert "SETTINGS source_retry = '4 hours' waits longer" in str(raised.value)


def test_an_outage_is_of_the_kind_that_it_began_with() -> None:
    """One broker may be both source and sink."""
    time = Time()
    waits = outages(time, source_retry="1 hour", sink_retry=0)
    waits.wait(OutageError("no answer"))
    waits.wait(DOWN)
    time.now += 3_600
    with pytest.raises(OutageError, match="SETTINGS source_retry = '2 hours' waits longer"):
        waits.wait(DOWN)


def test_other_errors_are_not_tried_again() -> None:
    time = Time()
    with pytest.raises(ValueError, match="no such table"):
        outages(time).tried(failing(1, ValueError("no such table"))[1])  # type: ignore[arg-type]
    assert not time.pauses


def test_an_outage_ends_when_a_run_has_come_further() -> None:
    time = Time()
    waits = outages(time, source_retry="1 minute")
    waits.wait(OutageError("a"))
    waits.has_run()  # what an earlier run did is no news
    assert waits.waiting.endswith("s of 1 minute)")
    waits.reached()
    assert waits.waiting == ""
    time.now += 50
    waits.wait(OutageError("a"))
    assert "(attempt 2, 5" in waits.waiting, "the run has failed again before it came further"
    waits.reached()
    waits.has_run()
    time.now += 50
    waits.wait(OutageError("a"))
    assert "(attempt 1, 0 s" in waits.waiting.replace(f"{time.pauses[-1]:.0f} s", "0 s")


def test_a_stop_ends_a_pause_at_once() -> None:
    waits = Outages("q", parse_settings({"sink_retry": "1 hour"}))
    raised: list[BaseException] = []

    def write() -> None:
        try:
            waits.tried(failing(10**9)[1])  # type: ignore[arg-type]
        except SinkOutageError as error:
            raised.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    waits.stop()
    thread.join(20)
    assert raised == [DOWN]


@pytest.mark.parametrize("value", ["soon", "-1 s", -1])
def test_a_time_that_is_none(value: object) -> None:
    with pytest.raises(Exception, match=r"SETTINGS: option sink_retry = "):
        parse_settings({"sink_retry": value})
