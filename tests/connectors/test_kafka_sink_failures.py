"""Why a batch could not be written to a topic, where Kafka has no part in it."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError

from watersmeet.connectors.kafka import sink as kafka_sink
from watersmeet.errors import ConnectorError, LostProcessError
from watersmeet.runtime.failures import translate

OPTIONS = {"brokers": "127.0.0.1:1", "topic": "t"}
CALL = "An error occurred while calling o5350.collectToPython.\n: org.apache.spark.SparkException: Job aborted.\n"


class Frame:
    sparkSession: Any = None  # noqa: N815


@pytest.fixture
def reaches(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was asked of the broker, which answers."""
    asked: list[object] = []
    monkeypatch.setattr(kafka_sink, "partitions", lambda *given: asked.append(given))
    monkeypatch.setattr(kafka_sink, "require_package", lambda *given: None)
    return asked


def failed_write(monkeypatch: pytest.MonkeyPatch, text: str) -> Exception:
    def fail(*_: object) -> None:
        raise Py4JError(text)

    monkeypatch.setattr(kafka_sink, "_write", fail)
    with pytest.raises(Exception, match=r".") as raised:
        kafka_sink.write_batch(Frame(), 7, OPTIONS)  # type: ignore[arg-type]
    return raised.value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"{CALL}Caused by: a.SparkException: Python worker exited unexpectedly (crashed)", LostProcessError),
        (f"{CALL}Caused by: java.io.IOException: No space left on device", ConnectorError),
    ],
)
def test_a_worker_that_dies_and_a_full_disk_are_no_failures_of_kafka(
    reaches: list[object], monkeypatch: pytest.MonkeyPatch, text: str, kind: type[Exception]
) -> None:
    raised = failed_write(monkeypatch, text)
    assert not reaches
    error = translate(raised, "q")
    assert type(error) is kind
    assert "batch 7" not in error.message
    assert error.hint


def test_another_failure_has_its_cause_and_what_to_do(reaches: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    raised = failed_write(monkeypatch, f"{CALL}Caused by: java.lang.ArithmeticException: / by zero")
    assert reaches
    assert isinstance(raised, ConnectorError)
    assert raised.message == "batch 7 could not be written to topic 't': / by zero"
    assert "run the query again" in str(raised.hint)
