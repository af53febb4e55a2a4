"""A small receiver of OpenTelemetry's protocol: it keeps what it was sent, decoded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

#: A metric's name and the values of its attributes, in the order of their names.
Key = tuple[str, tuple[str, ...]]


class Receiver:
    """What has come: ``requests`` in order, each with its headers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[tuple[ExportMetricsServiceRequest, dict[str, str]]] = []
        self.has_come = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def resource(self) -> dict[str, str]:
        """The attributes of who has sent the last request."""
        (resource,) = self.requests[-1][0].resource_metrics
        return {each.key: each.value.string_value for each in resource.resource.attributes}

    def metrics(self) -> dict[str, Any]:
        """The metrics of the last request, by name."""
        (resource,) = self.requests[-1][0].resource_metrics
        (scope,) = resource.scope_metrics
        return {each.name: each for each in scope.metrics}

    def values(self) -> dict[Key, float]:
        """The numbers of the last request."""
        return {
            (name, tuple(each.value.string_value for each in sorted(point.attributes, key=lambda each: each.key))): (
                point.as_double if point.WhichOneof("value") == "as_double" else point.as_int
            )
            for name, metric in self.metrics().items()
            for point in getattr(metric, metric.WhichOneof("data")).data_points
        }


@contextmanager
def otlp_receiver(port: int = 0) -> Iterator[Receiver]:
    """A receiver at ``/v1/metrics``, on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/metrics"
            assert self.headers["Content-Type"] == "application/x-protobuf"
            receiver.requests.append((ExportMetricsServiceRequest.FromString(body), dict(self.headers.items())))
            receiver.has_come.set()
            answer = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        receiver = Receiver(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
