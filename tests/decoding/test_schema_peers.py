"""Acceptance compared with llguidance, on the keywords that both support exactly."""

from __future__ import annotations

import json
import random

import llguidance
import pytest

from agent_runtime.decoding import compile_schema, default_tokenizer

LEAVES = [
    {"type": "integer", "minimum": -12, "maximum": 105},
    {"type": "integer", "exclusiveMinimum": 9},
    {"type": "integer", "multipleOf": 3},
    {"type": "number", "minimum": 0.25, "exclusiveMaximum": 7.5},
    {"type": "string", "minLength": 1, "maxLength": 3},
    {"type": "string", "pattern": "^[ab]+c?$"},
    {"enum": ["a", "abc", 3, None, "é\n"]},
    {"type": "boolean"},
    {"const": "a"},
]
VALUES = [
    *[-13, -12, -1, 0, 1, 3, 9, 10, 12, 100, 105, 106, 0.25, 0.2, 7.25, 7.5, 7.75],
    *["", "a", "ab", "abc", "aabc", "c", "é", "é\n", "日本語", "日本語x", True, False, None],
]


def peer_accepts(schema, text):
    """What llguidance says; None when it does not take the schema."""
    grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": False})
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar)
    if matcher.is_error():
        return None
    data = list(text.encode())
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


def schemas_and_values(rng):
    """A schema of one level over random leaves, and a value of its shape."""
    first, second = rng.choice(LEAVES), rng.choice(LEAVES)
    value, other = rng.choice(VALUES), rng.choice(VALUES)
    yield first, value
    low, high = rng.choice([(0, 2), (1, 1), (1, 3)])
    items = (
        [rng.choice(VALUES) for _ in range(rng.randint(0, 3))] if rng.random() < 0.5 else [value] * rng.randint(0, 3)
    )
    yield {"type": "array", "items": first, "minItems": low, "maxItems": high}, items
    required = rng.choice([[], ["a"], ["a", "b"]])
    properties = {"a": first, "b": second}
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    yield schema, rng.choice([{"a": value, "b": other}, {"a": value}, {"b": other}, {}])
    yield {"anyOf": [first, second]}, value


@pytest.mark.parametrize("seed", range(5))
def test_llguidance_accepts_the_same_values(seed):
    rng = random.Random(seed)
    tokenizer = default_tokenizer()
    compared = 0
    for _ in range(30):
        for schema, value in schemas_and_values(rng):
            text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
            theirs = peer_accepts(schema, text)
            if theirs is not None:
                compared += 1
                assert compile_schema(schema, tokenizer, "json").contains(tokenizer.encode(text)) == theirs, (
                    schema,
                    text,
                )
    assert compared > 60
