"""Collectors on loopback, over both of OTLP's transports: one that keeps what it is sent, and faulty ones."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Protocol = Literal["grpc", "http/protobuf"]
PROTOCOLS: tuple[Protocol, ...] = ("grpc", "http/protobuf")


class Collector:
    """Keeps what it is sent; refuses for as long as ``refuses`` says."""

    def __init__(self) -> None:
        self.traces: list[trace_service_pb2.ExportTraceServiceRequest] = []
        self.metrics: list[metrics_service_pb2.ExportMetricsServiceRequest] = []
        self.refuses: Callable[[Any], bool] = lambda _: False
        self.wants: tuple[str, str] | None = None
        """A header, in lower case, without which nothing is taken."""
        self.turned_away = 0
        """Exports that came without it."""
        self.endpoint = ""
        self._changed = threading.Condition()

    def take(self, request: Any) -> bool:
        """Keep an export; whether it was kept."""
        with self._changed:
            taken = not self.refuses(request)
            if taken:
                traces = isinstance(request, trace_service_pb2.ExportTraceServiceRequest)
                (self.traces if traces else self.metrics).append(request)
            self._changed.notify_all()
        return taken

    def lets_in(self, headers: Iterable[tuple[str, str]]) -> bool:
        """Whether an export brings what it must; counted where it does not."""
        with self._changed:
            known = self.wants is None or self.wants in {(name.lower(), value) for name, value in headers}
            self.turned_away += not known
            self._changed.notify_all()
        return known

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Until something that arrived makes ``condition`` true."""
        await asyncio.to_thread(self._wait_until, condition)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, timeout=60)

    @property
    def spans(self) -> list[Span]:
        """All spans so far."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def last_metrics(self) -> dict[str, Metric]:
        """The newest export's metrics by name."""
        (resource,) = self.metrics[-1].resource_metrics
        return {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}


@contextlib.contextmanager
def grpc_collector(tls: Path | None = None) -> Iterator[Collector]:
    """Over gRPC; with a folder of ``misbehaving.Authority`` over TLS, for clients with a certificate of it only."""
    collector = Collector()

    def export(reply: Any) -> Callable[[Any, grpc.ServicerContext], Any]:
        def method(request: Any, context: grpc.ServicerContext) -> Any:
            if not collector.lets_in(context.invocation_metadata()):
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
            if not collector.take(request):
                context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
            return reply

        return method

    traces = trace_service_pb2_grpc.TraceServiceServicer()
    metrics = metrics_service_pb2_grpc.MetricsServiceServicer()
    traces.Export = export(trace_service_pb2.ExportTraceServiceResponse())  # type: ignore[method-assign]
    metrics.Export = export(metrics_service_pb2.ExportMetricsServiceResponse())  # type: ignore[method-assign]
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(traces, server)  # type: ignore[no-untyped-call]
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(metrics, server)  # type: ignore[no-untyped-call]
        if tls is None:
            collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        else:
            pair = ((tls / "s.key").read_bytes(), (tls / "s.pem").read_bytes())
            secured = grpc.ssl_server_credentials([pair], (tls / "ca.pem").read_bytes(), require_client_auth=True)
            collector.endpoint = f"https://127.0.0.1:{server.add_secure_port('127.0.0.1:0', secured)}"
        server.start()
        try:
            yield collector
        finally:
            server.stop(None).wait()


@contextlib.contextmanager
def http_collector(tls: Path | None = None) -> Iterator[Collector]:
    """Over HTTP; TLS as above."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kinds: dict[str, Any] = {
                "/v1/traces": trace_service_pb2.ExportTraceServiceRequest,
                "/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
            }
            request = kinds[self.path].FromString(body)
            if not collector.lets_in(self.headers.items()):
                self.send_response(401)
            else:
                self.send_response(200 if collector.take(request) else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        scheme = "http"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_verify_locations(tls / "ca.pem")
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_cert_chain(tls / "s.pem", tls / "s.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
            scheme = "https"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        collector.endpoint = f"{scheme}://127.0.0.1:{server.server_port}"
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def answering(status: int, headers: Iterable[tuple[str, str]], pieces: Callable[[], Iterable[bytes]]) -> Iterator[str]:
    """Over HTTP: takes nothing, and answers each export like this for as long as it is listened to."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            for header in headers:
                self.send_header(*header)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.writelines(pieces())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


COLLECTORS = {"grpc": grpc_collector, "http/protobuf": http_collector}


def text_attributes(attributes: Any) -> dict[str, str]:
    """Attributes as a mapping; those that are no text are empty."""
    return {pair.key: pair.value.string_value for pair in attributes}


class Faulty:
    """Collectors that no exporter gets along with: each yields an endpoint."""

    @staticmethod
    @contextlib.contextmanager
    def absent() -> Iterator[str]:
        """Nobody listens."""
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
        yield f"http://127.0.0.1:{port}"

    @staticmethod
    @contextlib.contextmanager
    def frozen() -> Iterator[str]:
        """Connections are made, nobody reads them."""
        with socket.create_server(("127.0.0.1", 0)) as sock:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"

    @staticmethod
    @contextlib.contextmanager
    def dripping() -> Iterator[str]:
        """Answers a byte at a time: each read ends within any limit, the answer never does."""
        stop = threading.Event()

        def drip(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not stop.wait(0.2):
                    connection.sendall(b"x")

        def accept(sock: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = sock.accept()
                    if stop.is_set():
                        connection.close()
                        return
                    threading.Thread(target=drip, args=(connection,), daemon=True).start()

        with socket.create_server(("127.0.0.1", 0)) as sock:
            thread = threading.Thread(target=accept, args=(sock,))
            thread.start()
            try:
                yield f"http://127.0.0.1:{sock.getsockname()[1]}"
            finally:
                stop.set()
                socket.create_connection(sock.getsockname()).close()
                thread.join()
