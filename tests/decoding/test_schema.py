"""What schemas compile to: validity by construction, refusals by name, and the faults C1 to C10."""

from __future__ import annotations

import contextlib
import json
import random
import time

import jsonschema
import pytest
import torch

from agent_runtime.chat import render_call, render_value, to_ids
from agent_runtime.decoding import ToolCall, UnsupportedSchema, compile_calls, compile_schema, default_tokenizer
from agent_runtime.errors import DecodingError


@pytest.fixture(scope="module")
def tokenizer():
    return default_tokenizer()


def accepts(schema, value, syntax="json"):
    """Whether the grammar has the value, written as `json.dumps` or the chat template writes it."""
    tokenizer = default_tokenizer()
    grammar = compile_schema(schema, tokenizer, syntax)
    if syntax == "json":
        tokens = tokenizer.encode(json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")))
    else:
        tokens = to_ids(render_value(value), tokenizer)
    member = grammar.contains(tokens)
    if member:
        assert grammar.parse(tokens) == value
    return member


def draw(grammar, count, length=64, seed=0, scale=3.0):
    """`count` values from random logits, every other one the most probable and a draw."""
    generator = torch.Generator().manual_seed(seed)
    values = []
    for index in range(count):
        logits = torch.randn(length, grammar.tokenizer.vocab_size, generator=generator) * scale
        tokens = grammar.sample(logits, generator) if index % 2 else grammar.viterbi(logits)
        values.append(grammar.parse(tokens))
    return values


def check(schema, count=6, **options):
    """Values drawn from the grammar of `schema` validate, in both syntaxes."""
    for syntax in ("gemma", "json"):
        grammar = compile_schema(schema, default_tokenizer(), syntax)
        for value in draw(grammar, count, **options):
            jsonschema.validate(value, schema, jsonschema.Draft202012Validator)


TEXT = {"type": "string"}
VALID = {
    "bounds": {"type": "integer", "minimum": -17, "exclusiveMaximum": 1234},
    "decimals": {"type": "number", "exclusiveMinimum": 0.1, "maximum": 12.75},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": 1},
    "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
    "tuple": {"type": "array", "prefixItems": [TEXT, {"type": "null"}], "items": False, "minItems": 1},
    "pattern and length": {"type": "string", "pattern": "^[a-z]+-[0-9]{2,}$", "maxLength": 9},
    "unanchored": {"type": "string", "pattern": "x.y", "minLength": 5, "maxLength": 40},
    "nested": {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"enum": [1, "é", None]}}, "required": ["b"]}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 3},
    "key patterns": {
        "type": "object",
        "patternProperties": {"^n_": {"type": "number"}},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "union": {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 3}]},
    "exactly one": {"oneOf": [{"type": "integer", "minimum": 2}, {"type": "integer", "multipleOf": 2}]},
    "conditional": {
        "type": "object",
        "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"}},
        "required": ["kind"],
        "additionalProperties": False,
        "if": {"properties": {"kind": {"const": "a"}}},
        "then": {"required": ["n"]},
        "else": {"properties": {"n": False}},
    },
    "recursive": {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                "required": ["v"],
                "additionalProperties": False,
            }
        },
    },
    "distinct": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 2},
    "contains": {"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 5}, "maxContains": 2},
    "not": {"type": "string", "not": {"pattern": "e"}, "maxLength": 8},
    "anything": {},
    "dates": {"type": "string", "format": "date"},
}


@pytest.mark.parametrize("name", VALID)
def test_whatever_is_decoded_validates(name):
    check(VALID[name])


FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "uri", "hostname"]


@pytest.mark.parametrize("name", FORMATS)
def test_formats_admit_valid_values_only(name):
    schema = {"type": "string", "format": name}
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    grammar = compile_schema(schema, default_tokenizer(), "gemma")
    for value in draw(grammar, 10):
        jsonschema.validate(value, schema, jsonschema.Draft202012Validator, format_checker=checker)


REFUSED = [
    ({"type": "number", "multipleOf": 0.1}, "", "multipleOf"),
    ({"properties": {"a": {"items": {"uniqueItems": True, "type": "array"}}}}, "/properties/a/items", "uniqueItems"),
    ({"anyOf": [{"type": "null"}, {"pattern": "(a)\\1", "type": "string"}]}, "/anyOf/1", "pattern"),
    ({"allOf": [{"unevaluatedProperties": False}]}, "/allOf/0", "unevaluatedProperties"),
    ({"$ref": "#"}, "", "$ref"),
    ({"$ref": "https://example.org/schema"}, "", "$ref"),
    ({"required": None}, "", "required"),
    ({"type": "text"}, "", "type"),
    ({"properties": []}, "", "properties"),
    ({"minLength": -1}, "", "minLength"),
    ({"maximum": float("inf")}, "", "maximum"),
    ({"type": "string", "format": "regex"}, "", "format"),
    ({"enum": []}, "", "schema"),
    ({"$schema": "https://example.org/dialect"}, "", "$schema"),
]


@pytest.mark.parametrize(("schema", "pointer", "keyword"), REFUSED, ids=[str(case[0]) for case in REFUSED])
def test_what_cannot_be_held_is_refused_by_name(schema, pointer, keyword, tokenizer):
    with pytest.raises(UnsupportedSchema) as refusal:
        compile_schema(schema, tokenizer, "json")
    assert (refusal.value.pointer, refusal.value.keyword) == (pointer, keyword)


KEYWORDS = (
    "type enum const properties required additionalProperties patternProperties propertyNames minProperties "
    "maxProperties dependentRequired dependentSchemas dependencies items prefixItems additionalItems minItems maxItems "
    "contains minContains maxContains uniqueItems minLength maxLength pattern format minimum maximum exclusiveMinimum "
    "exclusiveMaximum multipleOf allOf anyOf oneOf not if then else $ref $defs $id $anchor $schema nullable title"
)
ODD_VALUES = (
    None, True, False, 0, -1, 2.0, 2.5, 1e400, float("nan"), 10**30, "", "a", "object", "date", "(", "[a", "#",
    "#/$defs/a", "\ud800", [], ["a"], [1], [{}], [[]], {}, {"a": 1}, {"a": {}}, {"a": ["b"]}, {"(": {}},
)  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_malformed_schemas_compile_or_are_refused_but_never_crash(seed, tokenizer):
    rng = random.Random(seed)
    for _ in range(60):
        schema = {keyword: rng.choice(ODD_VALUES) for keyword in rng.sample(KEYWORDS.split(), rng.randint(1, 4))}
        if rng.random() < 0.5:
            schema["type"] = rng.choice(["array", "object", "string", "number"])
        with contextlib.suppress(UnsupportedSchema):
            compile_schema(schema, tokenizer, "json")


def test_hundreds_of_properties_and_deep_nesting(tokenizer):
    schema = {
        "type": "object",
        "properties": {f"p{n}": {"const": 1} for n in range(520)},
        "additionalProperties": False,
    }
    assert accepts(schema, {"p0": 1, "p519": 1})
    assert not accepts(schema, {"p520": 1})
    nested = {"type": "integer"}
    for _ in range(2000):
        nested = {"allOf": [nested]}
    with pytest.raises(UnsupportedSchema, match="deeply"):
        compile_schema(nested, tokenizer)


def test_c2_a_pattern_and_a_length_both_hold():
    schema = {"type": "string", "pattern": "^a*$", "maxLength": 3}
    assert accepts(schema, "aaa")
    assert not accepts(schema, "aaaa")
    assert not accepts(schema, "aab")
    assert accepts({"type": "string", "maxLength": 2}, "💩💩"), "a length counts code points"


def test_c3_a_long_maximum_costs_nothing_and_holds(tokenizer):
    start = time.process_time()
    long = compile_schema({"type": "string", "maxLength": 100_000}, tokenizer, "gemma")
    assert time.process_time() - start < 1
    free = compile_schema({"type": "string"}, tokenizer, "gemma")
    assert long.automaton.states == free.automaton.states
    limited = compile_schema({"type": "string", "maxLength": 60, "minLength": 2}, tokenizer, "gemma")
    assert limited.automaton.states < 30
    assert all(2 <= len(value) <= 60 for value in draw(limited, 6, length=64))


@pytest.mark.parametrize("syntax", ["gemma", "json"])
def test_c4_any_text_can_be_said(syntax):
    for text in ("", 'say "no"', "back\\slash", "a\nb\tc\r\x00\x1f\x7f", "😀 é 中", "<|tool_call> {a:1,} [", "\u2028"):
        assert accepts(TEXT, text, syntax)
        assert accepts({"enum": [text]}, text, syntax)


def test_c5_optional_lists_unions_and_null():
    optional = {"anyOf": [{"type": "array", "items": TEXT}, {"type": "null"}]}
    assert accepts(optional, ["a"])
    assert accepts(optional, None)
    assert not accepts(optional, [1])
    assert accepts({"type": ["string", "null"]}, None)
    assert accepts({"type": "string", "nullable": True}, None)


def test_c6_empty_keywords():
    assert accepts({"type": "object", "properties": {}}, {"a": 1})
    assert not accepts({"type": "object", "properties": {}, "additionalProperties": False}, {"a": 1})
    assert accepts({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1, "b": 2})
    assert not accepts({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "b"})


def test_c7_sixty_tools(tokenizer):
    schema = {"type": "object", "properties": {"path": TEXT, "n": {"type": "integer"}}, "required": ["path"]}
    grammar = compile_calls({f"tool_{number}": schema for number in range(60)}, tokenizer)
    calls = draw(grammar, 4)
    assert all(isinstance(call, ToolCall) and call.name.startswith("tool_") for call in calls)
    assert grammar.automaton.classes < 400


def test_c8_a_turn_without_a_call(tokenizer):
    schema = {"type": "object", "properties": {}}
    grammar = compile_calls({"f": schema}, tokenizer, allow_text=True)
    text = tokenizer.encode("No call is needed.")
    assert grammar.parse([*text, tokenizer.special("<turn|>"), tokenizer.special("<eos>")]) == "No call is needed."
    assert grammar.parse([*text, *[tokenizer.special("<pad>")] * 3]) == "No call is needed."
    assert grammar.parse(to_ids(render_call("f", {}), tokenizer)) == ToolCall("f", {})
    assert not compile_calls({"f": schema}, tokenizer).contains(text)


def test_c9_white_space_stands_in_strings_only(tokenizer):
    logits = torch.zeros(64, tokenizer.vocab_size)
    blank = [i for i, spelled in enumerate(tokenizer.token_bytes) if spelled and not spelled.strip()]
    logits[:, blank] = 50.0
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}
    grammar = compile_calls({"f": schema}, tokenizer)
    call = "".join(grammar.tokenizer.decode([token]) for token in grammar.viterbi(logits).tolist())
    assert not any(character.isspace() for character in call)


@pytest.mark.parametrize("syntax", ["gemma", "json"])
def test_c10_keys_that_need_escaping(syntax):
    keys = ['a"b', "a:b", "a b", "", "{", "é", "\n", "plain"]
    schema = {"type": "object", "properties": {key: {"const": 1} for key in keys}, "additionalProperties": False}
    assert accepts(schema, dict.fromkeys(keys, 1), syntax)
    assert all(accepts(schema, {key: 1}, syntax) for key in keys)
    assert not accepts(schema, {"other": 1}, syntax)


def test_utf8_is_strict(tokenizer):
    grammar = compile_schema(TEXT, tokenizer, "gemma")
    quote = tokenizer.special('<|"|>')
    single = {spelled[0]: i for i, spelled in enumerate(tokenizer.token_bytes) if spelled and len(spelled) == 1}
    for good in ("é", "中", "😀", "\U0010ffff", "\ud7ff"):
        assert grammar.contains([quote, *(single[byte] for byte in good.encode()), quote])
    for bad in (b"\x80", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8", b"\xff"):
        assert not grammar.contains([quote, *(single[byte] for byte in bad), quote])
    logits = torch.randn(32, tokenizer.vocab_size, generator=torch.Generator().manual_seed(0))
    logits[:, [single[byte] for byte in range(0x80, 0x100)]] += 20
    assert isinstance(grammar.parse(grammar.viterbi(logits)), str)


def test_numbers_have_one_form():
    schema = {"type": "number"}
    tokenizer = default_tokenizer()
    grammar = compile_schema(schema, tokenizer, "json")
    for text in ("1", "-1", "0", "1.0", "0.5", "-0.25", "12345678901234567890", "0.30000000000000004"):
        assert grammar.contains(tokenizer.encode(text)), text
    for text in ("01", "+1", "1.", ".5", "1.50", "-0", "1e5", "0.3000000000000000444", "NaN", "0x1"):
        assert not grammar.contains(tokenizer.encode(text)), text


def test_free_keys_are_sorted_and_distinct():
    schema = {"type": "object", "properties": {"m": {}}, "additionalProperties": {"type": "integer"}}
    tokenizer = default_tokenizer()
    grammar = compile_schema(schema, tokenizer, "json")
    assert grammar.contains(tokenizer.encode('{"a":1,"b":1,"m":[],"z":2}'))
    for text in ('{"b":1,"a":1}', '{"a":1,"a":2}', '{"z":1,"m":0}'):
        assert not grammar.contains(tokenizer.encode(text)), text


def test_a_call_has_declared_properties_only(tokenizer):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    grammar = compile_calls({"f": schema}, tokenizer)
    assert grammar.contains(to_ids(render_call("f", {"a": 1}), tokenizer))
    assert not grammar.contains(to_ids(render_call("f", {"a": 1, "b": 1}), tokenizer))
    assert not grammar.contains(to_ids(render_call("f", {"a": 1.0}), tokenizer))
    merged = {"allOf": [schema, {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}]}
    assert compile_calls({"f": merged}, tokenizer).contains(to_ids(render_call("f", {"a": 1, "b": 2}), tokenizer))


def test_several_calls_on_one_canvas(tokenizer):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    grammar = compile_calls({"f": schema, "g": schema}, tokenizer, most=3)
    two = [*to_ids(render_call("f", {"a": 1}), tokenizer), *to_ids(render_call("g", {"a": 2}), tokenizer)]
    assert grammar.parse(two) == [ToolCall("f", {"a": 1}), ToolCall("g", {"a": 2})]
    assert not grammar.contains(two * 2)
    for calls in draw(grammar, 4):
        assert 1 <= len(calls) <= 3


def test_a_long_call_goes_on_on_a_next_canvas(tokenizer):
    schema = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 30}}, "required": ["text"]}
    grammar = compile_calls({"f": schema}, tokenizer)
    whole = to_ids(render_call("f", {"text": "first, second and third"}), tokenizer)
    for cut in range(1, len(whole)):
        rest = grammar.continued(whole[:cut])
        assert rest.parse(whole[cut:]) == ToolCall("f", {"text": "first, second and third"})
    assert rest.min_length == 1
    opening = whole.index(tokenizer.special('<|"|>')) + 1
    begun = grammar.continued(whole[: opening + 3])
    logits = torch.randn(32, tokenizer.vocab_size, generator=torch.Generator().manual_seed(3))
    call = begun.parse(begun.viterbi(logits))
    assert call.arguments["text"].startswith(tokenizer.decode(whole[opening : opening + 3]))
    assert len(call.arguments["text"]) <= 30
    with pytest.raises(DecodingError, match="begins"):
        grammar.continued(tokenizer.encode("x"))


def test_parse_explains_what_is_no_member(tokenizer):
    grammar = compile_schema({"type": "integer"}, tokenizer, "json")
    with pytest.raises(DecodingError, match="not a member"):
        grammar.parse(tokenizer.encode("x"))
    with pytest.raises(DecodingError, match="cannot stand"):
        grammar.parse([tokenizer.special("<|turn>")])


def test_equal_schemas_compile_once(tokenizer):
    assert compile_schema({"type": "integer"}, tokenizer) is compile_schema({"type": "integer"}, tokenizer)
