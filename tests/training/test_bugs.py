import random

import pytest

from agent_runtime.decoding.lexer import Lexeme, join, lex
from agent_runtime.training import bugs
from agent_runtime.training.alignment import CHANGED, GAP, NONE, STARTS, cells, regions

SOURCE = """def pick(items, low, high=3):
    found = []
    for index, item in enumerate(items[1:]):
        if item > low and not item % high == 0:
            found.append(item - index + 1)
        elif item.rank in (low, high):
            low, high = high, low
    while low <= len(found):
        low += 1
        break
    return sorted(found, key=str)[:low], pick(items[:-1], low)"""


@pytest.mark.parametrize("operator", list(bugs.OPERATORS), ids=lambda operator: operator.__name__)
def test_every_operator_applies_and_changes_the_text(operator):
    lexemes = lex(SOURCE)
    sites = list(operator(bugs.Code(lexemes, random.Random(1))))
    assert sites
    for bug in sites:
        assert join(bugs.apply(lexemes, bug)) != SOURCE


def test_most_bugs_leave_the_function_compilable(sources):
    rng = random.Random(0)
    good = total = 0
    for source in sources:
        lexemes = lex(source)
        drawn = bugs.draw_bug(lexemes, rng)
        assert drawn is not None
        total += 1
        try:
            compile(join(bugs.apply(lexemes, drawn[1])), "<bug>", "exec")
            good += 1
        except SyntaxError:
            pass
    assert good / total > 0.9


def test_cells_hold_the_broken_text_on_the_left_and_the_repaired_on_the_right(sources, encode):
    rng = random.Random(2)
    for source in sources:
        lexemes = lex(source)
        _, bug = bugs.draw_bug(lexemes, rng)
        rows = cells(regions(lexemes, bug), encode)
        broken = [token for lexeme in bugs.apply(lexemes, bug) for token in encode(lexeme.whole)]
        assert [left for left, _, _ in rows if left != NONE] == broken
        right = [token for _, token, _ in rows if token != NONE]
        whole = [token for lexeme in lexemes for token in encode(lexeme.whole)]
        assert right == whole or max(_runs(rows)) == GAP  # what does not fit into a gap is cut
        assert sum(flags & STARTS > 0 for _, _, flags in rows) == len(bugs.apply(lexemes, bug))
        assert any(flags & CHANGED for _, _, flags in rows)


def _runs(rows):
    run = 0
    for left, _, _ in rows:
        run = run + 1 if left == NONE else 0
        yield run


def test_a_replaced_lexeme_pairs_with_its_repair():
    lexemes = lex("def f(a):\n    return a < 1")
    at = next(index for index, item in enumerate(lexemes) if item.text == "<")
    bug = (bugs.Edit(at, at + 1, (Lexeme("operator", ">", " "),)),)
    rows = cells(regions(lexemes, bug), lambda text: [hash(text) % 30000])
    changed = [row for row in rows if row[2] & CHANGED]
    assert [(int(left), int(right)) for left, right, _ in changed] == [(hash(" >") % 30000, hash(" <") % 30000)]
