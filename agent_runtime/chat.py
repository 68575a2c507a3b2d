"""How a conversation is written as tokens: Gemma-4's turns, tool calls and tool responses.

A conversation is a list of segments: plain text, which can never become a special token, and
`Special`, which is exactly one. Rendering is append-only by construction: each function returns only
the segments that come next, and nothing that was rendered is ever rendered again.

Source: the chat template that ships with `google/diffusiongemma-26B-A4B-it`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agent_runtime.decoding.tokenizer import Tokenizer

JSON: TypeAlias = "None | bool | int | float | str | Sequence[JSON] | Mapping[str, JSON]"


@dataclass(frozen=True)
class Special:
    """One special token, by name, for example `<|tool_call>`."""

    name: str


Segment: TypeAlias = str | Special
QUOTE = Special('<|"|>')
#: What a key may consist of to stand bare; any other key stands between quote tokens, like a string.
BARE_KEY = r"[A-Za-z0-9_.$@/-]"


def to_ids(segments: Iterable[Segment], tokenizer: Tokenizer) -> list[int]:
    """Token ids of `segments`; adjacent texts are joined first, so that they tokenize as one."""
    ids: list[int] = []
    text = ""
    for segment in segments:
        if isinstance(segment, str):
            text += segment
            continue
        ids += tokenizer.encode(text) if text else []
        text = ""
        ids.append(tokenizer.special(segment.name))
    return ids + (tokenizer.encode(text) if text else [])


def render_value(value: JSON) -> list[Segment]:
    """A value in the tool syntax: raw strings between quote tokens, bare sorted keys, no white space."""
    match value:
        case None:
            return ["null"]
        case bool():
            return ["true" if value else "false"]
        case str():
            return [QUOTE, value, QUOTE]
        case int() | float():
            return [str(value)]
        case Mapping():
            parts: list[Segment] = ["{"]
            for index, key in enumerate(sorted(value)):
                name: list[Segment] = [key] if re.fullmatch(f"{BARE_KEY}+", key) else [QUOTE, key, QUOTE]
                parts += ["," if index else "", *name, ":", *render_value(value[key])]
            return [*parts, "}"]
        case _:
            parts = ["["]
            for index, item in enumerate(value):
                parts += [",", *render_value(item)] if index else render_value(item)
            return [*parts, "]"]


def render_call(name: str, arguments: Mapping[str, JSON]) -> list[Segment]:
    """`<|tool_call>call:NAME{…}<tool_call|>`."""
    return [Special("<|tool_call>"), f"call:{name}", *render_value(arguments), Special("<tool_call|>")]


def render_response(name: str, text: str) -> list[Segment]:
    """`<|tool_response>response:NAME{value:<|"|>…<|"|>}<tool_response|>`."""
    return [
        Special("<|tool_response>"),
        f"response:{name}",
        *render_value({"value": text}),
        Special("<tool_response|>"),
    ]


def render_prompt(
    instructions: str, tools: Mapping[str, Mapping[str, JSON]], task: str, *, declare: bool
) -> list[Segment]:
    """The opening of a conversation: system turn with the tools, user turn with the task, model turn begun.

    `tools` maps each name to `{"description": …, "parameters": <JSON Schema>}`. With `declare` each tool is
    declared in full between `<|tool>` and `<tool|>`; without it only the names are listed, which is what the
    small checkpoint was trained on (a full declaration of five tools costs it 600 tokens of prefill).
    """
    segments: list[Segment] = [Special("<bos>"), Special("<|turn>"), "system\n"]
    if declare:
        segments.append(instructions)
        for name in sorted(tools):
            segments += [Special("<|tool>"), f"declaration:{name}", *render_value(tools[name])]
            segments.append(Special("<tool|>"))
    else:
        segments.append("tools: " + " ".join(tools))
    segments += [Special("<turn|>"), "\n", Special("<|turn>"), "user\n", task, Special("<turn|>"), "\n"]
    return [*segments, Special("<|turn>"), "model\n"]
