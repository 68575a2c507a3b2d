"""Schemas narrowed to the files and lines that exist, also with thousands of them."""

from __future__ import annotations

import time

import pytest
import torch

from agent_runtime.chat import render_call, to_ids
from agent_runtime.decoding import compile_calls, default_tokenizer
from agent_runtime.decoding.narrow import narrow, narrow_parameter
from agent_runtime.tool_definition import builtin_tools

FILES = {"src/a.py": 10, "src/b.py": 3, "README.md": 3}
MANY = [f"src/package_{i % 40}/module_{i}.py" for i in range(5000)]


@pytest.fixture(scope="module")
def tools():
    return {name: tool.parameters for name, tool in builtin_tools().items()}


def narrowed(tools, **limits):
    return compile_calls({name: narrow(schema, **limits) for name, schema in tools.items()}, default_tokenizer())


def allows(grammar, name, **arguments):
    return grammar.contains(to_ids(render_call(name, arguments), default_tokenizer()))


def test_only_paths_that_exist_can_be_said(tools):
    grammar = narrowed(tools, paths=list(FILES))
    assert allows(grammar, "inspect", path="src/a.py")
    assert not allows(grammar, "inspect", path="src/c.py")
    assert not allows(grammar, "patch", path="src/c.py", start=1, end=1, text="")
    assert allows(grammar, "search", pattern="src/c.py"), "other parameters stay free"


def test_lines_lie_inside_their_file(tools):
    grammar = narrowed(tools, lines=FILES)
    assert allows(grammar, "patch", path="src/a.py", start=11, end=10, text="appended")
    assert not allows(grammar, "patch", path="src/a.py", start=12, end=10, text="")
    assert not allows(grammar, "patch", path="src/b.py", start=5, end=3, text="")
    assert not allows(grammar, "inspect", path="README.md", start=1, end=4)


def test_the_longest_file_limits_all_when_there_are_many(tools):
    grammar = narrowed(tools, lines=dict.fromkeys(MANY[:100], 20) | {"long.py": 2000})
    assert allows(grammar, "inspect", path=MANY[0], start=2001, end=2000)
    assert not allows(grammar, "inspect", path=MANY[0], start=2002)


def test_five_thousand_paths_cost_little_and_hold(tools):
    start = time.process_time()
    grammar = narrowed(tools, paths=MANY)
    assert time.process_time() - start < 0.5
    assert grammar.automaton.states < 2000
    assert allows(grammar, "inspect", path=MANY[4999])
    assert not allows(grammar, "inspect", path="src/package_1/module_2.py")
    generator = torch.Generator().manual_seed(0)
    opening = to_ids(render_call("inspect", {"path": "src/package_3/"}), default_tokenizer())[:-4]
    for seed in range(4):
        logits = torch.randn(48, default_tokenizer().vocab_size, generator=generator.manual_seed(seed))
        logits[torch.arange(len(opening)), opening] += 300
        for tokens in (grammar.viterbi(logits), grammar.sample(logits, generator)):
            call = grammar.parse(tokens)
            assert call.name == "inspect"
            assert call.arguments["path"] in MANY
            assert call.arguments["path"].startswith("src/package_3")


def test_narrowing_keeps_tighter_limits_and_the_schema_it_was_given():
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}, "path": {"type": "string"}}}
    tighter = narrow_parameter(schema, "n", [2, 3])
    grammar = compile_calls({"f": tighter}, default_tokenizer())
    assert [n for n in (1, 2, 3) if allows(grammar, "f", n=n)] == [2]
    assert schema["properties"]["n"] == {"enum": [1, 2]}
    assert narrow({"type": "object"}, paths=["a"]) == {"type": "object"}
