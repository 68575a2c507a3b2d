"""Dynamic programming over (position, state): the best path, the sum of all paths, exact draws.

Weights come by token class and position as natural logarithms, [L, classes]. Everything runs backward
first, so that `best` and `draw` can then walk forward and never take a way without an end.

Source: Viterbi (1967); Baum, Petrie, Soules and Weiss (1970), forward-backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent_runtime.decoding.automaton import Ints, TokenAutomaton

Floats = npt.NDArray[np.float64]


class Lattice:
    """The transitions of one automaton, arranged for row-wise reductions."""

    def __init__(self, automaton: TokenAutomaton) -> None:
        self.automaton = automaton
        self.label = automaton.label
        pair = automaton.source * automaton.states + automaton.target
        _, self.pair_start = np.unique(pair, return_index=True)
        self.pair_of_edge = np.searchsorted(self.pair_start, np.arange(len(pair)), side="right") - 1
        self.source = automaton.source[self.pair_start]
        self.target = automaton.target[self.pair_start]
        """[pairs] distinct (source, target), sorted by source."""
        self.pair_end = np.append(self.pair_start[1:], len(pair))
        self.leaving, self.leaving_start = np.unique(self.source, return_index=True)
        self.leaving_of_pair = np.searchsorted(self.leaving, self.source)
        self.first_pair = np.searchsorted(self.source, np.arange(automaton.states + 1))
        order = np.argsort(self.target, kind="stable")
        self.by_target = order
        self.entered, self.entered_start = np.unique(self.target[order], return_index=True)
        self.entered_of_pair = np.searchsorted(self.entered, self.target[order])

    def best(self, weights: Floats) -> tuple[float, Ints]:
        """The largest sum of weights of any path of L steps, and its classes [L]."""
        length = len(weights)
        steps = _reduce(np.maximum, weights[:, self.label], self.pair_start)
        score = self._ends(length)
        for at in reversed(range(length)):
            through = steps[at] + score[at + 1, self.target]
            score[at, self.leaving] = np.maximum.reduceat(through, self.leaving_start)
        classes = np.zeros(length, dtype=np.int64)
        state = 0
        for at in range(length):
            first, last = self.first_pair[state], self.first_pair[state + 1]
            pair = first + int(np.argmax(steps[at, first:last] + score[at + 1, self.target[first:last]]))
            labels = self.label[self.pair_start[pair] : self.pair_end[pair]]
            classes[at] = labels[int(np.argmax(weights[at, labels]))]
            state = self.target[pair]
        return float(score[0, 0]), classes

    def backward(self, weights: Floats) -> tuple[Floats, Floats]:
        """Log-weights of pairs [L, pairs], and of all ways from each state to the end [L + 1, states]."""
        length = len(weights)
        steps = _log_sum(weights[:, self.label], self.pair_start, self.pair_of_edge)
        rest = self._ends(length)
        for at in reversed(range(length)):
            through = steps[at] + rest[at + 1, self.target]
            rest[at, self.leaving] = _log_sum(through, self.leaving_start, self.leaving_of_pair)
        return steps, rest

    def forward(self, steps: Floats) -> Floats:
        """Log-weights of all ways from the start to each state [L + 1, states]."""
        length = len(steps)
        source = self.source[self.by_target]
        ordered = steps[:, self.by_target]
        done = np.full((length + 1, self.automaton.states), -np.inf)
        done[0, 0] = 0.0
        for at in range(length):
            through = done[at, source] + ordered[at]
            done[at + 1, self.entered] = _log_sum(through, self.entered_start, self.entered_of_pair)
        return done

    def marginals(self, weights: Floats) -> tuple[float, Floats]:
        """Log of the sum over all paths, and the log-probability of each class at each position."""
        steps, rest = self.backward(weights)
        done = self.forward(steps)
        total = float(rest[0, 0])
        source, target = self.automaton.source, self.automaton.target
        edges = done[:-1, source] + weights[:, self.label] + rest[1:, target] - total
        chance = np.zeros((len(weights), self.automaton.classes))
        np.add.at(chance.T, self.label, np.exp(edges).T)
        with np.errstate(divide="ignore"):
            return total, np.log(chance)

    def draw(self, weights: Floats, uniform: Floats) -> Ints:
        """Classes [L] of one path drawn in proportion to its weight; `uniform` [L, 2] in [0, 1)."""
        steps, rest = self.backward(weights)
        classes = np.zeros(len(weights), dtype=np.int64)
        state = 0
        for at in range(len(weights)):
            first, last = self.first_pair[state], self.first_pair[state + 1]
            pair = first + pick(steps[at, first:last] + rest[at + 1, self.target[first:last]], uniform[at, 0])
            labels = self.label[self.pair_start[pair] : self.pair_end[pair]]
            classes[at] = labels[pick(weights[at, labels], uniform[at, 1])]
            state = self.target[pair]
        return classes

    def _ends(self, length: int) -> Floats:
        table = np.full((length + 1, self.automaton.states), -np.inf)
        table[length, self.automaton.accepting] = 0.0
        return table


def pick(weights: npt.NDArray[np.floating], uniform: float) -> int:
    """An index drawn in proportion to exp(`weights`), by inversion of one uniform number."""
    chances = np.exp(weights.astype(np.float64) - weights.max())
    cumulated = np.cumsum(chances)
    index = int(np.searchsorted(cumulated, uniform * cumulated[-1], side="right"))
    return min(index, int(np.flatnonzero(chances)[-1]))


def _reduce(operation: np.ufunc, values: Floats, starts: Ints) -> Floats:
    result: Floats = operation.reduceat(values, starts, axis=-1)
    return result


def _log_sum(values: Floats, starts: Ints, group_of: Ints) -> Floats:
    """log Σ exp over consecutive groups of the last axis; a group of only -inf gives -inf."""
    top = np.maximum.reduceat(values, starts, axis=-1)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return shift + np.log(np.add.reduceat(np.exp(values - shift[..., group_of]), starts, axis=-1))


@dataclass(frozen=True)
class ClassWeights:
    """What the vocabulary says about the classes at each position; natural logarithms, [L, classes]."""

    total: Floats
    """log Σ exp over the class's tokens."""
    top: Floats
    """The greatest of the class's tokens."""
    entropy: Floats
    """Entropy within the class, nats."""


class Classes:
    """The tokens of each class, side by side, for segment-wise reductions over the vocabulary."""

    def __init__(self, automaton: TokenAutomaton) -> None:
        order = np.argsort(automaton.class_of, kind="stable")
        self.tokens = order[: int((automaton.class_of < automaton.classes).sum())]
        """Every usable token, grouped by class."""
        self.group_of = automaton.class_of[self.tokens]
        self.starts = np.searchsorted(self.group_of, np.arange(automaton.classes))
        self.ends = np.append(self.starts[1:], len(self.tokens))
        self.sizes = self.ends - self.starts

    def weigh(self, logits: npt.NDArray[np.float32]) -> ClassWeights:
        """Sums, maxima and entropies of each class; `logits` [L, vocabulary] need not be normalised."""
        values = logits[:, self.tokens]
        top = np.maximum.reduceat(values, self.starts, axis=1)
        shift = np.where(np.isfinite(top), top, np.float32(0))
        below = values - shift[:, self.group_of]
        chance = np.exp(below)
        total = np.add.reduceat(chance, self.starts, axis=1)
        np.multiply(chance, below, out=below, where=chance > 0)
        below[chance == 0] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            logarithm = np.log(total)
            within = logarithm - np.add.reduceat(below, self.starts, axis=1) / total
        entropy = np.where(np.isfinite(top), within, 0.0)
        return ClassWeights((shift + logarithm).astype(np.float64), top.astype(np.float64), entropy)

    def tops(self, logits: npt.NDArray[np.float32]) -> Floats:
        """Only the maxima."""
        return np.maximum.reduceat(logits[:, self.tokens], self.starts, axis=1).astype(np.float64)

    def members(self, which: int) -> Ints:
        """The tokens of one class."""
        return self.tokens[self.starts[which] : self.ends[which]]
