"""A grammar: the token sequences that are valid values of a schema, or valid tool calls.

Members come in all tokenizations. On a canvas of L positions a member is followed by `<eos>` once and by
`<pad>` to the end; that tail is part of the automaton, so the canvas needs no stop rule.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch

from agent_runtime.chat import JSON
from agent_runtime.decoding.automaton import Ints, TokenAutomaton, TooLarge, byte_table
from agent_runtime.decoding.call import ToolCall
from agent_runtime.decoding.classes import Classes, ClassWeights, Logits
from agent_runtime.decoding.lattice import Floats, Lattice, pick
from agent_runtime.decoding.lifting import lift
from agent_runtime.decoding.regular import (
    CALL,
    CALL_END,
    EOS,
    NOTHING,
    PAD,
    SPECIALS,
    TURN_END,
    Language,
    either,
    join,
    optional,
    repeat,
    word,
)
from agent_runtime.decoding.schema import Mode, Schema, SchemaCompiler
from agent_runtime.decoding.syntax import SYNTAXES, Syntax
from agent_runtime.decoding.text import EVERY_CHARACTER, characters
from agent_runtime.decoding.tokenizer import Tokenizer
from agent_runtime.decoding.vocabulary import Vocabulary
from agent_runtime.errors import CanvasTooSmall, DecodingError, UnsupportedSchema

SyntaxName: TypeAlias = Literal["gemma", "json"]
Value: TypeAlias = "JSON | ToolCall"
#: How often a draw is repeated when the check rejects it, before the smaller language is drawn from.
_DRAWS = 4
_FREE_STRING_TOKENS = 12
"""A guess of how many tokens a free string takes in a typical call."""


class Grammar:
    """Valid token sequences. Made by `compile_schema` and `compile_calls`."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        language_of: Callable[[Mode], Language],
        read: Callable[[Sequence[int]], Value],
        free_strings: int,
    ) -> None:
        """`language_of` gives the members' text in each mode of `schema.py`; `read` their value."""
        self.tokenizer = tokenizer
        self._language_of = language_of
        self._read = read
        self._free_strings = free_strings

    @cached_property
    def _symbols(self) -> dict[int, int]:
        specials = self.tokenizer.specials
        return {specials[name]: 256 + index for index, name in enumerate(SPECIALS) if name in specials}

    @cached_property
    def _exact(self) -> Language:
        return self._language_of("exact")

    @cached_property
    def _wide(self) -> Engine:
        return Engine(self._language_of("wide"), self.tokenizer)

    @cached_property
    def _sure(self) -> Engine:
        return Engine(self._language_of("sure"), self.tokenizer)

    @property
    def min_length(self) -> int:
        """Tokens of the shortest member, without the tail."""
        return self._wide.min_length

    @property
    def likely_length(self) -> int:
        """Tokens of a typical member: what to choose a canvas length from."""
        return self.min_length + _FREE_STRING_TOKENS * self._free_strings

    @property
    def automaton(self) -> TokenAutomaton:
        """States, classes and edges that decoding runs on."""
        return self._wide.automaton

    def viterbi(self, logp: torch.Tensor) -> torch.Tensor:
        """The most probable member, int64 [..., L], for log-probabilities or logits [..., L, V].

        Raises `CanvasTooSmall` when no member fits into L, `DecodingError` when the logits exclude all.
        """
        return self._each(logp, lambda engine, logits: engine.best(logits), repeats=1)

    def sample(self, logp: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        """A member, int64 [..., L], drawn with probability proportional to exp Σ logp [..., L, V]."""

        def draw(engine: Engine, logits: Logits) -> Ints:
            uniform = torch.rand((len(logits), 3), generator=generator, dtype=torch.float64).numpy()
            return engine.draw(logits, uniform)

        return self._each(logp, draw, repeats=_DRAWS)

    def marginals(self, logp: torch.Tensor) -> Marginals:
        """The distribution of each position's token over all members that fit; `logp` [L, V].

        A long `maxLength` and the order of free keys are not taken into account here.
        """
        return self._wide.marginals(_as_array(logp))

    def pinned(self, length: int) -> torch.Tensor:
        """Int64 [L]: the only token that any member has at a position, or -1 where there is a choice."""
        return torch.from_numpy(self._wide.pinned(length))

    def contains(self, tokens: Sequence[int] | torch.Tensor) -> bool:
        """Whether `tokens`, without `<eos>` and `<pad>` at the end, are a member."""
        try:
            self.parse(tokens)
        except DecodingError:
            return False
        return True

    def parse(self, tokens: Sequence[int] | torch.Tensor) -> Value:
        """The value of a member: plain Python, or a `ToolCall`; `DecodingError` for other tokens."""
        text = self._text(tokens)
        if not self._exact.contains(text):
            raise DecodingError("the tokens are not a member of the grammar")
        return self._read(text)

    def _text(self, tokens: Sequence[int] | torch.Tensor) -> list[int]:
        ids = [int(token) for token in tokens]
        specials = self.tokenizer.specials
        while ids and ids[-1] == specials.get("<pad>"):
            ids.pop()
        if ids and ids[-1] == specials.get("<eos>"):
            ids.pop()
        text: list[int] = []
        for token in ids:
            if token in self._symbols:
                text.append(self._symbols[token])
                continue
            spelled = self.tokenizer.token_bytes[token] if 0 <= token < self.tokenizer.vocab_size else None
            if not spelled:
                raise DecodingError(f"token {token} cannot stand in a member")
            text += spelled
        return text

    def _each(
        self,
        logp: torch.Tensor,
        decode: Callable[[Engine, Logits], Ints],
        repeats: int,
    ) -> torch.Tensor:
        """Decodes each [L, V] of a batch on the wide language, and again on the sure one if it must be."""
        arrays = _as_array(logp)
        rows = arrays.reshape(-1, *arrays.shape[-2:])
        out = np.zeros(rows.shape[:2], dtype=np.int64)
        for index, logits in enumerate(rows):
            for _ in range(repeats):
                out[index] = decode(self._wide, logits)
                if self.contains(out[index]):
                    break
            else:
                out[index] = decode(self._sure, logits)
        return torch.from_numpy(out.reshape(arrays.shape[:-1])).to(logp.device)


@dataclass(frozen=True)
class Marginals:
    """Constrained distributions of the tokens at each of L positions."""

    entropy: torch.Tensor
    """Float32 [L], nats: the entropy of the position's token given that the whole is a member."""
    log_z: float
    """Log of the total weight of all members that fit."""
    _weights: ClassWeights
    _chances: Floats
    _engine: Engine

    @cached_property
    def argmax(self) -> torch.Tensor:
        """Int64 [L]: the most probable token of each position (together they need not be a member)."""
        return torch.from_numpy(self._engine.tokens_of(self._weights.values, self._best.argmax(axis=1)))

    @cached_property
    def max_logp(self) -> torch.Tensor:
        """Float32 [L]: the log-probability of `argmax`."""
        return torch.from_numpy(self._best.max(axis=1)).float()

    @property
    def forced(self) -> torch.Tensor:
        """Bool [L]: positions whose token is certain (probability above 1 - 1e-6)."""
        return self.max_logp > -1e-6

    @cached_property
    def _best(self) -> Floats:
        """The log-probability of the best token of each class, [L, classes]."""
        return self._shift + self._engine.classes.tops(self._weights.values)

    @cached_property
    def _shift(self) -> Floats:
        """What to add to a token's logit for its log-probability, by class; -inf where it cannot stand."""
        possible = np.isfinite(self._chances) & np.isfinite(self._weights.total)
        return np.subtract(self._chances, self._weights.total, out=np.full_like(self._chances, -np.inf), where=possible)

    def token_logp(self) -> torch.Tensor:
        """Float32 [L, V]: log-probabilities, -inf for tokens that no member has there."""
        classes, values = self._engine.classes, self._weights.values
        full = np.full((len(values), self._engine.automaton.class_of.size), -np.inf, dtype=np.float32)
        full[:, classes.tokens] = values + np.take(self._shift.astype(np.float32), classes.group_of, axis=1)
        return torch.from_numpy(full)


class Engine:
    """One language with a vocabulary: automaton, classes and lattice."""

    def __init__(self, language: Language, tokenizer: Tokenizer) -> None:
        tail = repeat(word((PAD,))) if "<pad>" in tokenizer.specials else word("")
        if "<eos>" in tokenizer.specials:
            tail = optional(join(word((EOS,)), tail))
        vocabulary = Vocabulary.of(tokenizer)
        self.automaton = lift(*byte_table(join(language, tail)), vocabulary)
        self.lattice = Lattice(self.automaton) if len(self.automaton.source) else None
        self.classes = Classes(self.automaton)
        self.min_length = int(self.automaton.distance[0]) if self.automaton.states else -1

    def best(self, logits: Logits) -> Ints:
        lattice = self._lattice(len(logits))
        values = self.classes.gather(logits)
        score, which = lattice.best(self.classes.tops(values))
        _check(score)
        return self.tokens_of(values, which)

    def draw(self, logits: Logits, uniform: Floats) -> Ints:
        lattice = self._lattice(len(logits))
        values = self.classes.gather(logits)
        log_z, classes = lattice.draw(self.classes.weigh(values).total, uniform[:, :2])
        _check(log_z)
        tokens = np.zeros(len(logits), dtype=np.int64)
        for at, which in enumerate(classes):
            members = slice(self.classes.starts[which], self.classes.ends[which])
            weights = values[at, members].astype(np.float64)
            tokens[at] = self.classes.tokens[members][pick(np.exp(weights - weights.max()), uniform[at, 2])]
        return tokens

    def marginals(self, logits: Logits) -> Marginals:
        lattice = self._lattice(len(logits))
        weights = self.classes.weigh(self.classes.gather(logits))
        log_z, chances = lattice.marginals(weights.total)
        _check(log_z)
        chance = np.exp(chances)
        between = np.multiply(chance, chances, out=np.zeros_like(chance), where=chance > 0)
        entropy = (chance * weights.entropy - between).sum(axis=1).clip(min=0.0)
        return Marginals(torch.from_numpy(entropy).float(), log_z, weights, chances, self)

    def tokens_of(self, values: Logits, which: Ints) -> Ints:
        """The best token [L] of one class for each position; `values` are grouped by class."""
        starts, ends = self.classes.starts[which], self.classes.ends[which]
        places = [
            start + values[at, start:end].argmax() for at, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]
        return self.classes.tokens[places]

    def pinned(self, length: int) -> Ints:
        self._lattice(length)
        automaton = self.automaton
        alive = np.zeros(automaton.states, dtype=bool)
        alive[0] = True
        pinned = np.full(length, -1, dtype=np.int64)
        for at in range(length):
            used = alive[automaton.source] & (automaton.distance[automaton.target] <= length - at - 1)
            labels = np.unique(automaton.label[used])
            if len(labels) == 1 and self.classes.sizes[labels[0]] == 1:
                pinned[at] = self.classes.members(int(labels[0]))[0]
            alive = np.zeros(automaton.states, dtype=bool)
            alive[automaton.target[used]] = True
        return pinned

    def _lattice(self, length: int) -> Lattice:
        if self.lattice is None or length < self.min_length:
            raise CanvasTooSmall(f"the shortest member takes {self.min_length} tokens, the canvas has {length}")
        return self.lattice


def compile_schema(schema: Schema, tokenizer: Tokenizer, syntax: SyntaxName = "gemma") -> Grammar:
    """The grammar of the values of a JSON Schema (draft 2020-12).

    `UnsupportedSchema` names what cannot be expressed exactly, and schemas that no value satisfies.
    """
    form = _syntax(syntax)

    def language(mode: Mode) -> Language:
        return SchemaCompiler(schema, form, mode, False).language()

    return _cached(tokenizer, ("schema", syntax, _digest(schema)), language, form.read, [schema])


def compile_calls(
    tools: Mapping[str, Schema], tokenizer: Tokenizer, syntax: SyntaxName = "gemma", allow_text: bool = False
) -> Grammar:
    """The grammar of one call, `<|tool_call>call:NAME{…}<tool_call|>`, of one of `tools` (name → schema).

    A call is *closed*: its objects have only the properties that are declared (unless the schema says
    `additionalProperties`), and integers are written without a point. With `allow_text` a plain text,
    ended by `<turn|>` if the vocabulary has it, is a member too; `parse` gives it as `str`.
    """
    form = _syntax(syntax)
    for name in tools:
        if not name or any(character in name for character in "{}<>|:,\n "):
            raise UnsupportedSchema(f"/{name}", "name", "a tool's name must not have spaces or delimiters")

    def language(mode: Mode) -> Language:
        options = []
        for name, schema in tools.items():
            arguments = SchemaCompiler(schema, form, mode, True).language(f"/{name}", only="object")
            if arguments is NOTHING:
                raise UnsupportedSchema(f"/{name}", "type", "the arguments of a tool are an object")
            options.append(join(word(name), arguments))
        calls = join(word((CALL,)), word("call:"), either(*options), word((CALL_END,)))
        return either(calls, _plain_text(tokenizer)) if allow_text else calls

    def read(text: Sequence[int]) -> Value:
        if text[0] != CALL:
            return bytes(text[: -1 if text[-1] == TURN_END else None]).decode()
        brace = list(text).index(0x7B)
        name = bytes(text[len("call:") + 1 : brace]).decode()
        arguments = form.read(text[brace:-1])
        assert isinstance(arguments, Mapping)
        return ToolCall(name, arguments)

    key = ("calls", syntax, allow_text, _digest(tools))
    return _cached(tokenizer, key, language, read, list(tools.values()))


_grammars: WeakKeyDictionary[Tokenizer, OrderedDict[tuple[object, ...], Grammar]] = WeakKeyDictionary()
_CACHED_GRAMMARS = 64


def _cached(
    tokenizer: Tokenizer,
    key: tuple[object, ...],
    language: Callable[[Mode], Language],
    read: Callable[[Sequence[int]], Value],
    schemas: Sequence[Schema],
) -> Grammar:
    """The grammar under this key, compiled when it is new."""
    known = _grammars.setdefault(tokenizer, OrderedDict())
    if key not in known:
        grammar = Grammar(tokenizer, language, read, max(map(_free_strings, schemas), default=0))
        try:
            empty = grammar.min_length < 0
        except TooLarge as error:
            raise UnsupportedSchema("", "schema", str(error)) from error
        if empty:
            raise UnsupportedSchema("", "schema", "no value that the tokenizer can write satisfies it")
        known[key] = grammar
        while len(known) > _CACHED_GRAMMARS:
            known.popitem(last=False)
    known.move_to_end(key)
    return known[key]


def _digest(schema: object) -> bytes:
    return sha256(json.dumps(schema, sort_keys=True).encode()).digest()


def _free_strings(schema: object) -> int:
    """How many strings of a schema, counted along its properties, are not listed."""
    if not isinstance(schema, Mapping):
        return 0
    if schema.get("type") == "string":
        return 0 if "enum" in schema or "const" in schema else 1
    inner = schema.get("properties", {})
    return sum(map(_free_strings, inner.values())) if isinstance(inner, Mapping) else 0


def _as_array(logp: torch.Tensor) -> Logits:
    array: Logits = logp.detach().to("cpu", torch.float32).numpy()
    return array


def _check(score: float) -> None:
    """The logits must leave something: NaN, +inf or -inf everywhere would otherwise decode to nonsense."""
    if not np.isfinite(score):
        raise DecodingError("the logits are not finite, or exclude every member of the grammar")


def _plain_text(tokenizer: Tokenizer) -> Language:
    text = repeat(characters(EVERY_CHARACTER, "raw"), 1)
    return join(text, optional(word((TURN_END,)))) if "<turn|>" in tokenizer.specials else text


def _syntax(name: str) -> Syntax:
    if name not in SYNTAXES:
        raise ValueError(f"syntax {name!r} is neither 'gemma' nor 'json'")
    return SYNTAXES[name]


@lru_cache(maxsize=1)
def default_tokenizer() -> Tokenizer:
    """The tokenizer of the checkpoint that ships with the package."""
    return Tokenizer.from_folder(Path(__file__).parent.parent / "checkpoints" / "small")
