"""Automata as arrays: the reachable states of a language by symbol, and states and edges by token class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_runtime.decoding.regular import SYMBOLS, Language
from agent_runtime.errors import AgentRuntimeError

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
#: More states than this are refused: a table of 60,000 states takes 60 MB and seconds to build.
STATE_LIMIT = 60_000


class TooLarge(AgentRuntimeError):
    """A language needs more states than the limit."""

    exit_code = 2


def byte_table(language: Language, limit: int = STATE_LIMIT) -> tuple[npt.NDArray[np.int32], Bools]:
    """Transitions [states, symbols] (-1: none) and accepting states; state 0 is the start.

    Every state reaches an accepting one; without any member there are no states. `TooLarge` beyond `limit`.
    """
    numbers = {language: 0}
    states = [language]
    sources: list[int] = []
    targets: list[int] = []
    masks: list[int] = []
    for state in states:  # grows while it is walked
        source = numbers[state]
        for mask, target in state.moves:
            if target not in numbers:
                if len(states) >= limit:
                    raise TooLarge(f"the schema needs more than {limit} states: make it smaller")
                numbers[target] = len(states)
                states.append(target)
            sources.append(source)
            targets.append(numbers[target])
            masks.append(mask)
    accepting = np.array([state.accepts for state in states], dtype=bool)
    source_of, target_of = np.array(sources, dtype=np.int64), np.array(targets, dtype=np.int64)
    alive = reaching(source_of, target_of, accepting)
    renumbered = np.where(alive, np.cumsum(alive) - 1, -1)
    table = np.full((int(alive.sum()), SYMBOLS), -1, dtype=np.int32)
    if not alive[0]:
        return table[:0], accepting[:0]
    columns: dict[int, npt.NDArray[np.int64]] = {}
    for source, target, mask in zip(renumbered[source_of], renumbered[target_of], masks, strict=True):
        if source >= 0 and target >= 0:
            if mask not in columns:
                columns[mask] = _bits(mask)
            table[source, columns[mask]] = target
    return table, accepting[alive]


def _bits(mask: int) -> npt.NDArray[np.int64]:
    raw = np.frombuffer(mask.to_bytes((SYMBOLS + 7) // 8, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(raw, bitorder="little"))


def reaching(source: Ints, target: Ints, goal: Bools) -> Bools:
    """States from which a goal state can be reached along the edges."""
    order = np.argsort(target, kind="stable")
    source, starts = source[order], np.searchsorted(target[order], np.arange(len(goal) + 1))
    alive = goal.copy()
    frontier = np.flatnonzero(goal)
    while len(frontier):
        _, edges = expand(starts[frontier], starts[frontier + 1] - starts[frontier])
        found = np.unique(source[edges])
        frontier = found[~alive[found]]
        alive[frontier] = True
    return alive


def expand(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """For ranges `start … start + count`: which range each element belongs to, and the elements."""
    owner = np.repeat(np.arange(len(counts)), counts)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, starts[owner] + offset


@dataclass(frozen=True)
class TokenAutomaton:
    """States, classes of tokens, and the edges between states that the classes label.

    Edges are sorted by (source, target). All integer arrays are int64.
    """

    accepting: Bools
    """[states]; state 0 is the start."""
    class_of: Ints
    """[vocabulary]: the class of each token; `classes` for tokens that lead nowhere."""
    classes: int
    source: Ints
    target: Ints
    label: Ints
    distance: Ints
    """[states]: the fewest tokens to an accepting state."""

    @property
    def states(self) -> int:
        return len(self.accepting)
