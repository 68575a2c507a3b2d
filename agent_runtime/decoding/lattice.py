"""Dynamic programming over (position, state): the best path, the sum of all paths, exact draws.

Weights come by token class and position as natural logarithms, [L, classes], finite or -inf. Everything runs backward
first, so that `best` and `draw` can then walk forward and never take a way without an end.

Sums run as products of float64, rescaled along the way, which is four times as fast as logarithms. What then
underflows is less than 1e-300 of the largest sum to or from a state of its position. It is lost for good only
where likely paths run through states that themselves look unlikely from one side; that shows in the products
of both sides, and the same is then done again in log space.

Source: Viterbi (1967); Baum, Petrie, Soules and Weiss (1970), forward-backward.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from agent_runtime.decoding.automaton import Ints, TokenAutomaton, expand
from agent_runtime.decoding.lifting import scramble

Floats = npt.NDArray[np.float64]
_Array = TypeVar("_Array", npt.NDArray[np.float32], npt.NDArray[np.float64])

#: The least weight of all paths, both sides scaled to 1, at which what underflows is below 1e-100 of it.
_TRUSTED = 1e-200
#: Positions between two rescalings; factors of e^-80 each leave a margin.
_RESCALE_EVERY = 4


class Lattice:
    """The transitions of one automaton, arranged for row-wise reductions."""

    def __init__(self, automaton: TokenAutomaton) -> None:
        self.automaton = automaton
        pair = automaton.source * automaton.states + automaton.target
        _, start = np.unique(pair, return_index=True)
        self.source = automaton.source[start]
        self.target = automaton.target[start]
        """[pairs] distinct (source, target), sorted by source."""
        # Pairs with the same classes share one sum: each of a schema's free strings loops on the same 190
        # classes, which are nearly all edges (4,400 become 600 for the built-in tools).
        end = np.append(start[1:], len(pair))
        hashes = np.add.reduceat(scramble(automaton.label.astype(np.uint64)), start)
        _, example, self.set_of_pair = np.unique(hashes, return_index=True, return_inverse=True)
        owner, edge = expand(start[example], end[example] - start[example])
        self.label = automaton.label[edge]
        """The classes of each set, set by set."""
        self.set_start = np.searchsorted(owner, np.arange(len(example)))
        self.set_end = np.append(self.set_start[1:], len(self.label))
        self.pair_by_set = np.argsort(self.set_of_pair, kind="stable")
        self.source_by_set, self.target_by_set = self.source[self.pair_by_set], self.target[self.pair_by_set]
        self.set_pair_start = np.searchsorted(self.set_of_pair[self.pair_by_set], np.arange(len(example)))
        by_label = np.argsort(self.label, kind="stable")
        self.set_by_label = owner[by_label]
        self.label_start = np.searchsorted(self.label[by_label], np.arange(automaton.classes))
        self.set_of_edge = owner
        self.label_of_edge = np.sort(self.label)
        self.first_pair = np.searchsorted(self.source, np.arange(automaton.states + 1))
        # For sums over the pairs that leave, or enter, each state. A state without any gets a pair of weight 0
        # (the extra column behind all pairs), so that one `reduceat` fills the whole row.
        self.leave, self.leave_start = _grouped(self.source, automaton.states)
        self.leave_to = np.append(self.target, 0)[self.leave]
        self.enter, self.enter_start = _grouped(self.target, automaton.states)
        self.enter_from = np.append(self.source, 0)[self.enter]
        self.leave_group = np.repeat(np.arange(automaton.states), np.diff(self.leave_start, append=len(self.leave)))
        self.enter_group = np.repeat(np.arange(automaton.states), np.diff(self.enter_start, append=len(self.enter)))
        self.alive = lru_cache(maxsize=8)(self._alive)
        self.set_of_pair = np.append(self.set_of_pair, len(example))  # the extra pair is in an extra set
        self.leave_set, self.enter_set = self.set_of_pair[self.leave], self.set_of_pair[self.enter]

    def _alive(self, length: int) -> Floats:
        """[L + 1, states]: 1 for states that a path of L steps from the start to an end can be in, else 0."""
        automaton = self.automaton
        alive = np.zeros((length + 1, automaton.states), dtype=bool)
        alive[0, 0] = True
        for at in range(length):
            alive[at + 1, self.target[alive[at, self.source]]] = True
        alive[length] &= automaton.accepting
        for at in reversed(range(length)):
            leads = np.zeros(automaton.states, dtype=bool)
            leads[self.source[alive[at + 1, self.target]]] = True
            alive[at] &= leads
        return alive.astype(np.float64)

    def labels(self, pair: int) -> Ints:
        """The classes that lead along one pair."""
        which = self.set_of_pair[pair]
        return self.label[self.set_start[which] : self.set_end[which]]

    def best(self, tops: npt.NDArray[np.float32]) -> tuple[float, Ints]:
        """The largest sum of weights of any path of L steps, and its classes [L]."""
        length = len(tops)
        steps = self._by_set(np.maximum, tops, -np.inf)
        score = self._ends(length)
        onward = np.take(steps, self.leave_set, axis=1)
        through = np.empty(len(self.leave))
        for at in reversed(range(length)):
            np.take(score[at + 1], self.leave_to, out=through, mode="clip")
            through += onward[at]
            np.maximum.reduceat(through, self.leave_start, out=score[at])
        steps = np.take(steps, self.set_of_pair, axis=1)
        if not np.isfinite(score[0, 0]):
            return float(score[0, 0]), np.zeros(length, dtype=np.int64)
        classes = np.zeros(length, dtype=np.int64)
        state = 0
        for at in range(length):
            first, last = self.first_pair[state], self.first_pair[state + 1]
            pair = first + (steps[at, first:last] + score[at + 1, self.target[first:last]]).argmax()
            labels = self.labels(pair)
            classes[at] = labels[tops[at, labels].argmax()] if len(labels) > 1 else labels[0]
            state = self.target[pair]
        return float(score[0, 0]), classes

    def marginals(self, weights: Floats) -> tuple[float, Floats]:
        """Log of the sum over all paths, and the probability of each class at each position."""
        fast = self._marginals_rescaled(weights)
        return fast if fast is not None else self._marginals_log(weights)

    def draw(self, weights: Floats, uniform: Floats) -> tuple[float, Ints]:
        """Log of the sum over all paths, and the classes [L] of one drawn in proportion to its weight.

        `uniform` [L, 2] in [0, 1).
        """
        fast = self._backward_rescaled(weights)
        if fast is not None:
            _, sets, rest, log_z = fast
            steps = np.take(sets, self.set_of_pair, axis=1)
            classes = self._walk(weights, uniform, steps, rest, np.multiply)
            if classes is not None:
                return log_z, classes
        steps, rest = self._backward_log(weights)
        if not np.isfinite(rest[0, 0]):
            return float(rest[0, 0]), np.zeros(len(weights), dtype=np.int64)
        classes = self._walk(weights, uniform, steps, rest, lambda a, b: _from_log(a + b))
        assert classes is not None
        return float(rest[0, 0]), classes

    def _walk(
        self, weights: Floats, uniform: Floats, steps: Floats, rest: Floats, joined: Callable[..., Floats]
    ) -> Ints | None:
        """One path forward; None when rescaled sums are not wide enough on its way."""
        classes = np.zeros(len(weights), dtype=np.int64)
        state = 0
        for at in range(len(weights)):
            first, last = self.first_pair[state], self.first_pair[state + 1]
            chances = joined(steps[at, first:last], rest[at + 1, self.target[first:last]])
            if not chances.max() > _TRUSTED:
                return None
            pair = first + pick(chances, uniform[at, 0])
            labels = self.labels(pair)
            classes[at] = labels[pick(_from_log(weights[at, labels]), uniform[at, 1])]
            state = self.target[pair]
        return classes

    def _marginals_rescaled(self, weights: Floats) -> tuple[float, Floats] | None:
        backward = self._backward_rescaled(weights)
        if backward is None:
            return None
        chance, sets, rest, log_z = backward
        length = len(weights)
        alive = self.alive(length)
        done = np.zeros_like(rest)
        done[0, 0] = 1.0
        onward = np.take(sets, self.enter_set, axis=1)
        through = np.empty(len(self.enter))
        for at in range(length):
            row = done[at + 1]
            np.take(done[at], self.enter_from, out=through, mode="clip")
            through *= onward[at]
            np.add.reduceat(through, self.enter_start, out=row)
            row *= alive[at + 1]
            if at % _RESCALE_EVERY == 0:
                row /= row.max()
        if not (np.einsum("ls,ls->l", done, rest) > _TRUSTED).all():
            return None
        around = np.take(done[:-1], self.source_by_set, axis=1)
        around *= np.take(rest[1:], self.target_by_set, axis=1)
        around = np.add.reduceat(around, self.set_pair_start, axis=1)
        chance *= np.add.reduceat(np.take(around, self.set_by_label, axis=1), self.label_start, axis=1)
        chance /= chance.sum(axis=1, keepdims=True)
        return log_z, chance

    def _backward_rescaled(self, weights: Floats) -> tuple[Floats, Floats, Floats, float] | None:
        """Chances of classes and of their sets, sums from each state to the end, and the log of the whole.

        [L, classes], [L, sets + 1], [L + 1, states]; each row up to a factor of its own. None when float64 is
        not wide enough.
        """
        top = weights.max(axis=1, keepdims=True)
        if not np.isfinite(top).all():
            return None
        length = len(weights)
        alive = self.alive(length)
        chance = np.exp(weights - top)
        sets = self._by_set(np.add, chance, 0.0)
        rest = np.zeros((length + 1, self.automaton.states))
        rest[length] = self.automaton.accepting * alive[length]
        log_z = float(top.sum())
        onward = np.take(sets, self.leave_set, axis=1)
        through = np.empty(len(self.leave))
        for at in reversed(range(length)):
            row = rest[at]
            np.take(rest[at + 1], self.leave_to, out=through, mode="clip")
            through *= onward[at]
            np.add.reduceat(through, self.leave_start, out=row)
            row *= alive[at]
            if at % _RESCALE_EVERY == 0:
                scale = row.max()
                if not scale > 0:
                    return None
                row /= scale
                log_z += float(np.log(scale))
        if not rest[0, 0] > _TRUSTED:
            return None
        return chance, sets, rest, log_z + float(np.log(rest[0, 0]))

    def _marginals_log(self, weights: Floats) -> tuple[float, Floats]:
        steps, rest = self._backward_log(weights)
        length = len(weights)
        done = np.full((length + 1, self.automaton.states), -np.inf)
        done[0, 0] = 0.0
        for at in range(length):
            through = done[at, self.enter_from] + steps[at, self.enter]
            done[at + 1] = _log_sum(through, self.enter_start, self.enter_group)
        log_z = float(rest[0, 0])
        if not np.isfinite(log_z):
            return log_z, weights
        around = done[:-1, self.source_by_set] + rest[1:, self.target_by_set]
        around = _log_sum(around, self.set_pair_start, self.set_of_pair[self.pair_by_set])
        around = _log_sum(around[:, self.set_by_label], self.label_start, self.label_of_edge)
        return log_z, np.exp(weights + around - log_z)

    def _backward_log(self, weights: Floats) -> tuple[Floats, Floats]:
        """Log-weights of pairs [L, pairs + 1], and of all ways from each state to the end [L + 1, states]."""
        length = len(weights)
        steps = np.full((length, len(self.set_start) + 1), -np.inf)
        steps[:, :-1] = _log_sum(weights[:, self.label], self.set_start, self.set_of_edge)
        steps = steps[:, self.set_of_pair]
        rest = self._ends(length)
        for at in reversed(range(length)):
            through = steps[at, self.leave] + rest[at + 1, self.leave_to]
            rest[at] = _log_sum(through, self.leave_start, self.leave_group)
        return steps, rest

    def _by_set(self, operation: np.ufunc, values: _Array, extra: float) -> _Array:
        """Class values [L, classes] reduced to the sets of classes that pairs have, [L, sets + 1]."""
        result = np.full((len(values), len(self.set_start) + 1), extra, dtype=values.dtype)
        operation.reduceat(np.take(values, self.label, axis=1), self.set_start, axis=1, out=result[:, :-1])
        return result

    def _ends(self, length: int) -> Floats:
        table = np.full((length + 1, self.automaton.states), -np.inf)
        table[length, self.automaton.accepting] = 0.0
        return table


def _grouped(state_of: Ints, states: int) -> tuple[Ints, Ints]:
    """Pairs by their state, and where each state's pairs start; the extra pair where a state has none."""
    missing = np.setdiff1d(np.arange(states), state_of)
    pair = np.append(np.arange(len(state_of)), np.full(len(missing), len(state_of)))
    state = np.append(state_of, missing)
    order = np.argsort(state, kind="stable")
    return pair[order], np.searchsorted(state[order], np.arange(states))


def pick(chances: Floats, uniform: float) -> int:
    """An index drawn in proportion to `chances`, by inversion of one uniform number."""
    if len(chances) == 1:
        return 0
    cumulated = np.cumsum(chances)
    index = int(np.searchsorted(cumulated, uniform * cumulated[-1], side="right"))
    return min(index, int(np.flatnonzero(chances)[-1]))


def _from_log(weights: npt.NDArray[np.floating]) -> Floats:
    chances: Floats = np.exp(weights.astype(np.float64) - weights.max())
    return chances


def _log_sum(values: Floats, starts: Ints, group_of: Ints) -> Floats:
    """log Σ exp over consecutive groups of the last axis; a group of only -inf gives -inf."""
    top = np.maximum.reduceat(values, starts, axis=-1)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return shift + np.log(np.add.reduceat(np.exp(values - shift[..., group_of]), starts, axis=-1))
