"""The trace of one run: `invoke_agent` → `step` → `chat` and `execute_tool`, with the phases inside them.

Spans that surround code are opened with `span` and its named forms; phases that were measured elsewhere (the
decoder's thread, the sandbox) come in with `record`.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from . import conventions
from .attributes import plain
from .clock import shift_into
from .conventions import Attributes, AttributeValue

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span

    from .pipeline import Pipeline


class Measured(Protocol):
    """A stretch of time on `time.time_ns`' clock, of the machine that measured it."""

    @property
    def name(self) -> str: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...


class RunTrace:
    """Records one run. Use it as a context manager; the root span lasts as long as the `with` block."""

    def __init__(self, pipeline: "Pipeline | None", root: "Span", run_id: str, model: str, provider: str) -> None:
        """Use `start`."""
        self.root = root
        """The `invoke_agent` span: for attributes that are known only at the end, such as the run's status."""
        self.trace_id = f"{root.get_span_context().trace_id:032x}"
        self.warnings: list[str] = []
        """What went wrong with recording, one sentence each, complete after the `with` block."""
        self.captures_content = _captures_content()
        """Whether prompts, arguments and results may be recorded."""
        self._pipeline = pipeline
        self._run_id = run_id
        self._model = model
        self._provider = provider

    @classmethod
    def start(
        cls,
        run_dir: Path,
        *,
        run_id: str,
        agent_name: str,
        model: str,
        provider: str = conventions.IN_PROCESS_PROVIDER,
        attributes: Attributes | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> "RunTrace":
        """Opens the root span and the files in `run_dir` (made if missing).

        `tell` gets each warning when it arises, from any thread; they are in `warnings` too. With
        OTEL_SDK_DISABLED=true nothing is recorded anywhere and every method does nothing.
        Raises TraceError when the files cannot be made.
        """
        from opentelemetry.trace import INVALID_SPAN

        if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return cls(None, INVALID_SPAN, run_id, model, provider)
        from .pipeline import Pipeline

        warnings: list[str] = []

        def warn(sentence: str) -> None:
            warnings.append(sentence)
            if tell is not None:
                tell(sentence)

        root_attributes: dict[str, Any] = {
            conventions.OPERATION_NAME: conventions.INVOKE_AGENT,
            conventions.PROVIDER_NAME: provider,
            conventions.REQUEST_MODEL: model,
            conventions.AGENT_NAME: agent_name,
            conventions.CONVERSATION_ID: run_id,
            conventions.RUN_ID: run_id,
        }
        root_name = f"{conventions.INVOKE_AGENT} {agent_name}"
        pipeline = Pipeline(run_dir, root_name, root_attributes | plain(attributes), warn)
        trace = cls(pipeline, pipeline.root, run_id, model, provider)
        trace.warnings = warnings
        return trace

    def __enter__(self) -> "RunTrace":
        self.root.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.root.__exit__(kind, error, traceback)
        if self._pipeline is not None:
            self._pipeline.close()

    def span(
        self, name: str, attributes: Attributes | None = None, *, parent: "Span | None" = None
    ) -> AbstractContextManager["Span"]:
        """A span around a `with` block, from now on; a child of the current one, or of `parent`.

        Tasks and `anyio.to_thread` keep the parent; a bare thread gets the run's root unless told a parent.
        Never hold one across a `yield` of an async generator: whoever iterates may be another task by then.
        An exception that leaves the block marks the span as failed.
        """
        if self._pipeline is None:
            return nullcontext(self.root)
        return self._pipeline.span(name, parent, plain(attributes))

    def step(self, number: int, attributes: Attributes | None = None) -> AbstractContextManager["Span"]:
        """One turn of the loop; `number` counts from 1."""
        return self.span(conventions.STEP, {conventions.STEP_NUMBER: number, **(attributes or {})})

    def chat(self, attributes: Attributes | None = None) -> AbstractContextManager["Span"]:
        """One answer of the model; give it `conventions.usage(…)` when it is known."""
        return self.span(
            f"{conventions.CHAT} {self._model}",
            {
                conventions.OPERATION_NAME: conventions.CHAT,
                conventions.PROVIDER_NAME: self._provider,
                conventions.REQUEST_MODEL: self._model,
                conventions.CONVERSATION_ID: self._run_id,
                **(attributes or {}),
            },
        )

    def execute_tool(
        self, tool: str, call_id: str, attributes: Attributes | None = None
    ) -> AbstractContextManager["Span"]:
        """One tool call, from the moment it is known until its result is there."""
        return self.span(
            f"{conventions.EXECUTE_TOOL} {tool}",
            {
                conventions.OPERATION_NAME: conventions.EXECUTE_TOOL,
                conventions.TOOL_NAME: tool,
                conventions.TOOL_CALL_ID: call_id,
                conventions.TOOL_TYPE: "function",
                **(attributes or {}),
            },
        )

    def record(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes | None = None,
        *,
        parent: "Span | ReadableSpan | None" = None,
    ) -> "ReadableSpan | None":
        """A phase that was measured elsewhere, in nanoseconds since the epoch; a child of the current span or `parent`.

        Whoever measures need not know our names: attributes without a dot get `agent_runtime.` before them.
        Gives what `parent` of a further `record` may be, or None when nothing is recorded. About 6 µs.
        """
        if self._pipeline is None:
            return None
        named = {key if "." in key else f"agent_runtime.{key}": value for key, value in (attributes or {}).items()}
        return self._pipeline.record(name, start_ns, max(end_ns, start_ns), parent, plain(named))

    def record_call(self, phases: Sequence[Measured], start_ns: int, end_ns: int) -> None:
        """The phases of one call as the sandbox measured them, children of the current span.

        `start_ns` and `end_ns` are when the call was sent and its answer arrived here; the ways there and back
        are recorded as `transport`. Where the sandbox's clock is not ours, its phases are shifted into the call.
        """
        shift = shift_into([(phase.start_ns, phase.end_ns) for phase in phases], start_ns, end_ns)
        inside = [(phase.name, phase.start_ns + shift, phase.end_ns + shift) for phase in phases]
        arrived = min((start for _, start, _ in inside), default=end_ns)
        left = max((end for _, _, end in inside), default=end_ns)
        shifted = {conventions.CLOCK_SHIFT_NS: shift} if shift else None
        for name, start, end in inside:
            self.record(name, start, end, shifted)
        self.record(conventions.TRANSPORT, start_ns, arrived, {"way": "there"})
        if inside:
            self.record(conventions.TRANSPORT, left, end_ns, {"way": "back"})

    def content(self, key: str, text: str) -> dict[str, AttributeValue]:
        """`{key: text}` if content may be recorded, else nothing: for prompts, arguments and results."""
        return {key: text} if self.captures_content else {}


def _captures_content() -> bool:
    wanted = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower()
    return wanted in ("true", "1", "span_only", "span_and_event")
