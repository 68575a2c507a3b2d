"""Names of spans and attributes: the OpenTelemetry GenAI semantic conventions v1.41.0, and our `agent_runtime.*`.

v1.41.0 is the last release with the GenAI conventions in it; they moved to a repository that has no releases
and still renames things, hence the pin. docs/traces.md explains each attribute of ours.
"""

from collections.abc import Mapping, Sequence

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
SCOPE = "agent_runtime"

AttributeValue = str | bool | int | float | Sequence[str] | Sequence[int] | Sequence[float]
Attributes = Mapping[str, AttributeValue | None]

# Operations: the value of gen_ai.operation.name and the first word of the span's name.
INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ_INPUT_TOKENS = "gen_ai.usage.cache_read.input_tokens"
AGENT_NAME = "gen_ai.agent.name"
CONVERSATION_ID = "gen_ai.conversation.id"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"

# Content: recorded only when asked for.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT = "gen_ai.tool.call.result"

# The conventions let a provider that they do not list name itself: the model runs in this process.
IN_PROCESS_PROVIDER = "agent_runtime"

STEP = "step"
STEP_NUMBER = "agent_runtime.step_number"
RUN_ID = "agent_runtime.run_id"
RUN_STATUS = "agent_runtime.run_status"
FORWARD_MS = "agent_runtime.forward_ms"
CONSTRAINT_MS = "agent_runtime.constraint_ms"
SAMPLER_MS = "agent_runtime.sampler_ms"
FORWARD_PASSES = "agent_runtime.forward_passes"
CANVAS_LENGTH = "agent_runtime.canvas_length"
ENTROPY = "agent_runtime.entropy"
FORCED_SHARE = "agent_runtime.forced_share"
CANVAS = "agent_runtime.canvas"
ENTROPIES = "agent_runtime.entropies"
MODE = "agent_runtime.mode"
TOOL_OK = "agent_runtime.tool.ok"
TOOL_TIMED_OUT = "agent_runtime.tool.timed_out"
TOOL_OUTPUT_BYTES = "agent_runtime.tool.output_bytes"
CLOCK_SHIFT_NS = "agent_runtime.clock_shift_ns"
INTERRUPTED = "agent_runtime.interrupted"

# Phases, in the order in which reports list them. A span with one of these names is that phase; a span with
# any other name counts for the phase that it lies in. `overhead` is what no phase covers and is never a span.
SETUP = "setup"
SANDBOX_START = "sandbox start"
QUEUE = "queue"
PREFILL = "prefill"
DENOISE = "denoise"
CONSTRAINT = "constraint"
TRANSPORT = "transport"
PROCESS = "process"
COMMIT = "commit"
OVERHEAD = "overhead"
PHASES = (SETUP, SANDBOX_START, QUEUE, PREFILL, DENOISE, CONSTRAINT, TRANSPORT, PROCESS, COMMIT, OVERHEAD)


def usage(
    *, input_tokens: int, output_tokens: int, finish_reason: str, cached_tokens: int | None = None
) -> dict[str, AttributeValue]:
    """Attributes of a finished chat span; `cached_tokens` of the `input_tokens` were in the KV cache already."""
    attributes: dict[str, AttributeValue] = {
        USAGE_INPUT_TOKENS: input_tokens,
        USAGE_OUTPUT_TOKENS: output_tokens,
        RESPONSE_FINISH_REASONS: (finish_reason,),
    }
    if cached_tokens is not None:
        attributes[USAGE_CACHE_READ_INPUT_TOKENS] = cached_tokens
    return attributes
