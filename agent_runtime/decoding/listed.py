"""Long lists of texts, such as the 5,000 paths of a repository, without a state for each character.

Membership in a list is a walk down a trie that is never built (`listed`). Decoding runs on an `outline`: the
top of the trie, and below it any text of the list's characters. What it decodes is checked against the list;
when that fails, decoding repeats on the texts of the list that are `nearest`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

from agent_runtime.decoding.regular import Language, either, join, repeat, trie
from agent_runtime.decoding.text import Spelling, characters, literal, ranges, spelled

#: Lists up to this length are decoded from directly.
DIRECT = 32
#: How many texts the repeated decoding chooses from.
NEAREST = 32
#: How many characters of the trie an outline spells out.
_OUTLINE = 160


def listed(texts: Sequence[str], spelling: Spelling) -> Language:
    """Any of `texts`, explored only where it is asked for."""
    return trie(tuple(sorted({spelled(text, spelling).encode() for text in texts})))


@lru_cache(maxsize=32)
def outline(texts: tuple[str, ...], spelling: Spelling) -> Language:
    """A language that has all of `texts`, and others that begin like them."""
    words = sorted(set(texts))
    codes = set(map(ord, set("".join(words))))
    rest = repeat(characters(ranges((code, code) for code in codes), spelling))
    spelled_out = 0
    # Ranges of texts with a common beginning, the largest first: (-texts, first, last, length of beginning).
    waiting = [(-len(words), 0, len(words), 0)]
    options: list[Language] = []
    while waiting:
        _, first, last, length = heapq.heappop(waiting)
        children = _children(words, first, last, length)
        cost = sum(longer - length for _, _, longer in children)
        if spelled_out + cost > _OUTLINE:
            options.append(join(literal(words[first][:length], spelling), rest))
            continue
        spelled_out += cost
        if len(words[first]) == length:
            options.append(literal(words[first], spelling))
        for begin, end, longer in children:
            if end - begin == 1:
                options.append(literal(words[begin], spelling))
            else:
                heapq.heappush(waiting, (begin - end, begin, end, longer))
    return either(*options)


def nearest(texts: Sequence[str], decoded: Sequence[str]) -> list[str]:
    """The texts that look most like one of those decoded: by their beginning and their pairs of characters."""
    wanted = [(text, _pairs(text)) for text in decoded]

    def likeness(text: str) -> float:
        pairs = _pairs(text)
        return max(
            (
                _shared(text, other) / (1 + len(other)) + len(pairs & others) / (1 + len(pairs | others))
                for other, others in wanted
            ),
            default=0.0,
        )

    return heapq.nlargest(NEAREST, sorted(set(texts)), key=likeness)


def _pairs(text: str) -> set[str]:
    return {text[at : at + 2] for at in range(len(text))}


def _children(words: Sequence[str], first: int, last: int, length: int) -> list[tuple[int, int, int]]:
    """The ranges of texts that go on alike behind `length` characters: (first, last, length of beginning)."""
    found: list[tuple[int, int, int]] = []
    begin = first + (len(words[first]) == length)
    while begin < last:
        end = bisect_right(words, words[begin][length], begin, last, key=lambda text: text[length])
        found.append((begin, end, _shared(words[begin], words[end - 1])))
        begin = end
    return found


def _shared(left: str, right: str) -> int:
    """The length of the common beginning."""
    pairs = zip(left, right, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))
