"""Languages of objects and arrays, put together from the languages of their keys, values and items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_runtime.decoding.regular import (
    EMPTY,
    EVERY_SYMBOL,
    NOTHING,
    Language,
    both,
    either,
    join,
    optional,
    repeat,
    symbols,
    word,
)
from agent_runtime.decoding.syntax import Syntax
from agent_runtime.decoding.text import between, characters, ranges

_COMMA = word(",")
_FIRST_LETTERS = ("09", "AI", "JS", "TZ", "ai", "js", "tw", "xz")
"""Ascending blocks of first characters, which keep up to eight free keys sorted and distinct."""


@dataclass(frozen=True)
class Property:
    """One known key of an object."""

    value: Language
    required: bool = False


def objects(
    syntax: Syntax,
    known: Mapping[str, Property],
    free: Sequence[tuple[Language, Language]],
    low: int = 0,
    high: int | None = None,
    sure: bool = False,
) -> Language:
    """Objects whose keys are sorted: known ones, and in the gaps between them free ones.

    `free` holds (inside of the key, value) for disjoint sets of keys. `low` and `high` bound the number of
    keys. That free keys are sorted and distinct is not regular and is checked elsewhere; with `sure` the
    result is a smaller language in which they always are.
    """
    names = sorted(known)
    edges: list[str | None] = [None, *names, None]
    gaps = [_gap(syntax, free, edges[i], edges[i + 1]) for i in range(len(names) + 1)]
    if sure:
        gap_limit = max(1, min(low, len(_FIRST_LETTERS))) if not names else 1
    cap = max(1, low) if high is None else high + 1
    memo: dict[tuple[int, int], Language] = {}

    def rest(index: int, count: int) -> Language:
        """From before gap `index`, with `count` keys written (no more than `cap` are told apart)."""
        key = index, count
        if key not in memo:
            memo[key] = _gap_then(index, count)
        return memo[key]

    def _gap_then(index: int, count: int) -> Language:
        if high is not None and count > high:
            return NOTHING
        gap = gaps[index]
        if gap is NOTHING:
            return known_then(index, count)
        if sure:
            options = [known_then(index, count)]
            head = EMPTY
            for number in range(gap_limit):
                entry = gap if gap_limit == 1 else both(gap, _starts_in_block(syntax, number))
                head = join(head, entry if count + number == 0 else join(_COMMA, entry))
                options.append(join(head, known_then(index, min(cap, count + number + 1))))
            return either(*options)
        entry = gap if count == 0 else join(_COMMA, gap)
        if count < cap:
            return either(known_then(index, count), join(entry, rest(index, count + 1)))
        return join(repeat(entry), known_then(index, count))

    def known_then(index: int, count: int) -> Language:
        if high is not None and count > high:
            return NOTHING
        if index == len(names):
            return EMPTY if count >= low else NOTHING
        name = names[index]
        entry = join(syntax.key(name), word(":"), known[name].value)
        if count:
            entry = join(_COMMA, entry)
        here = join(entry, rest(index + 1, min(cap, count + 1)))
        return here if known[name].required else either(here, rest(index + 1, count))

    for index in reversed(range(len(gaps))):  # from the end, so that many properties are no deep recursion
        for count in reversed(range(cap + 1)):
            rest(index, count)
    return join(word("{"), rest(0, 0), word("}"))


def _gap(syntax: Syntax, free: Sequence[tuple[Language, Language]], low: str | None, high: str | None) -> Language:
    """One `key:value` whose key is free and sorts between two known keys."""
    if not free:
        return NOTHING
    window = between(low, high, syntax.spelling)
    return either(
        *(
            join(syntax.keys(both(window, keys) if low is not None or high is not None else keys), word(":"), value)
            for keys, value in free
            if value is not NOTHING
        )
    )


def _starts_in_block(syntax: Syntax, number: int) -> Language:
    """Entries whose key starts with a character of one block."""
    first, last = _FIRST_LETTERS[number][0], _FIRST_LETTERS[number][1]
    opening = word((syntax.delimiter,))
    block = characters(ranges([(ord(first), ord(last))]), syntax.spelling)
    return join(optional(opening), block, repeat(symbols(EVERY_SYMBOL)))


def arrays(prefix: Sequence[Language], rest: Language, low: int = 0, high: int | None = None) -> Language:
    """Arrays of `low` to `high` items: the first ones as in `prefix`, the others in `rest`."""
    tail = EMPTY
    if high is None or high > len(prefix):
        more = None if high is None else high - len(prefix)
        tail = repeat(join(_COMMA, rest), max(0, low - len(prefix)), more)
    for index in reversed(range(len(prefix))):
        if high is not None and index >= high:
            tail = EMPTY
            continue
        item = join(_COMMA, prefix[index], tail)
        tail = item if index < low else optional(item)
    return _bracketed(tail)


def arrays_with(match: Language, other: Language, low: int, high: int | None) -> Language:
    """Arrays in which `low` to `high` items are in `match` and all others in `other` (disjoint)."""
    hit, miss = join(_COMMA, match), repeat(join(_COMMA, other))
    return _bracketed(join(miss, repeat(join(hit, miss), low, high)))


def arrays_of_distinct(values: Sequence[Language], low: int, high: int | None) -> Language:
    """Arrays of `low` to `high` items out of `values`, none of them twice."""
    high = len(values) if high is None else min(high, len(values))
    memo: dict[tuple[int, int], Language] = {}

    def rest(used: int, count: int) -> Language:
        if (used, count) not in memo:
            options = [EMPTY] if count >= low else []
            if count < high:
                options += [
                    join(_COMMA, value, rest(used | 1 << index, count + 1))
                    for index, value in enumerate(values)
                    if not used >> index & 1
                ]
            memo[used, count] = either(*options)
        return memo[used, count]

    return _bracketed(rest(0, 0)) if low <= high else NOTHING


def _bracketed(items: Language) -> Language:
    """`items` are all written with a comma in front; the first comma is dropped."""
    inside = items.after(b",")
    return join(word("["), optional(inside) if items.accepts else inside, word("]"))
