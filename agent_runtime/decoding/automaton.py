"""From a language of bytes to an automaton of tokens: every tokenization of every member, nothing else.

1. `byte_table`: the reachable states of a language and their transitions by symbol.
2. `Vocabulary`: a tokenizer's tokens as a trie of symbols, built once per tokenizer.
3. `TokenAutomaton`: for each state the tokens that lead somewhere, found by walking trie and table
   together, so that only what survives costs anything. Tokens that lead from every state to the same
   next state form one class; the work per denoising step then depends on the classes (about 200 for a
   tool's schema, also at a vocabulary of 262,144), not on the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from agent_runtime.decoding.regular import SPECIALS, SYMBOLS, Language
from agent_runtime.decoding.tokenizer import Tokenizer
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
    alive = _reaching(source_of, target_of, accepting)
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


def _reaching(source: Ints, target: Ints, goal: Bools) -> Bools:
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


class Vocabulary:
    """The tokens of a tokenizer as a trie: node 0 is the root, edges are symbols."""

    _known: ClassVar[WeakKeyDictionary[Tokenizer, Vocabulary]] = WeakKeyDictionary()

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.size = tokenizer.vocab_size
        words: list[bytes | None] = tokenizer.token_bytes
        specials = {tokenizer.specials[name]: 256 + i for i, name in enumerate(SPECIALS) if name in tokenizer.specials}
        tokens = np.array([index for index, word in enumerate(words) if word], dtype=np.int64)
        spellings = [word for word in words if word]
        lengths = np.array([len(word) for word in spellings], dtype=np.int64)
        letters = np.frombuffer(b"".join(spellings), dtype=np.uint8).astype(np.int64)
        begins = np.cumsum(lengths) - lengths
        at = np.zeros(len(tokens), dtype=np.int64)  # the node that each token has come to
        parents, symbols = [np.array([-1])], [np.array([-1])]
        count = 1
        self.node_of = np.full(self.size, -1, dtype=np.int64)
        for depth in range(int(lengths.max(initial=0))):
            going = np.flatnonzero(lengths > depth)
            key = at[going] * SYMBOLS + letters[begins[going] + depth]
            unique, node = np.unique(key, return_inverse=True)
            at[going] = count + node
            parents.append(unique // SYMBOLS)
            symbols.append(unique % SYMBOLS)
            count += len(unique)
        self.node_of[tokens] = at
        for token, symbol in specials.items():
            parents.append(np.array([0]))
            symbols.append(np.array([symbol]))
            self.node_of[token] = count
            count += 1
        parent = np.concatenate(parents)
        self.child = np.argsort(parent, kind="stable")[1:]
        """Nodes ordered by parent, the root left out."""
        self.symbol = np.concatenate(symbols)
        self.first_child = np.searchsorted(parent[self.child], np.arange(count + 1))
        self.is_token = np.zeros(count, dtype=bool)
        self.is_token[self.node_of[self.node_of >= 0]] = True

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        """The vocabulary of `tokenizer`, made at most once."""
        if tokenizer not in cls._known:
            cls._known[tokenizer] = cls(tokenizer)
        return cls._known[tokenizer]


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


def lift(table: npt.NDArray[np.int32], accepting: Bools, vocabulary: Vocabulary) -> TokenAutomaton:
    """The token automaton of a byte automaton."""
    source, node, target = _walk(table, vocabulary)
    keep = _useful(source, target, accepting)
    kept_edges = keep[source] & keep[target]
    renumbered = np.cumsum(keep) - 1
    source, node, target = renumbered[source[kept_edges]], node[kept_edges], renumbered[target[kept_edges]]
    accepting = accepting[keep]
    # Tokens with equal edges get equal sums of pseudo-random numbers, one for each (source, target).
    states = max(1, len(accepting))
    mixed = scramble((source * states + target).astype(np.uint64))
    sums = np.zeros(len(vocabulary.is_token), dtype=np.uint64)
    np.add.at(sums, node, mixed)
    nodes = np.unique(node)
    _, example, label_of = np.unique(sums[nodes], return_index=True, return_inverse=True)
    classes = len(example)
    label_of_node = np.full(len(vocabulary.is_token) + 1, classes, dtype=np.int64)
    label_of_node[nodes] = label_of
    class_of = label_of_node[vocabulary.node_of]  # -1, no node, reads the extra entry at the end
    is_example = np.zeros(len(vocabulary.is_token), dtype=bool)
    is_example[nodes[example]] = True
    chosen = is_example[node]
    source, target, label = source[chosen], target[chosen], label_of_node[node[chosen]]
    order = np.lexsort((label, target, source))
    source, target, label = source[order], target[order], label[order]
    distance = _distance(source, target, accepting)
    return TokenAutomaton(accepting, class_of, classes, source, target, label, distance)


def _walk(table: npt.NDArray[np.int32], vocabulary: Vocabulary) -> tuple[Ints, Ints, Ints]:
    """Every (state, token node, next state), by walking the trie from every state at once."""
    state = np.arange(len(table))
    reached, node = state, np.zeros(len(table), dtype=np.int64)
    found: list[tuple[Ints, Ints, Ints]] = []
    while len(node):
        first = vocabulary.first_child[node]
        owner, edge = expand(first, vocabulary.first_child[node + 1] - first)
        node = vocabulary.child[edge]
        reached = table[reached[owner], vocabulary.symbol[node]].astype(np.int64)
        alive = reached >= 0
        state, node, reached = state[owner[alive]], node[alive], reached[alive]
        ends = vocabulary.is_token[node]
        found.append((state[ends], node[ends], reached[ends]))
    columns = list(zip(*found, strict=True)) or [(), (), ()]
    source, token, target = (np.concatenate([np.zeros(0, dtype=np.int64), *column]) for column in columns)
    return source, token, target


def _useful(source: Ints, target: Ints, accepting: Bools) -> Bools:
    """States on a way of tokens from the start to an accepting state."""
    if not len(accepting):
        return accepting
    start = np.zeros(len(accepting), dtype=bool)
    start[0] = True
    pairs = np.unique(source * len(accepting) + target)
    source, target = pairs // len(accepting), pairs % len(accepting)
    useful = _reaching(source, target, accepting) & _reaching(target, source, start)
    return useful if useful[0] else np.zeros_like(useful)


def _distance(source: Ints, target: Ints, goal: Bools) -> Ints:
    distance = np.full(len(goal), np.iinfo(np.int64).max // 2)
    distance[goal] = 0
    frontier, steps = goal, 0
    while frontier.any():
        steps += 1
        reach = np.zeros(len(goal), dtype=bool)
        reach[source[frontier[target]]] = True
        frontier = reach & (distance > steps)
        distance[frontier] = steps
    return distance


def scramble(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finalizer: 64 well mixed bits (Steele, Lea and Flood, 2014)."""
    values = (values + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
