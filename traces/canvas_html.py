"""The canvas of a decoded call, one line for each denoising step: its tokens, and how unsure the model was of each."""

from html import escape

from .conventions import CANVAS, DENOISE, ENTROPIES
from .otlp_json import RecordedSpan
from .reading import RecordedTrace

# From here on a token is shown in full colour: a fair coin between two tokens has 0.69 nats.
_UNSURE_NATS = 2.0


def canvas_html(chat: RecordedSpan, trace: RecordedTrace) -> str:
    """Nothing if the run did not record its canvases: they are content, and recorded only when asked for."""
    steps = [span for span in _below(chat, trace) if span.name == DENOISE and CANVAS in span.attributes]
    if not steps:
        return ""
    rows = [f"<tr><td>step {number}</td><td>{_tokens(span)}</td></tr>" for number, span in enumerate(steps, 1)]
    return f'<h3>canvas</h3><table class="canvas">{"".join(rows)}</table>'


def _below(span: RecordedSpan, trace: RecordedTrace) -> list[RecordedSpan]:
    found = []
    for child in trace.children[span.span_id]:
        found += [child, *_below(child, trace)]
    return found


def _tokens(span: RecordedSpan) -> str:
    tokens = [str(token) for token in span.attributes[CANVAS]]
    entropies = [float(value) for value in span.attributes.get(ENTROPIES, [])]
    entropies += [0.0] * (len(tokens) - len(entropies))
    return "".join(
        f'<span class="token" title="{entropy:.3f} nats" style="background:rgba(234,88,12,'
        f'{min(max(entropy / _UNSURE_NATS, 0.0), 1.0):.2f})">{escape(_visible(token))}</span>'
        for token, entropy in zip(tokens, entropies, strict=False)
    )


def _visible(token: str) -> str:
    return token.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·") or "∅"
