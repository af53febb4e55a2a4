"""The metrics, sent by OpenTelemetry's protocol (OTLP over HTTP) to where its standard environment variables say."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from watersmeet.errors import ConfigError
from watersmeet.extras import require_extra
from watersmeet.monitoring.metrics import METRICS, Kind, Metric
from watersmeet.runtime.status import QueryStatus
from watersmeet.settings.secrets import hide

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource

Statuses = Callable[[], Sequence[QueryStatus]]

_log = logging.getLogger(__name__)
_PROTOCOL = "http/protobuf"
_EXPORTERS_LOG = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
#: How long the end of a run waits for the last export.
_LAST_EXPORT_SECONDS = 3.0


class MetricsExport:
    """Sends the metrics of queries, from a thread of its own, until it is stopped; ``statuses`` is called each time.

    Where they cannot be sent, queries do not notice: it is said once, counted, and tried again at the next interval.
    Raises ``ConfigError`` if its packages are missing, or if the environment variables make no sense.
    """

    def __init__(self, statuses: Statuses) -> None:
        require_extra("otel", "the export of metrics", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        #: Where metrics go.
        self.endpoint = _endpoint()
        #: How many exports have succeeded, and how many have failed.
        self.sent = self.failed = 0
        self._fails = False
        try:
            reader = PeriodicExportingMetricReader(_watched(self._note))
            self._provider = MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)
        except ValueError as error:
            raise ConfigError(
                f"the export of metrics cannot be set up: {hide(str(error))}",
                hint="the variables OTEL_METRIC_… and OTEL_EXPORTER_OTLP_… set it up",
            ) from None
        _observe(self._provider.get_meter("watersmeet", version("watersmeet")), statuses)

    def stop(self) -> None:
        """Send what there is, for a few seconds at most, and end."""
        self._provider.shutdown(timeout_millis=_LAST_EXPORT_SECONDS * 1000)

    def _note(self, has_come: bool, reason: str) -> None:
        """Count an export, and say when a row of failures begins and when it ends."""
        if has_come:
            self.sent += 1
            if self._fails:
                _log.warning("metrics reach %s again (%d exports have failed so far)", self.endpoint, self.failed)
        else:
            self.failed += 1
            if not self._fails:
                _log.warning("metrics do not reach %s, queries go on without: %s", self.endpoint, reason)
        self._fails = not has_come


def _observe(meter: Meter, statuses: Statuses) -> None:
    for metric in METRICS:
        create = meter.create_observable_counter if metric.kind is Kind.COUNTER else meter.create_observable_gauge
        create(metric.name, [_reading(metric, statuses)], metric.unit, metric.help)


def _reading(metric: Metric, statuses: Statuses) -> Callable[[CallbackOptions], Iterator[Observation]]:
    """What the SDK calls for a metric's values."""
    from opentelemetry.metrics import Observation

    def read(_: CallbackOptions) -> Iterator[Observation]:
        for status in statuses():
            for labels, value in metric.samples(status):
                yield Observation(value, dict(zip(metric.labels, labels, strict=True)))

    return read


def _resource() -> Resource:
    """What sends: named by the environment, else ``watersmeet``; each run is an instance of its own."""
    from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource

    found = Resource.create()
    given = found.attributes
    own = {SERVICE_INSTANCE_ID: given.get(SERVICE_INSTANCE_ID, str(uuid.uuid4()))}
    if str(given.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        own[SERVICE_NAME] = "watersmeet"
    return found.merge(Resource(own))


def _endpoint() -> str:
    """The URL that metrics are sent to, without what may be secret in it."""
    protocol = _variable("PROTOCOL") or _PROTOCOL
    if protocol != _PROTOCOL:
        raise ConfigError(
            f"metrics cannot be exported by OTLP over {protocol!r}",
            hint=f"set OTEL_EXPORTER_OTLP_PROTOCOL to {_PROTOCOL}, and take the collector's port for it, often 4318",
        )
    own, base = os.environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"), os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    url = own or f"{(base or 'http://localhost:4318').rstrip('/')}/v1/metrics"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            "the endpoint for metrics is no URL of HTTP",
            hint="set OTEL_EXPORTER_OTLP_ENDPOINT to one such as http://localhost:4318",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path}"


def _variable(name: str) -> str | None:
    return os.environ.get(f"OTEL_EXPORTER_OTLP_METRICS_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}")


def _watched(note: Callable[[bool, str], None]) -> MetricExporter:
    """An exporter that notes of each export whether it has succeeded, and logs nothing itself."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

    class Watched(OTLPMetricExporter):
        def export(
            self, metrics_data: MetricsData, timeout_millis: float | None = None, **kwargs: object
        ) -> MetricExportResult:
            with _reasons() as reasons:
                result = super().export(metrics_data, timeout_millis, **kwargs)
            note(result is MetricExportResult.SUCCESS, hide(reasons[0]) if reasons else "")
            return result

    return Watched()


@contextmanager
def _reasons() -> Iterator[list[str]]:
    """Take what the exporter logs in this thread: a line for each attempt, with the reason."""
    found: list[str] = []
    thread = threading.get_ident()

    def take(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return True
        found.append(record.getMessage())
        return False

    log = logging.getLogger(_EXPORTERS_LOG)
    log.addFilter(take)
    try:
        yield found
    finally:
        log.removeFilter(take)
