"""From a typed function to a tool: schema, description, validation, and the built-in ones."""

from __future__ import annotations

from typing import Annotated, Literal

import anyio
import jsonschema
import pytest
from pydantic import BaseModel, Field

from agent_runtime.errors import UsageError
from agent_runtime.tool_definition import Tool, builtin_tools, tool

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Point(BaseModel):
    x: int
    title: str


@tool
def weigh(
    name: str, kind: Literal["a", "b"] = "a", count: Annotated[int, Field(ge=1)] = 1, note: str | None = None
) -> dict[str, object]:
    """Weigh something.

    More about it.

    Args:
        name: What to weigh,
            in full.
        count: How often.

    Returns:
        Its weight.
    """
    return {"name": name, "kind": kind, "count": count, "note": note}


@tool(reads_only=True)
async def wait(seconds: float) -> str:
    """Wait."""
    await anyio.sleep(seconds)
    return "waited"


def test_signature_and_docstring_become_schema_and_description():
    assert weigh.name == "weigh"
    assert weigh.description == "Weigh something.\n\nMore about it."
    assert weigh.where == "host"
    assert not weigh.reads_only
    assert wait.reads_only
    assert weigh.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "description": "What to weigh, in full."},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "count": {"type": "integer", "minimum": 1, "description": "How often."},
            "note": {"type": "string"},
        },
    }


def test_nested_models_keep_properties_that_are_called_title():
    @tool
    def draw(points: list[Point]) -> None:
        """Draw."""

    assert draw.parameters["$defs"]["Point"]["properties"] == {"x": {"type": "integer"}, "title": {"type": "string"}}
    jsonschema.validate({"points": [{"x": 1, "title": "t"}]}, draw.parameters)


async def test_arguments_are_validated_before_the_call():
    fine = await weigh.invoke({"name": "n", "count": 2}, 5)
    assert fine.text == '{"name":"n","kind":"a","count":2,"note":null}\n'
    assert fine.data == {"result": {"name": "n", "kind": "a", "count": 2, "note": None}}
    for arguments, part in [
        ({}, "name: Field required"),
        ({"name": "n", "count": 0}, "count: Input should be greater"),
        ({"name": "n", "colour": "red"}, "colour: Extra inputs are not permitted"),
    ]:
        refused = await weigh.invoke(arguments, 5)
        assert not refused.ok
        assert refused.error.kind == "invalid_arguments"
        assert part in refused.text


async def test_what_a_function_raises_becomes_its_result():
    @tool
    def broken() -> None:
        """Break."""
        raise ValueError("no luck")

    result = await broken.invoke({}, 5)
    assert not result.ok
    assert result.text == "broken failed: ValueError: no luck\n"


async def test_a_deadline_ends_the_call():
    result = await wait.invoke({"seconds": 30}, 0.05)
    assert result.timed_out
    assert result.text == "wait did not end within 0.05 s\n"
    assert (await wait.invoke({"seconds": 0}, 5)).text == "waited\n"


def test_signatures_without_a_schema_are_refused_with_a_remedy():
    def unannotated(path):
        """Do."""

    def starred(*paths: str) -> None:
        """Do."""

    def odd(stream: anyio.Event) -> None:
        """Do."""

    def undocumented(path: str) -> None:
        pass

    for function, part in [
        (unannotated, "path has no annotation; write `path: str`"),
        (starred, r"\*paths has no schema"),
        (odd, "type has no JSON Schema"),
        (undocumented, "no docstring"),
    ]:
        with pytest.raises(UsageError, match=part):
            tool(function)


def test_the_built_in_tools_have_compact_closed_schemas():
    tools = builtin_tools()
    assert list(tools) == ["search", "inspect", "patch", "run_tests", "finish"]
    assert "shell" in builtin_tools(shell=True)
    for one in tools.values():
        jsonschema.Draft202012Validator.check_schema(one.parameters)
        for schema in one.parameters.get("anyOf", [one.parameters]):
            assert schema["additionalProperties"] is False
            assert "workspace" not in schema["properties"]
            assert "title" not in schema
        assert one.description
    assert tools["search"].reads_only
    assert not tools["patch"].reads_only
    assert [one.name for one in tools.values() if one.where == "host"] == ["finish"]


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ({"path": "a", "start": 1, "end": 0, "text": ""}, True),
        ({"path": "a", "old": "x", "text": "y"}, True),
        ({"path": "a", "start": 1, "text": ""}, False),
        ({"path": "a", "old": "x", "start": 1, "end": 1, "text": "y"}, False),
        ({"path": "a", "text": "y"}, False),
    ],
)
def test_patch_takes_lines_or_a_block(arguments, fits):
    validator = jsonschema.Draft202012Validator(builtin_tools()["patch"].parameters)
    assert validator.is_valid(arguments) == fits


async def test_finish_takes_a_status():
    finish = builtin_tools()["finish"]
    assert (await finish.invoke({"status": "solved"}, 5)).text == "solved\n"
    assert not (await finish.invoke({"status": "perhaps"}, 5)).ok


@tool(where="sandbox")
def longest_line(path: str) -> int:
    """Length of the longest line of a file."""
    from pathlib import Path

    return max(len(line) for line in Path(path).read_text().splitlines())


def test_a_tool_of_the_sandbox_is_sent_as_its_source_text():
    name, arguments = longest_line.sandbox_call({"path": "a.txt"})
    assert name == "user_tool"
    assert arguments["name"] == "longest_line"
    assert arguments["arguments"] == {"path": "a.txt"}
    assert arguments["source"].startswith("from __future__ import annotations\ndef longest_line(path: str) -> int:\n")
    assert builtin_tools()["inspect"].sandbox_call({"path": "."}) == ("inspect", {"path": "."})


def test_what_cannot_be_sent_is_refused():
    factor = 3

    def closure(x: int) -> int:
        """Multiply."""
        return x * factor

    with pytest.raises(UsageError, match="cannot be sent into the sandbox"):
        tool(where="sandbox")(closure)


def test_tools_are_values():
    assert isinstance(weigh, Tool)
    assert weigh.function.__name__ == "weigh"
