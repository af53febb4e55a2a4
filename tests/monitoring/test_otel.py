"""Metrics by OpenTelemetry's protocol: all of them arrive, and a receiver that is away is nobody's trouble."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.monitoring.statuses import CHAIN, counters_of_chain, plan_of, status_after
from tests.support.otlp_receiver import Key, otlp_receiver
from watersmeet.errors import ConfigError
from watersmeet.monitoring.metrics import METRICS, Kind
from watersmeet.monitoring.otel import MetricsExport
from watersmeet.monitoring.prometheus import exposition
from watersmeet.runtime.status import QueryStatus

STATUS = status_after(plan_of(CHAIN), [(5, counters_of_chain(100))], now=10)
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def statuses() -> list[QueryStatus]:
    return [STATUS]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts that end soon, and none but those that a test asks for."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")


@contextmanager
def export() -> Iterator[MetricsExport]:
    found = MetricsExport(statuses)
    try:
        yield found
    finally:
        found.stop()


def scraped() -> dict[Key, float]:
    """The same metrics as Prometheus gets them, by their names here."""
    names = {each.prometheus_name + ("_total" if each.kind is Kind.COUNTER else ""): each.name for each in METRICS}
    return {
        (names[sample.name], tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition(statuses()).decode())
        for sample in family.samples
    }


def test_the_last_values_of_all_metrics_are_sent_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20letmein")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    with otlp_receiver() as receiver:
        monkeypatch.setenv(ENDPOINT, receiver.url)
        with export() as sending:
            assert sending.endpoint == f"{receiver.url}/v1/metrics"
            assert not receiver.requests
        ((_, headers),) = receiver.requests
    assert (sending.sent, sending.failed) == (1, 0)
    assert headers["authorization"] == "Bearer letmein"
    assert receiver.values() == scraped()
    resource = receiver.resource()
    assert (resource["service.name"], resource["deployment.environment"]) == ("watersmeet", "test")
    assert len(resource["service.instance.id"]) == 36
    sent = receiver.metrics()
    for metric in METRICS:
        if metric.name in sent:
            found = sent[metric.name]
            assert (found.unit, found.description) == (metric.unit, metric.help)
            assert found.HasField("sum") == (metric.kind is Kind.COUNTER)
            assert not found.HasField("sum") or found.sum.is_monotonic


def test_metrics_are_sent_in_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
    with otlp_receiver() as receiver:
        monkeypatch.setenv(ENDPOINT, f"{receiver.url}/")
        with export():
            assert receiver.has_come.wait(30)
    assert receiver.resource()["service.name"] == "orders"


def test_a_receiver_that_is_away_is_said_once_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:  # nobody listens there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setenv(ENDPOINT, f"http://user:letmein@127.0.0.1:{port}")
        with caplog.at_level(logging.DEBUG), export() as sending:
            for _ in range(3):
                sending._provider.force_flush()
            assert (sending.sent, sending.failed) == (0, 3)
            (said,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
            taken.close()
            with otlp_receiver(port) as receiver:
                sending._provider.force_flush()
                assert receiver.values() == scraped()
    assert f"do not reach http://127.0.0.1:{port}/v1/metrics, queries go on without: " in said.getMessage()
    assert f"metrics reach http://127.0.0.1:{port}/v1/metrics again (3 exports have failed so far)" in caplog.text
    assert "letmein" not in caplog.text


@pytest.mark.timeout(30)
def test_the_end_does_not_wait_for_a_receiver_that_never_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
    monkeypatch.setattr("watersmeet.monitoring.otel._LAST_EXPORT_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with export() as sending:
            pass
        assert sending.sent == 0


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "over 'grpc'"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json", "over 'http/json'"),
        (ENDPOINT, "collector:4318", "no URL of HTTP"),
        (ENDPOINT, "http://collector:port", "no URL of HTTP"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "cannot be set up"),
    ],
)
def test_variables_that_make_no_sense_are_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=said) as error, export():
        pass
    assert "OTEL_" in str(error.value.hint)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    with pytest.raises(ConfigError, match=r"not installed: opentelemetry\.sdk") as error, export():
        pass
    assert error.value.hint == "pip install '.[otel]' in a clone of Watersmeet"
