"""What a run records, and how it is read back: spans, the files in the run's folder, and the reports on them.

Writing: `run.py` (spans) → `recording.py` (files) and `sending.py` (OTLP). Reading: `reading.py` →
`attribution.py` → `report.py` and the other views. May import `agent_runtime.errors` and nothing else of the
project. OpenTelemetry is imported when a trace starts and not before: it costs 90 ms, and `agent-runtime
--help` must not pay them.
"""

from .clock import now_ns
from .failure import fail
from .report import Report, latency_summary, report
from .run import RunTrace

__all__ = ["Report", "RunTrace", "fail", "latency_summary", "now_ns", "report"]
