"""The metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from watersmeet.monitoring.metrics import METRICS, Kind
from watersmeet.runtime.status import QueryStatus

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class _Collector(Collector):
    def __init__(self, statuses: Sequence[QueryStatus]) -> None:
        self._statuses = statuses

    def collect(self) -> Iterable[Metric]:
        return _families(self._statuses)


def exposition(statuses: Sequence[QueryStatus]) -> bytes:
    """What a scrape of these queries gets."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(statuses))
    return generate_latest(registry)


def _families(statuses: Sequence[QueryStatus]) -> Iterator[Metric]:
    for metric in METRICS:
        kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
        family = kind(metric.prometheus_name, metric.help, labels=metric.labels)
        for status in statuses:
            for labels, value in metric.samples(status):
                family.add_metric(labels, value)
        yield family
