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

import numpy as np
import numpy.typing as npt

from agent_runtime.decoding.automaton import Bools, Ints, TokenAutomaton, expand
from agent_runtime.decoding.lifting import scramble

Floats = npt.NDArray[np.float64]

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
        self.set_pair_start = np.searchsorted(self.set_of_pair[self.pair_by_set], np.arange(len(example)))
        by_label = np.argsort(self.label, kind="stable")
        self.set_by_label = owner[by_label]
        self.label_start = np.searchsorted(self.label[by_label], np.arange(automaton.classes))
        self.set_of_edge = owner
        self.label_of_edge = np.sort(self.label)
        self.leaving, self.leaving_start = np.unique(self.source, return_index=True)
        self.leaving_of_pair = np.searchsorted(self.leaving, self.source)
        self.first_pair = np.searchsorted(self.source, np.arange(automaton.states + 1))
        self.by_target = np.argsort(self.target, kind="stable")
        self.source_by_target = self.source[self.by_target]
        entering = self.target[self.by_target]
        self.entered, self.entered_start = np.unique(entering, return_index=True)
        self.entered_of_pair = np.searchsorted(self.entered, entering)
        self.alive = lru_cache(maxsize=8)(self._alive)

    def _alive(self, length: int) -> Bools:
        """[L + 1, states]: states that a path of L steps from the start to an end can be in."""
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
        return alive

    def labels(self, pair: int) -> Ints:
        """The classes that lead along one pair."""
        which = self.set_of_pair[pair]
        return self.label[self.set_start[which] : self.set_end[which]]

    def best(self, tops: npt.NDArray[np.float32]) -> tuple[float, Ints]:
        """The largest sum of weights of any path of L steps, and its classes [L]."""
        length = len(tops)
        steps = np.maximum.reduceat(np.take(tops, self.label, axis=1), self.set_start, axis=1)
        steps = np.take(steps, self.set_of_pair, axis=1)
        score = self._ends(length)
        through = np.empty(len(self.target))
        for at in reversed(range(length)):
            np.take(score[at + 1], self.target, out=through)
            through += steps[at]
            score[at, self.leaving] = np.maximum.reduceat(through, self.leaving_start)
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
        """Log of the sum over all paths, and the log-probability of each class at each position."""
        fast = self._marginals_rescaled(weights)
        return fast if fast is not None else self._marginals_log(weights)

    def draw(self, weights: Floats, uniform: Floats) -> tuple[float, Ints]:
        """Log of the sum over all paths, and the classes [L] of one drawn in proportion to its weight.

        `uniform` [L, 2] in [0, 1).
        """
        fast = self._backward_rescaled(weights)
        if fast is not None:
            _, steps, rest, log_z = fast
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
        chance, steps, rest, log_z = backward
        length = len(weights)
        alive = self.alive(length)
        done = np.zeros_like(rest)
        done[0, 0] = 1.0
        ordered = np.take(steps, self.by_target, axis=1)
        through = np.empty(len(self.target))
        for at in range(length):
            np.take(done[at], self.source_by_target, out=through)
            through *= ordered[at]
            done[at + 1, self.entered] = np.add.reduceat(through, self.entered_start)
            done[at + 1] *= alive[at + 1]
            if at % _RESCALE_EVERY == 0:
                done[at + 1] /= done[at + 1].max()
        if not (np.einsum("ls,ls->l", done, rest) > _TRUSTED).all():
            return None
        source, target = self.source[self.pair_by_set], self.target[self.pair_by_set]
        around = np.take(done[:-1], source, axis=1) * np.take(rest[1:], target, axis=1)
        around = np.add.reduceat(around, self.set_pair_start, axis=1)
        chance *= np.add.reduceat(np.take(around, self.set_by_label, axis=1), self.label_start, axis=1)
        chance /= chance.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            return log_z, np.log(chance, out=chance)

    def _backward_rescaled(self, weights: Floats) -> tuple[Floats, Floats, Floats, float] | None:
        """Chances of classes and of pairs, sums from each state to the end, and the log of the whole.

        [L, classes], [L, pairs], [L + 1, states]; each row up to a factor of its own. None when float64 is
        not wide enough.
        """
        top = weights.max(axis=1, keepdims=True)
        if not np.isfinite(top).all():
            return None
        length = len(weights)
        alive = self.alive(length)
        chance = np.exp(weights - top)
        steps = np.add.reduceat(np.take(chance, self.label, axis=1), self.set_start, axis=1)
        steps = np.take(steps, self.set_of_pair, axis=1)
        rest = np.zeros((length + 1, self.automaton.states))
        rest[length] = self.automaton.accepting & alive[length]
        log_z = float(top.sum())
        through = np.empty(len(self.target))
        for at in reversed(range(length)):
            np.take(rest[at + 1], self.target, out=through)
            through *= steps[at]
            rest[at, self.leaving] = np.add.reduceat(through, self.leaving_start)
            rest[at] *= alive[at]
            if at % _RESCALE_EVERY == 0:
                scale = rest[at].max()
                if not scale > 0:
                    return None
                rest[at] /= scale
                log_z += float(np.log(scale))
        if not rest[0, 0] > _TRUSTED:
            return None
        return chance, steps, rest, log_z + float(np.log(rest[0, 0]))

    def _marginals_log(self, weights: Floats) -> tuple[float, Floats]:
        steps, rest = self._backward_log(weights)
        length = len(weights)
        ordered = steps[:, self.by_target]
        done = np.full((length + 1, self.automaton.states), -np.inf)
        done[0, 0] = 0.0
        for at in range(length):
            through = done[at, self.source_by_target] + ordered[at]
            done[at + 1, self.entered] = _log_sum(through, self.entered_start, self.entered_of_pair)
        log_z = float(rest[0, 0])
        if not np.isfinite(log_z):
            return log_z, weights
        source, target = self.source[self.pair_by_set], self.target[self.pair_by_set]
        around = done[:-1, source] + rest[1:, target]
        around = _log_sum(around, self.set_pair_start, self.set_of_pair[self.pair_by_set])
        return log_z, weights + _log_sum(around[:, self.set_by_label], self.label_start, self.label_of_edge) - log_z

    def _backward_log(self, weights: Floats) -> tuple[Floats, Floats]:
        """Log-weights of pairs [L, pairs], and of all ways from each state to the end [L + 1, states]."""
        length = len(weights)
        steps = _log_sum(weights[:, self.label], self.set_start, self.set_of_edge)[:, self.set_of_pair]
        rest = self._ends(length)
        for at in reversed(range(length)):
            through = steps[at] + rest[at + 1, self.target]
            rest[at, self.leaving] = _log_sum(through, self.leaving_start, self.leaving_of_pair)
        return steps, rest

    def _ends(self, length: int) -> Floats:
        table = np.full((length + 1, self.automaton.states), -np.inf)
        table[length, self.automaton.accepting] = 0.0
        return table


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
