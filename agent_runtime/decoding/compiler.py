"""Schemas and tools to grammars, each compiled once."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from agent_runtime.decoding.automaton import TooLarge
from agent_runtime.decoding.call import ToolCall
from agent_runtime.decoding.grammar import Grammar, Value
from agent_runtime.decoding.regular import (
    CALL,
    CALL_END,
    NOTHING,
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
from agent_runtime.errors import UnsupportedSchema

SyntaxName: TypeAlias = Literal["gemma", "json"]


def compile_schema(schema: Schema, tokenizer: Tokenizer, syntax: SyntaxName = "gemma") -> Grammar:
    """The grammar of the values of a JSON Schema (draft 2020-12).

    `UnsupportedSchema` names what cannot be expressed exactly, and schemas that no value satisfies.
    """
    form = _syntax(syntax)

    def language(mode: Mode, decoded: Sequence[str]) -> Language:
        return SchemaCompiler(schema, form, mode, False, decoded).language()

    return _cached(tokenizer, ("schema", syntax, _digest(schema)), language, form.read, [schema])


def compile_calls(
    tools: Mapping[str, Schema],
    tokenizer: Tokenizer,
    syntax: SyntaxName = "gemma",
    allow_text: bool = False,
    most: int = 1,
) -> Grammar:
    """The grammar of one call, `<|tool_call>call:NAME{…}<tool_call|>`, of one of `tools` (name → schema).

    A call is *closed*: its objects have only the properties that are declared (unless the schema says
    `additionalProperties`), and integers are written without a point. With `allow_text` a plain text,
    ended by `<turn|>` if the vocabulary has it, is a member too; `parse` gives it as `str`. With `most`
    above 1 a member is one to `most` calls in a row, and `parse` gives a list of them.
    """
    form = _syntax(syntax)
    for name in tools:
        if not name or any(character in name for character in "{}<>|:,\n "):
            raise UnsupportedSchema(f"/{name}", "name", "a tool's name must not have spaces or delimiters")

    def language(mode: Mode, decoded: Sequence[str]) -> Language:
        options = []
        for name, schema in tools.items():
            arguments = SchemaCompiler(schema, form, mode, True, decoded).language(f"/{name}", only="object")
            if arguments is NOTHING:
                raise UnsupportedSchema(f"/{name}", "type", "the arguments of a tool are an object")
            options.append(join(word(name), arguments))
        call = join(word((CALL,)), word("call:"), either(*options), word((CALL_END,)))
        calls = repeat(call, 1, most)
        return either(calls, _plain_text(tokenizer)) if allow_text else calls

    def read(text: Sequence[int]) -> Value:
        if text[0] != CALL:
            return bytes(text[: -1 if text[-1] == TURN_END else None]).decode()
        ends = [at + 1 for at, symbol in enumerate(text) if symbol == CALL_END]
        calls = [_read_call(text[start:end], form) for start, end in zip([0, *ends], ends, strict=False)]
        return calls[0] if most == 1 else calls

    key = ("calls", syntax, allow_text, most, _digest(tools))
    return _cached(tokenizer, key, language, read, list(tools.values()))


_grammars: WeakKeyDictionary[Tokenizer, OrderedDict[tuple[object, ...], Grammar]] = WeakKeyDictionary()
_CACHED_GRAMMARS = 64


def _cached(
    tokenizer: Tokenizer,
    key: tuple[object, ...],
    language: Callable[[Mode, Sequence[str]], Language],
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
        except RecursionError as error:
            raise UnsupportedSchema("", "schema", "it is nested too deeply") from error
        except UnicodeEncodeError as error:
            raise UnsupportedSchema("", "schema", "it has half a surrogate pair, which is no character") from error
        if empty:
            raise UnsupportedSchema("", "schema", "no value that the tokenizer can write satisfies it")
        known[key] = grammar
        while len(known) > _CACHED_GRAMMARS:
            known.popitem(last=False)
    known.move_to_end(key)
    return known[key]


def _digest(schema: object) -> bytes:
    try:
        return sha256(json.dumps(schema, sort_keys=True).encode()).digest()
    except RecursionError as error:
        raise UnsupportedSchema("", "schema", "it is nested too deeply") from error
    except TypeError as error:
        raise UnsupportedSchema("", "schema", f"it is not JSON: {error}") from error


def _free_strings(schema: object) -> int:
    """How many strings of a schema, counted along its properties, are not listed."""
    if not isinstance(schema, Mapping):
        return 0
    if schema.get("type") == "string":
        return 0 if "enum" in schema or "const" in schema else 1
    inner = schema.get("properties", {})
    return sum(map(_free_strings, inner.values())) if isinstance(inner, Mapping) else 0


def _read_call(text: Sequence[int], form: Syntax) -> ToolCall:
    brace = list(text).index(0x7B)
    arguments = form.read(text[brace:-1])
    assert isinstance(arguments, Mapping)
    return ToolCall(bytes(text[len("call:") + 1 : brace]).decode(), arguments)


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
