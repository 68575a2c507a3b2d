"""The SDK's own logging about collectors, kept from the user's terminal."""

import logging
import threading
from types import TracebackType

_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "urllib3.connectionpool",
)


class Quiet(logging.Filter):
    """Inside its `with` block, what this thread logs about sending is not shown; the last of it is remembered.

    A dead collector otherwise prints a stack trace of forty lines. Other threads' messages pass: the user may have
    exporters of their own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        self._loggers = [logging.getLogger(name) for name in _LOGGERS]
        self._thread: int | None = None

    def __enter__(self) -> "Quiet":
        self._thread = threading.get_ident()
        for logger in self._loggers:
            logger.addFilter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for logger in self._loggers:
            logger.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread:
            return True
        message = record.getMessage()
        refused = "refused" in message.lower()
        self.last = "the connection was refused" if refused else message.splitlines()[0][:200].rstrip(".")
        return False
