"""Grammars against schemas that others wrote, and against schemas made at random.

Environment: `AGENT_RUNTIME_JSON_SCHEMA_SUITE` names a checkout of JSON-Schema-Test-Suite,
`AGENT_RUNTIME_TOOL_SCHEMAS` a JSON Lines file of tools (`name`, `parameters`);
`AGENT_RUNTIME_FUZZ_SCHEMAS` is how many random schemas to try (25; the long run takes 2,000).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_runtime.chat import render_value, to_ids
from agent_runtime.decoding import UnsupportedSchema, compile_calls, compile_schema, default_tokenizer
from agent_runtime.errors import CanvasTooSmall
from agent_runtime.tool_definition import builtin_tools

SUITE = os.environ.get("AGENT_RUNTIME_JSON_SCHEMA_SUITE")
TOOLS = os.environ.get("AGENT_RUNTIME_TOOL_SCHEMAS")
FUZZ = int(os.environ.get("AGENT_RUNTIME_FUZZ_SCHEMAS", "25"))


def written(value, syntax):
    tokenizer = default_tokenizer()
    if syntax == "gemma":
        return to_ids(render_value(value), tokenizer)
    return tokenizer.encode(json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")))


def invalid(schema, values):
    validator = jsonschema.Draft202012Validator(schema)
    return [value for value in values if not validator.is_valid(value)]


def drawn(grammar, count, generator, length=48):
    length = max(length, grammar.min_length + 4)
    for index in range(count):
        logits = torch.randn(length, grammar.tokenizer.vocab_size, generator=generator) * 3
        yield grammar.parse(grammar.sample(logits, generator) if index % 2 else grammar.viterbi(logits))


@pytest.mark.skipif(SUITE is None, reason="AGENT_RUNTIME_JSON_SCHEMA_SUITE is not set")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("syntax", ["gemma", "json"])
def test_the_official_suite_agrees_wherever_a_schema_compiles(syntax):
    compiled = groups = 0
    wrong = []
    for path in sorted(Path(SUITE or "").glob("tests/draft2020-12/*.json")):
        for group in json.loads(path.read_text()):
            groups += 1
            try:
                grammar = compile_schema(group["schema"], default_tokenizer(), syntax)
            except UnsupportedSchema:
                continue
            compiled += 1
            for case in group["tests"]:
                if grammar.contains(written(case["data"], syntax)) != case["valid"]:
                    wrong.append((path.name, group["description"], case["description"]))
    assert not wrong
    assert compiled / groups >= 0.6, f"{compiled} of {groups}"


@pytest.mark.skipif(TOOLS is None, reason="AGENT_RUNTIME_TOOL_SCHEMAS is not set")
@pytest.mark.timeout(1800)
def test_every_tool_schema_compiles_and_decodes_valid_calls():
    generator = torch.Generator().manual_seed(0)
    for line in Path(TOOLS or "").read_text().splitlines():
        tool = json.loads(line)
        grammar = compile_calls({tool["name"]: tool["parameters"]}, default_tokenizer())
        calls = list(drawn(grammar, 10, generator))
        assert not invalid(tool["parameters"], [call.arguments for call in calls])


def test_calls_of_the_built_in_tools_validate():
    tools = {name: tool.parameters for name, tool in builtin_tools().items()}
    grammar = compile_calls(tools, default_tokenizer())
    seen = set()
    for call in drawn(grammar, 1000, torch.Generator().manual_seed(1)):
        assert not invalid(tools[call.name], [call.arguments])
        seen.add(call.name)
    assert len(seen) > 1


NAMES = st.sampled_from(["a", "b", "key", "x y", "é", "n1"])
SHORT = st.tuples(st.integers(0, 4), st.integers(0, 30))
LEAVES = st.one_of(
    st.just({"type": "null"}),
    st.just({"type": "boolean"}),
    st.builds(
        lambda low, width, multiple: {"type": "integer", "minimum": low, "maximum": low + width, **multiple},
        st.integers(-200, 200),
        st.integers(0, 500),
        st.sampled_from([{}, {}, {"multipleOf": 3}, {"exclusiveMinimum": 0}]),
    ),
    st.builds(
        lambda low, width: {"type": "number", "minimum": low, "exclusiveMaximum": low + width},
        st.integers(-300, 300).map(lambda n: n / 8),
        st.integers(1, 90).map(lambda n: n / 4),
    ),
    SHORT.map(lambda pair: {"type": "string", "minLength": pair[0], "maxLength": sum(pair)}),
    st.sampled_from([{"type": "string"}, {"type": "string", "pattern": "^[a-c]+x?$"}, {"pattern": "b.*d"}, {}]),
    st.builds(
        lambda values: {"enum": values},
        st.lists(st.one_of(st.text(max_size=4), st.integers(-5, 5), st.none(), st.booleans()), min_size=1, max_size=4),
    ),
)


def _objects(inner):
    def build(properties, required, extra, counts):
        names = [name for name in properties if name in required]
        return {"type": "object", "properties": properties, "required": names, **extra, **counts}

    extra = st.one_of(
        st.just({"additionalProperties": False}),
        st.just({}),
        inner.map(lambda schema: {"additionalProperties": schema}),
        inner.map(lambda schema: {"patternProperties": {"^[k-z]": schema}, "additionalProperties": False}),
    )
    counts = st.sampled_from([{}, {}, {"minProperties": 1}, {"maxProperties": 2}])
    return st.builds(build, st.dictionaries(NAMES, inner, max_size=3), st.sets(NAMES), extra, counts)


def _arrays(inner):
    return st.builds(
        lambda item, prefix, low, more: {
            "type": "array",
            "items": item,
            "prefixItems": prefix or [item],
            "minItems": low,
            "maxItems": low + more,
        },
        inner,
        st.lists(inner, max_size=2),
        st.integers(0, 2),
        st.integers(0, 3),
    )


def _logic(inner):
    pair = st.tuples(inner, inner).map(list)
    return st.one_of(
        pair.map(lambda options: {"anyOf": options}),
        pair.map(lambda options: {"oneOf": options}),
        pair.map(lambda options: {"allOf": options}),
        pair.map(lambda options: {"allOf": [options[0], {"not": options[1]}]}),
        st.tuples(inner, inner, inner).map(lambda parts: {"if": parts[0], "then": parts[1], "else": parts[2]}),
    )


SCHEMAS = st.recursive(LEAVES, lambda inner: st.one_of(_objects(inner), _arrays(inner), _logic(inner)), max_leaves=5)


@pytest.mark.timeout(3600)
@settings(max_examples=FUZZ, deadline=None, suppress_health_check=list(HealthCheck), derandomize=FUZZ <= 25)
@given(SCHEMAS, st.sampled_from(["gemma", "json"]), st.integers(0, 2**31))
def test_random_schemas_decode_to_valid_values(schema, syntax, seed):
    try:
        grammar = compile_schema(schema, default_tokenizer(), syntax)
    except UnsupportedSchema:
        return
    generator = torch.Generator().manual_seed(seed)
    try:
        values = list(drawn(grammar, 5, generator, length=32))
    except CanvasTooSmall:
        return
    assert not invalid(schema, values)
    for value in values:
        assert grammar.parse(written(value, syntax)) == value


@pytest.mark.timeout(3600)
@settings(max_examples=FUZZ, deadline=None, suppress_health_check=list(HealthCheck), derandomize=FUZZ <= 25)
@given(SCHEMAS, st.data())
def test_random_values_are_members_exactly_when_they_validate(schema, data):
    try:
        grammar = compile_schema(schema, default_tokenizer(), "json")
    except UnsupportedSchema:
        return
    keys = st.one_of(NAMES, st.text(max_size=2))
    scalars = st.one_of(st.none(), st.booleans(), st.integers(-300, 300), st.integers(-300, 300).map(lambda n: n / 8))
    values = st.recursive(
        st.one_of(scalars, st.text("abcdxé", max_size=4)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
        max_leaves=4,
    )
    for _ in range(8):
        value = data.draw(values)
        assert grammar.contains(written(value, "json")) == (not invalid(schema, [value])), value
