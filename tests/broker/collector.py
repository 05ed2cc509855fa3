"""An OpenTelemetry collector for tests: a real HTTP server that reads OTLP by its own schema."""

from __future__ import annotations

import gzip
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from tests.support.http_servers import serving

Answer = Callable[[BaseHTTPRequestHandler], None]


def accept(handler: BaseHTTPRequestHandler, body: bytes = b"{}") -> None:
    """Answer that all is well."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@dataclass
class Collector:
    """What came; `answer` says what is answered."""

    port: int = 0
    answer: Answer = accept
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def points(self) -> Iterator[tuple[str, str, dict[str, str], Any]]:
        """Yield the name, kind, attributes and point of all values that came."""
        for request in self.requests:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        kind = metric.WhichOneof("data")
                        for point in getattr(metric, kind).data_points:
                            labels = {
                                one.key: one.value.string_value for one in point.attributes
                            }
                            yield metric.name, kind, labels, point


@contextmanager
def collecting(context: ssl.SSLContext | None = None) -> Iterator[Collector]:
    """Run a collector on a free port of the loopback address, over TLS with a context."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.headers["Content-Type"] == "application/json"
            request = Parse(data, ExportMetricsServiceRequest())  # strict: no unknown field
            collector.paths.append(self.path)
            collector.headers.append(dict(self.headers.items()))
            collector.sizes.append(len(data))
            collector.requests.append(request)
            collector.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler, context) as collector.port:
        yield collector
