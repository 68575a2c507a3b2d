"""From symbols to tokens: every tokenization of every member of a byte automaton, and nothing else.

The token trie and the byte automaton are walked together from every state at once, so that only tokens that
survive cost anything. Tokens that lead from every state to the same next state form one class; the work per
denoising step then depends on the classes (about 200 for the tools of an agent, also at a vocabulary of
262,144), not on the vocabulary.

Nearly all of the walk is inside free strings, where almost every token survives, and all free strings of a
schema look alike: the walk is done in one of them and holds for its copies (at 262,144 tokens and 23 free
strings this takes 0.3 s instead of 3 s).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from agent_runtime.decoding.automaton import Bools, Ints, TokenAutomaton, expand, reaching
from agent_runtime.decoding.vocabulary import Vocabulary

Table = npt.NDArray[np.int32]
#: The largest strongly connected part that is looked for copies; a free string has 8 states (UTF-8).
_PART_LIMIT = 16


def lift(table: Table, accepting: Bools, vocabulary: Vocabulary) -> TokenAutomaton:
    """The token automaton of a byte automaton; without any member it has no states."""
    bundle, node, start, source, target = _walk(table, vocabulary)
    keep = _useful(source, target, accepting)
    accepting = accepting[keep]
    renumbered = np.where(keep, np.cumsum(keep) - 1, -1)
    source, target = renumbered[source], renumbered[target]
    kept = (source >= 0) & (target >= 0)
    # Tokens with equal edges get equal sums of pseudo-random numbers, one for each (source, target).
    states = max(1, len(accepting))
    mixed = np.where(kept, scramble((source * states + target).astype(np.uint64)), np.uint64(0))
    running = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(mixed)])
    sums = np.zeros(len(vocabulary.is_token), dtype=np.uint64)
    np.add.at(sums, node, (running[start[1:]] - running[start[:-1]])[bundle])
    nodes = np.flatnonzero(sums)
    _, example, label = np.unique(sums[nodes], return_index=True, return_inverse=True)
    classes = len(example)
    label_of_node = np.full(len(sums) + 1, classes, dtype=np.int64)
    label_of_node[nodes] = label
    class_of = label_of_node[vocabulary.node_of]  # -1, no node, reads the extra entry at the end
    is_example = np.zeros(len(sums), dtype=bool)
    is_example[nodes[example]] = True
    chosen = np.flatnonzero(is_example[node])
    owner, pair = expand(start[bundle[chosen]], start[bundle[chosen] + 1] - start[bundle[chosen]])
    owner, pair = owner[kept[pair]], pair[kept[pair]]
    source, target, edge = source[pair], target[pair], label_of_node[node[chosen[owner]]]
    order = np.lexsort((edge, target, source))
    source, target, edge = source[order], target[order], edge[order]
    return TokenAutomaton(accepting, class_of, classes, source, target, edge, _distance(source, target, accepting))


def _walk(table: Table, vocabulary: Vocabulary) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Which tokens lead where: (bundle, token node) pairs, and the bundles of (source, target).

    Returns bundle and node of each pair, the start of each bundle, and the sources and targets, bundle by
    bundle.
    """
    copies = _copies(table) if vocabulary.size > 1 << 14 else []
    copied = np.zeros(len(table), dtype=bool)
    for places in copies:
        copied[places[:, 0]] = True
    alone = np.flatnonzero(~copied)
    states, nodes, reached = alone, np.zeros(len(alone), dtype=np.int64), alone
    keys: list[Ints] = []
    ends: list[Ints] = []
    starts, sources, targets = [np.zeros(1, dtype=np.int64)], [], []
    pairs: list[tuple[Ints, Ints]] = []
    bundles = 0
    leaving = [(states, nodes, reached)]
    for places in copies:  # [copies, part states]: the first column is where the walk starts
        inside = np.full(len(table), -1, dtype=np.int64)
        inside[places[0]] = np.arange(places.shape[1])
        found_place, found_node = [], []
        place, node = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        while len(node):
            owner, node = _children(node, vocabulary)
            symbol, place = vocabulary.symbol[node], place[owner]
            after = table[places[0][place], symbol]
            stays = (after >= 0) & (inside[after] >= 0)
            gone = (after >= 0) & ~stays
            if gone.any():  # from here on each copy goes its own way
                count = int(gone.sum())
                begun = np.repeat(places[:, 0], count)
                arrived = table[places[:, place[gone]], symbol[gone]].astype(np.int64).ravel()
                leaving.append((begun, np.tile(node[gone], len(places)), arrived))
            node, place = node[stays], inside[after[stays]]
            token = vocabulary.is_token[node]
            found_place.append(place[token])
            found_node.append(node[token])
        where = np.concatenate(found_place)
        pairs.append((bundles + where, np.concatenate(found_node)))
        for column in range(places.shape[1]):
            sources.append(places[:, 0])
            targets.append(places[:, column])
            starts.append(starts[-1][-1:] + len(places))
        bundles += places.shape[1]
    for states, nodes, reached in leaving:
        ends_here = vocabulary.is_token[nodes]
        keys.append(states[ends_here] * len(table) + reached[ends_here])
        ends.append(nodes[ends_here])
        while len(nodes):
            owner, nodes = _children(nodes, vocabulary)
            reached = table[reached[owner], vocabulary.symbol[nodes]].astype(np.int64)
            alive = reached >= 0
            states, nodes, reached = states[owner[alive]], nodes[alive], reached[alive]
            token = vocabulary.is_token[nodes]
            keys.append(states[token] * len(table) + reached[token])
            ends.append(nodes[token])
    unique, which = np.unique(np.concatenate(keys), return_inverse=True)
    pairs.append((bundles + which, np.concatenate(ends)))
    starts.append(starts[-1][-1] + 1 + np.arange(len(unique)))
    sources.append(unique // max(1, len(table)))
    targets.append(unique % max(1, len(table)))
    bundle, node = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return bundle, node, np.concatenate(starts), np.concatenate(sources), np.concatenate(targets)


def _children(nodes: Ints, vocabulary: Vocabulary) -> tuple[Ints, Ints]:
    """For trie nodes, their children, each with the index of its parent in `nodes`."""
    first = vocabulary.first_child[nodes]
    owner, edge = expand(first, vocabulary.first_child[nodes + 1] - first)
    return owner, vocabulary.child[edge]


def _copies(table: Table) -> list[Ints]:
    """Starting places in parts of the automaton that look alike from inside: [copies, states of the part]."""
    alike: dict[bytes, list[Ints]] = {}
    part_of = np.full(len(table), -1, dtype=np.int64)
    for number, part in enumerate(_parts(table)):
        part_of[part] = number
    for state in range(len(table)):
        if part_of[state] < 0:
            continue
        places = [state]
        rows = []
        for place in places:  # grows while it is walked
            row = table[place].astype(np.int64)
            stays = (row >= 0) & (part_of[row] == part_of[state])
            for after in row[stays]:
                if after not in places:
                    places.append(int(after))
            local = np.where(row >= 0, -2, -1)
            local[stays] = [places.index(after) for after in row[stays]]
            rows.append(local.astype(np.int16))
        alike.setdefault(np.stack(rows).tobytes(), []).append(np.array(places))
    return [np.stack(group) for group in alike.values() if len(group) > 1]


def _parts(table: Table) -> Iterator[list[int]]:
    """Small strongly connected parts that have a cycle (Tarjan 1972, without recursion)."""
    successors = [np.unique(row[row >= 0]).tolist() for row in table]
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_states: list[int] = []
    is_open: set[int] = set()
    for root in range(len(table)):
        work = [(root, 0)] if root not in order else []
        while work:
            state, at = work.pop()
            if at == 0:
                order[state] = low[state] = len(order)
                open_states.append(state)
                is_open.add(state)
            for position in range(at, len(successors[state])):
                after = successors[state][position]
                if after not in order:
                    work += [(state, position + 1), (after, 0)]
                    break
                if after in is_open:
                    low[state] = min(low[state], order[after])
            else:
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[state])
                if low[state] == order[state]:
                    part = open_states[open_states.index(state) :]
                    del open_states[-len(part) :]
                    is_open.difference_update(part)
                    if len(part) <= _PART_LIMIT and (len(part) > 1 or state in successors[state]):
                        yield part


def _useful(source: Ints, target: Ints, accepting: Bools) -> Bools:
    """States on a way of tokens from the start to an accepting state."""
    if not len(accepting):
        return accepting
    start = np.zeros(len(accepting), dtype=bool)
    start[0] = True
    useful = reaching(source, target, accepting) & reaching(target, source, start)
    return useful if useful[0] else np.zeros_like(useful)


def _distance(source: Ints, target: Ints, goal: Bools) -> Ints:
    """The fewest edges from each state to a goal."""
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
