"""Regular languages over bytes and special tokens, as expressions with symbolic derivatives.

An expression is a hash-consed `Language`. Its `moves` say, for disjoint sets of symbols, what may follow:
that is a transition function, so an expression *is* a state of a deterministic automaton, boolean
operations (`both`, `without`) cost nothing until they are explored, and a membership test explores
only the states on its path. Equal sub-expressions are the same object, also between two compilations,
so that a grammar that changes a little is rebuilt from what is known.

Source: Brzozowski, "Derivatives of Regular Expressions" (1964); Stanford, Veanes and Bjørner,
"Symbolic Boolean Derivatives" (PLDI 2021).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

#: Special tokens that a grammar may ask for; symbol 256 + index. All others never occur in a member.
SPECIALS = ('<|"|>', "<|tool_call>", "<tool_call|>", "<eos>", "<pad>", "<turn|>")
SYMBOLS = 256 + len(SPECIALS)
QUOTE, CALL, CALL_END, EOS, PAD, TURN_END = range(256, SYMBOLS)

#: A set of symbols as the bits of an integer.
Mask: TypeAlias = int
EVERY_BYTE: Mask = (1 << 256) - 1
EVERY_SYMBOL: Mask = (1 << SYMBOLS) - 1
#: Interned expressions are forgotten beyond this number (about 200 bytes each).
_INTERN_LIMIT = 400_000


class Language:
    """A regular language. Make one with the functions below, never directly."""

    __slots__ = ("_moves", "accepts", "kind", "number", "parts")

    def __init__(self, kind: str, parts: tuple[Any, ...], accepts: bool, number: int) -> None:
        self.kind = kind
        self.parts = parts
        self.accepts = accepts
        """Whether the empty word is a member."""
        self.number = number
        self._moves: tuple[tuple[Mask, Language], ...] | None = None

    def __repr__(self) -> str:
        return f"<Language {self.kind} {self.number}>"

    @property
    def moves(self) -> tuple[tuple[Mask, Language], ...]:
        """What may come first: (symbols, the language of what then follows), the symbol sets disjoint."""
        if self._moves is None:
            self._moves = _derive(self)
        return self._moves

    def after(self, word: Iterable[int]) -> Language:
        """The language of what may follow `word`; `NOTHING` when no member starts with it."""
        state = self
        for symbol in word:
            for mask, target in state.moves:
                if mask >> symbol & 1:
                    state = target
                    break
            else:
                return NOTHING
        return state

    def contains(self, word: Iterable[int]) -> bool:
        """Whether `word` is a member."""
        return self.after(word).accepts


_interned: dict[tuple[object, ...], Language] = {}
_count = 0


def _intern(kind: str, parts: tuple[object, ...], accepts: bool) -> Language:
    global _count
    key = (kind, *parts)
    found = _interned.get(key)
    if found is None:
        if len(_interned) > _INTERN_LIMIT:
            _interned.clear()  # what is alive stays right, it is only no longer shared
        _count += 1
        found = _interned[key] = Language(kind, parts, accepts, _count)
    return found


NOTHING = Language("nothing", (), False, -2)
"""The language without members."""
EMPTY = Language("empty", (), True, -1)
"""The language of the empty word alone."""


def symbols(mask: Mask) -> Language:
    """One symbol out of `mask`."""
    return _intern("symbols", (mask,), False) if mask else NOTHING


def word(text: str | bytes | Sequence[int]) -> Language:
    """Exactly this sequence of symbols; text stands for its UTF-8 bytes."""
    result = EMPTY
    for symbol in reversed(text.encode() if isinstance(text, str) else text):
        result = join(symbols(1 << symbol), result)
    return result


def join(*parts: Language) -> Language:
    """Concatenation."""
    result = EMPTY
    for part in reversed(parts):
        result = _join_two(part, result)
    return result


def _join_two(head: Language, tail: Language) -> Language:
    if head is NOTHING or tail is NOTHING:
        return NOTHING
    if head is EMPTY:
        return tail
    if tail is EMPTY:
        return head
    heads: list[Language] = []
    while head.kind == "join":  # kept leaning to the right; a loop, because literals can be long
        heads.append(head.parts[0])
        head = head.parts[1]
    for first in reversed(heads):
        tail = _intern("join", (head, tail), head.accepts and tail.accepts)
        head = first
    return _intern("join", (head, tail), head.accepts and tail.accepts)


def either(*parts: Language) -> Language:
    """Union."""
    flat: dict[int, Language] = {}
    mask = 0
    for part in parts:
        for option in part.parts if part.kind == "either" else (part,):
            if option.kind == "symbols":
                mask |= option.parts[0]
            elif option is not NOTHING:
                flat[option.number] = option
    if mask:
        single = symbols(mask)
        flat[single.number] = single
    if len(flat) == 1:
        return next(iter(flat.values()))
    if not flat:
        return NOTHING
    if EMPTY.number in flat and any(option.accepts for option in flat.values() if option is not EMPTY):
        del flat[EMPTY.number]
        if len(flat) == 1:
            return next(iter(flat.values()))
    options = tuple(flat[number] for number in sorted(flat))
    return _intern("either", options, any(option.accepts for option in options))


def optional(part: Language) -> Language:
    """`part` or the empty word."""
    return either(part, EMPTY)


def repeat(part: Language, low: int = 0, high: int | None = None) -> Language:
    """`low` to `high` members of `part` in a row; any number when `high` is None."""
    if high is not None and high < low:
        return NOTHING
    if high == 0 or part is EMPTY:
        return EMPTY
    if part is NOTHING:
        return EMPTY if low == 0 else NOTHING
    if low == high == 1:
        return part
    if part.accepts:
        low = 0
    return _intern("repeat", (part, low, high), low == 0)


def both(left: Language, right: Language) -> Language:
    """Intersection."""
    if left is NOTHING or right is NOTHING:
        return NOTHING
    if left is right:
        return left
    if left is EMPTY or right is EMPTY:
        return EMPTY if left.accepts and right.accepts else NOTHING
    if left.kind == "symbols" and right.kind == "symbols":
        return symbols(left.parts[0] & right.parts[0])
    if left.number > right.number:
        left, right = right, left
    return _intern("both", (left, right), left.accepts and right.accepts)


def without(left: Language, right: Language) -> Language:
    """Members of `left` that are not members of `right`."""
    if left is NOTHING or left is right:
        return NOTHING
    if right is NOTHING:
        return left
    return _intern("without", (left, right), left.accepts and not right.accepts)


def before(part: Language, symbol: int) -> Language:
    """The words that become members of `part` when `symbol`, which occurs nowhere else, is added."""
    if part is NOTHING:
        return NOTHING
    return _intern("before", (part, symbol), part.after((symbol,)).accepts)


def residue(modulus: int, remainder: int = 0, allow_empty: bool = False) -> Language:
    """Decimal digits that, put behind a number that leaves `remainder`, make a multiple of `modulus`."""
    return _intern("residue", (modulus, remainder % modulus, allow_empty), remainder == 0 and allow_empty)


def trie(words: tuple[bytes, ...]) -> Language:
    """Any of these words, which are sorted and distinct; only what is asked for is explored."""
    return _trie_from(words, 0, len(words), 0)


def _trie_from(words: tuple[bytes, ...], first: int, last: int, depth: int) -> Language:
    """What follows `depth` symbols in the words from `first` to before `last`, which agree so far."""
    if first == last:
        return NOTHING
    ends = len(words[first]) == depth
    return EMPTY if ends and last - first == 1 else _intern("trie", (_Same(words), first, last, depth), ends)


class _Same:
    """A key that is equal only for the same object: comparing long lists would cost more than they do."""

    __slots__ = ("words",)

    def __init__(self, words: tuple[bytes, ...]) -> None:
        self.words = words

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.words is other.words

    def __hash__(self) -> int:
        return id(self.words)


def _derive(state: Language) -> tuple[tuple[Mask, Language], ...]:
    parts = state.parts
    match state.kind:
        case "symbols":
            return ((parts[0], EMPTY),)
        case "join":
            head, tail = parts
            moves = tuple((mask, _join_two(target, tail)) for mask, target in head.moves)
            return _merge((*moves, *tail.moves)) if head.accepts else moves
        case "either":
            return _merge([move for part in parts for move in part.moves])
        case "repeat":
            part, low, high = parts
            rest = repeat(part, max(0, low - 1), None if high is None else high - 1)
            return _merge([(mask, _join_two(target, rest)) for mask, target in part.moves])
        case "both":
            left, right = parts
            met = [
                (common, both(first, second))
                for mask, first in left.moves
                for other, second in right.moves
                if (common := mask & other)
            ]
            return _gather(met)
        case "without":
            left, right = parts
            kept: list[tuple[Mask, Language]] = []
            for mask, first in left.moves:
                for other, second in right.moves:
                    if common := mask & other:
                        kept.append((common, without(first, second)))
                        mask &= ~common
                if mask:
                    kept.append((mask, first))
            return _gather(kept)
        case "before":
            part, symbol = parts
            moves = part.moves
            return _gather([(mask & ~(1 << symbol), before(target, symbol)) for mask, target in moves])
        case "residue":
            modulus, remainder, _ = parts
            return _gather(
                [
                    (1 << (0x30 + digit), residue(modulus, (10 * remainder + digit) % modulus, True))
                    for digit in range(10)
                ]
            )
        case "trie":
            words, first, last, depth = parts[0].words, *parts[1:]
            first += state.accepts
            found: list[tuple[Mask, Language]] = []
            while first < last:
                byte = words[first][depth]
                # Sorted, and alike up to `depth`: a binary search finds the end of this byte's words.
                end = bisect_right(words, byte, first, last, key=lambda word: word[depth])
                found.append((1 << byte, _trie_from(words, first, end, depth + 1)))
                first = end
            return tuple(found)
        case _:
            return ()


def _gather(moves: Iterable[tuple[Mask, Language]]) -> tuple[tuple[Mask, Language], ...]:
    """Disjoint moves, those with the same target made one."""
    targets: dict[Language, Mask] = {}
    for mask, target in moves:
        if mask and target is not NOTHING:
            targets[target] = targets.get(target, 0) | mask
    return tuple((mask, target) for target, mask in targets.items())


def _merge(moves: Sequence[tuple[Mask, Language]]) -> tuple[tuple[Mask, Language], ...]:
    """Moves made disjoint: where symbol sets overlap, the targets are united."""
    done: list[tuple[Mask, tuple[Language, ...]]] = []
    seen = 0
    for mask, target in moves:
        if not mask & seen:
            done.append((mask, (target,)))
            seen |= mask
            continue
        split: list[tuple[Mask, tuple[Language, ...]]] = []
        rest = mask
        for other, targets in done:
            common = other & rest
            if common:
                if other != common:
                    split.append((other & ~common, targets))
                split.append((common, (*targets, target)))
                rest &= ~common
            else:
                split.append((other, targets))
        if rest:
            split.append((rest, (target,)))
        seen |= mask
        done = split
    return _gather((mask, targets[0] if len(targets) == 1 else either(*targets)) for mask, targets in done)
