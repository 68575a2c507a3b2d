"""What a schema file compiles to, and examples of it: the matter of `agent-runtime schema`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from agent_runtime.chat import JSON
from agent_runtime.errors import UnsupportedSchema, UsageError


@dataclass(frozen=True)
class SchemaCheck:
    """The outcome for one schema: the size of its grammar, or the refusal."""

    file: str
    ok: bool
    states: int = 0
    classes: int = 0
    shortest: int = 0
    """Tokens of the shortest value."""
    pointer: str = ""
    keyword: str = ""
    reason: str = ""

    def __str__(self) -> str:
        if self.ok:
            return (
                f"{self.file}: ok, {self.states} states, {self.classes} token classes, shortest {self.shortest} tokens"
            )
        return f"{self.file}: refused, {self.keyword!r} at {self.pointer or '/'}: {self.reason}"


def read_schema(path: Path) -> Any:
    """The schema in a file; `UsageError` when it cannot be read or is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error


def check(path: Path, syntax: Literal["gemma", "json"] = "gemma") -> SchemaCheck:
    """Compile the schema of a file with the shipped tokenizer."""
    from agent_runtime.decoding.compiler import compile_schema, default_tokenizer

    try:
        grammar = compile_schema(read_schema(path), default_tokenizer(), syntax)
    except UnsupportedSchema as refusal:
        return SchemaCheck(str(path), False, pointer=refusal.pointer, keyword=refusal.keyword, reason=refusal.reason)
    automaton = grammar.automaton
    return SchemaCheck(str(path), True, automaton.states, automaton.classes, grammar.min_length)


def sample(path: Path, count: int, seed: int = 0, length: int = 64) -> Iterator[JSON]:
    """`count` valid values, drawn from random logits on a canvas of at least `length` tokens."""
    import torch

    from agent_runtime.decoding.compiler import compile_schema, default_tokenizer

    grammar = compile_schema(read_schema(path), default_tokenizer(), "gemma")
    generator = torch.Generator().manual_seed(seed)
    shape = max(length, grammar.min_length + 1), grammar.tokenizer.vocab_size
    for _ in range(count):
        value = grammar.parse(grammar.sample(3 * torch.randn(shape, generator=generator), generator))
        yield cast(JSON, value)  # a schema's grammar has no calls
