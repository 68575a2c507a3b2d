"""Languages of the inside of strings: lengths in code points, patterns, formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_runtime.decoding.formats import FORMATS, UNSUPPORTED_FORMATS
from agent_runtime.decoding.pattern import PatternError, contains_match
from agent_runtime.decoding.regular import Language, both, repeat
from agent_runtime.decoding.text import EVERY_CHARACTER, Spelling, characters
from agent_runtime.errors import UnsupportedSchema

#: A `maxLength` up to this is counted in the automaton; each count is a copy of the string's states.
#: A greater one is checked afterwards: `maxLength: 200` alone would make 40 states 4,000 and the work
#: per denoising step 20 times as much, for a limit that a call hardly ever meets.
COUNTED_LENGTH = 12
#: The longest string that is counted when the check failed and decoding repeats.
SURE_LENGTH = 512


def string_content(
    schema: Mapping[str, Any], pointer: str, low: int, high: int | None, spelling: Spelling, mode: str
) -> Language | None:
    """The inside of the strings that `schema` allows; None when it allows every string."""
    if high is not None and high < low:
        high = low - 1  # no length at all
    elif mode == "wide" and high is not None and high > max(COUNTED_LENGTH, low):
        high = None
    elif mode == "sure" and high is not None:
        high = min(high, max(low, SURE_LENGTH))
    pieces: list[Language] = []
    pattern = schema.get("pattern")
    if pattern is not None or "pattern" in schema:
        if not isinstance(pattern, str):
            raise UnsupportedSchema(pointer, "pattern", f"{pattern!r} is not a string")
        try:
            pieces.append(contains_match(pattern, spelling))
        except PatternError as error:
            raise UnsupportedSchema(pointer, "pattern", str(error)) from error
    if "format" in schema and "type" in schema:
        # Without a type the standard calls a format a mere annotation, and so do we.
        name = str(schema["format"])
        if name in UNSUPPORTED_FORMATS:
            raise UnsupportedSchema(pointer, "format", f"{name!r} is not expressed as a grammar")
        if name in FORMATS:
            pieces.append(contains_match(f"^(?:{FORMATS[name]})$", spelling))
    if low or high is not None:
        pieces.append(repeat(characters(EVERY_CHARACTER, spelling), low, high))
    result: Language | None = None
    for piece in pieces:
        result = piece if result is None else both(result, piece)
    return result
