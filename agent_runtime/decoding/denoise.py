"""The denoising loop: from a canvas of noise to a member of a grammar, in as few passes as it takes.

Each step shows the canvas to the model once, makes the exact constrained distribution of what comes back,
believes the slots that are certain, and puts noise into the others. Nothing but forced slots is ever fixed:
a slot that was believed is judged again in the next step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from agent_runtime.decoding.canvas import bucket, next_bucket, pinned_slots
from agent_runtime.decoding.decoder import Decoded, Timed, now_ns
from agent_runtime.decoding.sampler import SamplerConfig, accept, noise
from agent_runtime.errors import DecodingError

if TYPE_CHECKING:
    from agent_runtime.decoding.grammar import Grammar, Marginals
    from agent_runtime.decoding.tokenizer import Tokenizer


# Nats per slot under which a call that fills its canvas gets a longer one. Above, the model does not know what to
# write, and would write it to the end of every canvas: 256 slots cost ten times the time of 32.
GROW_BELOW = 1.0


class CanvasModel(Protocol):
    """What the loop needs of a network."""

    def logits(self, canvas: Tensor, expected: Tensor | None) -> Tensor:
        """[L] int64 on the host, and what the last step expected, to logits [L, vocab] float32, anywhere."""

    def expect(self, marginals: Marginals) -> Tensor | None:
        """What the next step is told of this one; None for a model that does not listen."""


@dataclass
class Progress:
    """What a decode has used up so far, over all canvas lengths, and until when it may go on."""

    generator: torch.Generator
    deadline: float | None
    max_steps: int
    steps: int = 0
    phases: list[Timed] = field(default_factory=list)

    def exhausted(self, step_begun: int) -> str:
        """`max_steps`, or `deadline` when a step as long as this one would end after it, or nothing."""
        if self.steps >= self.max_steps:
            return "max_steps"
        if self.deadline is not None and time.monotonic() + (now_ns() - step_begun) / 1e9 > self.deadline:
            return "deadline"
        return ""


@dataclass(frozen=True)
class Outcome:
    """How denoising on one canvas ended; tensors on the host."""

    draft: Tensor
    """The most probable member [L]."""
    logits: Tensor | None
    """[L, vocab] float32; None when there was nothing to ask the model."""
    entropy: Tensor
    """Constrained entropies [L], nats."""
    pinned: Tensor
    """Bool [L]: slots that the grammar alone decides."""
    stopped: str


class Denoiser:
    """The loop for one model and vocabulary.

    The grammar works on the host, so the loop does too: a step sends one canvas to the device and waits once,
    for the logits.
    """

    def __init__(
        self,
        model: CanvasModel,
        tokenizer: Tokenizer,
        settings: SamplerConfig,
        temperature: float = 0.0,
        ends: Sequence[int] = (),
    ) -> None:
        """`temperature` 0 emits the most probable member, more an exact draw at that temperature.

        `ends` are all tokens by which the model ends an answer; the grammar knows one, `<eos>`.
        """
        self._model, self._settings, self._temperature = model, settings, temperature
        self._vocab_size = tokenizer.vocab_size
        self._ends = list(ends)
        self._eos, self._pad = tokenizer.special("<eos>"), tokenizer.special("<pad>")
        # A vocabulary with a hole token was trained with it as its noise; others know uniform noise.
        self._hole = tokenizer.specials.get("<hole>")

    @torch.inference_mode()
    def __call__(self, grammar: Grammar, seed: int, deadline: float | None) -> Decoded:
        """Decode one member of `grammar`; errors and `deadline` as in `Decoder.decode`."""
        generator = torch.Generator().manual_seed(seed)
        progress = Progress(generator, deadline, self._settings.max_steps)
        length: int | None = bucket(grammar)
        while length is not None:
            outcome = self._on_canvas(grammar, length, progress)
            length = next_bucket(length) if outcome.stopped == "full" else None
        draft = outcome.draft
        if self._temperature > 0 and outcome.logits is not None:
            draft = grammar.sample(outcome.logits / self._temperature, generator)
        return self._decoded(grammar, draft, outcome, progress)

    def _on_canvas(self, grammar: Grammar, length: int, progress: Progress) -> Outcome:
        """Denoise on a canvas of `length`, until a reason to stop; `full` asks for a longer one."""
        begun = now_ns()
        settings, last = self._settings, next_bucket(length) is None
        pinned = pinned_slots(grammar, length)
        free = pinned < 0
        slots = int(free.sum())
        if slots == 0:
            progress.phases.append(Timed("denoise", begun, now_ns(), {"step": 0, "canvas_length": length}))
            return Outcome(pinned, None, torch.zeros(length), ~free, "forced")
        draft = torch.full_like(pinned, -1)
        tokens, expected = torch.where(free, self._noise(length, progress.generator), pinned), None
        while True:
            logits = self._model.logits(tokens, expected)[:, : self._vocab_size].to("cpu")
            if len(self._ends) > 1:  # Gemma 4 ends a call by <|tool_response>, which the grammar calls <eos>
                logits[:, self._eos] = logits[:, self._ends].logsumexp(1)
            if not math.isfinite(logits.sum().item()):
                raise DecodingError("the network's output is not finite: use another checkpoint or dtype float32")
            forwarded = now_ns()
            scaled = logits / settings.temperature(progress.steps)
            marginals, previous = grammar.marginals(scaled), draft
            draft = marginals.argmax  # good enough on the way; the best member as a whole is looked for at the end
            constrained = now_ns()
            progress.steps += 1
            matters = (draft != self._eos) & (draft != self._pad)  # behind the end nothing is left to decide
            doubt = (marginals.entropy * matters).sum()
            settled = (draft == previous).all() & (doubt < settings.confidence * matters.sum())
            certain, stable = bool(doubt <= settings.entropy_bound), bool(settled)
            full = bool(matters.all()) and doubt.item() < GROW_BELOW * length
            stopped = progress.exhausted(begun)
            if full and not last:  # the canvas's end may have cut the call short
                stopped = stopped or "full"
            elif certain or stable:
                stopped = "certain" if certain else "stable"
            if not stopped:
                quota = math.ceil(slots * progress.steps / settings.max_steps)
                believed = accept(marginals.entropy, free, settings.entropy_bound, quota)
                tokens = torch.where(believed, draft, self._noise(length, progress.generator))
                expected = self._model.expect(marginals)
            sampled = now_ns()
            if stopped and stopped != "full":
                draft = grammar.viterbi(scaled)
            ended = now_ns()
            attributes = {
                "step": progress.steps,
                "canvas_length": length,
                "forward_ms": (forwarded - begun) / 1e6,
                "constraint_ms": (constrained - forwarded + ended - sampled) / 1e6,
                "sampler_ms": (sampled - constrained) / 1e6,
            }
            progress.phases.append(Timed("denoise", begun, ended, attributes))
            begun = ended
            if stopped:
                return Outcome(draft, logits, marginals.entropy, ~free, stopped)

    def _decoded(self, grammar: Grammar, draft: Tensor, outcome: Outcome, progress: Progress) -> Decoded:
        """Cut the end token and padding off, and sum up."""
        matters = (draft != self._eos) & (draft != self._pad)
        tokens = tuple(draft[matters].tolist())
        logprob = 0.0
        if outcome.logits is not None:
            chosen = outcome.logits.log_softmax(-1).gather(1, draft[:, None])[:, 0]
            logprob = float(chosen[matters].sum())
        count = max(1, len(tokens))
        return Decoded(
            value=grammar.parse(tokens),
            tokens=tokens,
            steps=progress.steps,
            forward_passes=progress.steps,
            logprob=logprob,
            entropy=float(outcome.entropy[matters].sum()) / count,
            canvas_length=len(draft),
            forced_share=int((outcome.pinned & matters).sum()) / count,
            stopped=outcome.stopped,
            phases=tuple(progress.phases),
        )

    def _noise(self, length: int, generator: torch.Generator) -> Tensor:
        if self._hole is not None:
            return torch.full((length,), self._hole)
        return noise(length, self._vocab_size, generator)
