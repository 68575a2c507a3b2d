"""Languages of text: sets of Unicode characters as strict UTF-8, or as the inside of a JSON string.

`Spelling` says how a character is written; everything about strings is built from it, so that a
pattern, a length or a list of values holds for the value, whatever the syntax around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from agent_runtime.decoding.regular import EMPTY, NOTHING, Language, either, join, repeat, symbols, word

#: Inclusive ranges of code points, ascending and disjoint.
Ranges: TypeAlias = tuple[tuple[int, int], ...]
#: Every Unicode character; surrogates are not characters.
EVERY_CHARACTER: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
#: "raw": the characters themselves. "json": inside a JSON string, as `json.dumps(ensure_ascii=False)` does.
Spelling: TypeAlias = Literal["raw", "json"]

_JSON_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 0x08: "\\b", 0x0C: "\\f", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}


def ranges(pieces: Iterable[tuple[int, int]]) -> Ranges:
    """Inclusive ranges in order, merged, without surrogates."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pieces):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        elif low <= high:
            merged.append((low, high))
    return _intersect(merged, EVERY_CHARACTER)


def invert(characters: Ranges) -> Ranges:
    """Every character that is not in `characters`."""
    edges = [-1, *(edge for low, high in characters for edge in (low, high)), 0x110000]
    gaps = [(edges[i] + 1, edges[i + 1] - 1) for i in range(0, len(edges), 2)]
    return _intersect([gap for gap in gaps if gap[0] <= gap[1]], EVERY_CHARACTER)


def _intersect(left: Sequence[tuple[int, int]], right: Sequence[tuple[int, int]]) -> Ranges:
    pieces = [(max(a, c), min(b, d)) for a, b in left for c, d in right]
    return tuple(sorted((low, high) for low, high in pieces if low <= high))


@lru_cache(maxsize=4096)
def characters(which: Ranges, spelling: Spelling) -> Language:
    """One character out of `which`."""
    if spelling == "raw":
        return _utf8(which)
    escaped = [code for code in (*range(0x20), 0x22, 0x5C) if any(a <= code <= b for a, b in which)]
    plain = _intersect(which, ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x10FFFF)))
    return either(_utf8(plain), *(word(_escape(code)) for code in escaped))


def literal(text: str, spelling: Spelling) -> Language:
    """Exactly this text."""
    return word(spelled(text, spelling))


def spelled(text: str, spelling: Spelling) -> str:
    """`text` as it stands inside a string."""
    return "".join(map(_json_character, text)) if spelling == "json" else text


def literals(texts: Iterable[str], spelling: Spelling) -> Language:
    """Any of these texts, as the smallest acyclic automaton."""
    words = [spelled(text, spelling).encode() for text in texts]
    return _trie(sorted(set(words)), 0)


def anything(spelling: Spelling) -> Language:
    """Any text, also the empty one."""
    return repeat(characters(EVERY_CHARACTER, spelling))


def between(low: str | None, high: str | None, spelling: Spelling) -> Language:
    """Every text that sorts (by code point) strictly between `low` and `high`; None is no bound."""
    if low is None and high is None:
        return anything(spelling)
    if low is None:
        return _below(high or "", spelling)
    if high is None:
        return _above(low, spelling)
    shared = 0
    while shared < min(len(low), len(high)) and low[shared] == high[shared]:
        shared += 1
    if shared == len(high):
        return NOTHING
    prefix = literal(high[:shared], spelling)
    if shared == len(low):  # high continues low
        rest = _below(high[shared:], spelling, allow_empty=False)
        return join(prefix, rest)
    first, last = ord(low[shared]), ord(high[shared])
    middle = characters(ranges([(first + 1, last - 1)]), spelling)
    return join(
        prefix,
        either(
            join(literal(low[shared], spelling), _above(low[shared + 1 :], spelling)),
            join(middle, anything(spelling)),
            join(literal(high[shared], spelling), _below(high[shared + 1 :], spelling)),
        ),
    )


def _above(low: str, spelling: Spelling) -> Language:
    """Every text after `low`."""
    result = join(characters(EVERY_CHARACTER, spelling), anything(spelling))
    for character in reversed(low):
        later = characters(ranges([(ord(character) + 1, 0x10FFFF)]), spelling)
        result = either(join(later, anything(spelling)), join(literal(character, spelling), result))
    return result


def _below(high: str, spelling: Spelling, allow_empty: bool = True) -> Language:
    """Every text before `high`."""
    result = NOTHING
    for index in reversed(range(len(high))):
        earlier = characters(ranges([(0, ord(high[index]) - 1)]), spelling)
        here = either(join(earlier, anything(spelling)), join(literal(high[index], spelling), result))
        result = either(here, EMPTY) if index or allow_empty else here
    return result


def _json_character(character: str) -> str:
    code = ord(character)
    return _escape(code) if code < 0x20 or code in _JSON_ESCAPES else character


def _escape(code: int) -> str:
    return _JSON_ESCAPES.get(code, f"\\u{code:04x}")


def _trie(words: Sequence[bytes], depth: int) -> Language:
    """The sorted, distinct `words` from byte `depth` on; equal rests are one object by interning."""
    if len(words) == 1:
        return word(words[0][depth:])
    options: list[Language] = []
    start = 0
    if words and len(words[0]) == depth:
        options.append(EMPTY)
        start = 1
    while start < len(words):
        byte = words[start][depth]
        stop = start
        while stop < len(words) and words[stop][depth] == byte:
            stop += 1
        shared = depth + 1
        while stop - start > 1 and all(
            len(words[i]) > shared and words[i][shared] == words[start][shared] for i in (start, stop - 1)
        ):
            shared += 1  # sorted: what the first and the last share, all share
        options.append(join(word(words[start][depth:shared]), _trie(words[start:stop], shared)))
        start = stop
    return either(*options)


def _utf8(which: Ranges) -> Language:
    return either(*(_utf8_range(low, high) for low, high in which))


def _utf8_range(low: int, high: int) -> Language:
    """One character of a range: split where the encoded length changes, then byte by byte."""
    for limit in (0x7F, 0x7FF, 0xFFFF):
        if low <= limit < high:
            return either(_utf8_range(low, limit), _utf8_range(limit + 1, high))
    return _byte_ranges(chr(low).encode(), chr(high).encode())


def _byte_ranges(low: bytes, high: bytes) -> Language:
    """Byte strings of one length from `low` to `high`, the bytes behind the first running 80–BF."""
    if len(low) == 1:
        return symbols(_span(low[0], high[0]))
    if low[0] == high[0]:
        return join(word(low[:1]), _byte_ranges(low[1:], high[1:]))
    rest = len(low) - 1
    first, last = b"\x80" * rest, b"\xbf" * rest
    options: list[Language] = []
    start, stop = low[0], high[0]
    if low[1:] != first:
        options.append(join(word(low[:1]), _byte_ranges(low[1:], last)))
        start += 1
    if high[1:] != last:
        options.append(join(word(high[:1]), _byte_ranges(first, high[1:])))
        stop -= 1
    if start <= stop:
        options.append(join(symbols(_span(start, stop)), _byte_ranges(first, last)))
    return either(*options)


def _span(low: int, high: int) -> int:
    return (1 << (high + 1)) - (1 << low)
