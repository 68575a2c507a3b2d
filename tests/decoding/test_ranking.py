"""Ranking of edits: edit canvases, what is asked of the network, and the order that comes out."""

from __future__ import annotations

import string
from dataclasses import dataclass

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from agent_runtime.decoding.edit_canvas import GAP, MAX_CANVAS, align, changes, row, units
from agent_runtime.decoding.edit_evidence import MOST_CANVASES, weigh
from agent_runtime.decoding.edits import Edit, enumerate_edits
from agent_runtime.decoding.lexer import Lexeme, join, lex, lex_lines
from agent_runtime.decoding.ranking import random_order, rank_edits
from agent_runtime.decoding.tokenizer import Tokenizer
from agent_runtime.errors import DecodingError
from agent_runtime.training.alignment import NEWLINE, STARTS, cells, regions
from agent_runtime.training.objectives import gaps

FUNCTION = "def f(a, b):\n    c = a + b\n    return c\n"


def byte_tokenizer(*specials: str) -> Tokenizer:
    """One token for every byte, and these special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({character: at for at, character in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(specials))
    return Tokenizer(backend)


TOKENIZER = byte_tokenizer("<pad>", "<bos>", "<hole>")
HOLE = TOKENIZER.special("<hole>")


@dataclass
class Believer:
    """A scorer that believes the program should be `text`: it expects each of its tokens where it stands.

    It only looks at the text of a canvas, as a network would; holes are to stay empty.
    """

    wanted: str
    tokenizer: Tokenizer = TOKENIZER
    calls: int = 0

    def canvas_logits(self, tokens: torch.Tensor, context: str = "bos") -> torch.Tensor:
        self.calls += 1
        logits = torch.zeros(*tokens.shape, self.tokenizer.vocab_size)
        target = self.tokenizer.encode(self.wanted)
        for place, canvas in enumerate(tokens.tolist()):
            solid = [at for at, token in enumerate(canvas) if token != HOLE]
            logits[place, :, min(HOLE, self.tokenizer.vocab_size - 1)] = 1.0
            for at, token in zip(solid, target, strict=False):
                logits[place, at, token] = 5.0
        return logits


def test_the_obvious_fix_comes_first() -> None:
    wrong = FUNCTION.replace("a + b", "a - b")
    ranked = rank_edits(Believer(join(lex(FUNCTION))), wrong, enumerate_edits(wrong))
    assert ranked[0].edit.apply(wrong) == FUNCTION
    scores = [item.score for item in ranked]
    assert scores == sorted(scores, reverse=True)


def test_every_edit_is_ranked_once() -> None:
    edits = enumerate_edits(FUNCTION)
    ranked = rank_edits(Believer(""), FUNCTION, edits)
    assert sorted(map(repr, edits)) == sorted(repr(item.edit) for item in ranked)


def test_lines_that_did_not_run_come_later() -> None:
    edits = enumerate_edits(FUNCTION)
    ranked = rank_edits(Believer(""), FUNCTION, edits, executed_lines={3})
    lines = [item.edit.line for item in ranked]
    assert lines[0] == 3
    assert 3 not in lines[-10:]


def test_random_order_is_a_permutation_that_the_seed_decides() -> None:
    edits = enumerate_edits(FUNCTION)
    once, again, other = (random_order(edits, seed) for seed in (1, 1, 2))
    assert once == again != other
    assert sorted(repr(item.edit) for item in once) == sorted(map(repr, edits))
    assert [item.score for item in once] == sorted((item.score for item in once), reverse=True)


def test_nothing_to_rank() -> None:
    assert rank_edits(Believer(""), FUNCTION, []) == []


def test_a_line_too_long_for_a_canvas_is_ranked_without_the_network() -> None:
    source = "def f(a):\n    return a[0] + " + " + ".join(["value"] * (MAX_CANVAS // 6)) + "\n"
    scorer = Believer("")
    edits = [edit for edit in enumerate_edits(source) if edit.line == 2]
    assert edits
    assert not any(found.seen for found in weigh(scorer, source, edits))
    assert scorer.calls == 0


def test_a_vocabulary_without_holes_is_asked_about_replacements_only() -> None:
    scorer = Believer("", byte_tokenizer("<pad>", "<bos>"))
    edits = enumerate_edits(FUNCTION)
    found = weigh(scorer, FUNCTION, edits)
    replaced = next(item for edit, item in zip(edits, found, strict=True) if (edit.old, edit.new) == ("+", "-"))
    assert (replaced.changed, replaced.homeless) == (1, 0)
    removed = next(item for edit, item in zip(edits, found, strict=True) if (edit.old, edit.new) == ("a + b", "a"))
    assert (removed.changed, removed.homeless) == (0, len(" + b"))
    assert len(rank_edits(scorer, FUNCTION, edits)) == len(edits)


def test_of_a_long_file_the_surprising_and_the_likely_lines_are_asked_about() -> None:
    source = "".join(f"def f{number}(a, b):\n    return a + b\n" for number in range(MOST_CANVASES + 5))
    edits = [edit for edit in enumerate_edits(source) if edit.kind == "operator"]
    likely = {edits[-1].line}
    found = weigh(Believer(""), source, edits, likely)
    seen = {edit.line for edit, item in zip(edits, found, strict=True) if item.seen}
    assert len(seen) == MOST_CANVASES
    assert likely <= seen


def test_output_that_is_not_finite_is_an_error() -> None:
    class Broken(Believer):
        def canvas_logits(self, tokens: torch.Tensor, context: str = "bos") -> torch.Tensor:
            return super().canvas_logits(tokens) * float("nan")

    with pytest.raises(DecodingError):
        rank_edits(Broken(""), FUNCTION, enumerate_edits(FUNCTION))


def test_a_canvas_is_the_function_with_gaps_in_the_focus_line() -> None:
    (unit,) = units(FUNCTION)
    canvas = row(unit, 1, TOKENIZER.encode, HOLE)
    assert canvas is not None
    text = "".join("·" if token == HOLE else TOKENIZER.decode([token]) for token in canvas.tokens)
    gap = "·" * GAP
    assert text == f"def f(a, b):\n    {gap}c{gap} ={gap} a{gap} +{gap} b{gap}\n    return c"
    assert [text[place.start : place.stop] for place in canvas.places[:6]] == ["\n    ", "c", " =", " a", " +", " b"]
    assert [None if gap is None else text[gap : gap + GAP] for gap in canvas.gaps] == [None, *["···"] * 6]


def test_a_canvas_shows_the_function_as_the_training_does() -> None:
    source = (
        "import os\n\n\nclass A:\n    @decorated\n    def f(self, x):\n        '''Doc.'''\n\n"
        "        # note\n        return  self.x+x  # why\n"
    )
    unit, rest = units(source)
    assert join(lexeme for line in unit.lines for lexeme in line.lexemes) == "\ndef f(self, x):\n    return self.x+x"
    assert [line.number for line in unit.lines] == [6, 10]
    assert [line.number for line in rest.lines] == [1, 4, 5]


def test_a_long_function_is_shown_around_the_focus() -> None:
    source = "def f(a):\n" + "".join(f"    a{number} = a + {number}\n" for number in range(100))
    (unit,) = units(source)
    canvas = row(unit, 50, TOKENIZER.encode, HOLE)
    assert canvas is not None
    text = TOKENIZER.decode(canvas.tokens)
    assert len(canvas.tokens) <= MAX_CANVAS
    assert text.startswith("def f(a):\n")
    assert all(f"a{number} = a + {number}" in text for number in (48, 49, 50))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a < b", "a <= b", [("<", "<=")]),
        ("f(a)", "f(a, b)", [(None, ","), (None, "b")]),
        ("len(a)", "a", [("len", None), ("(", None), (")", None)]),
        ("f(a, b)", "f(b, a)", [("a", "b"), ("b", "a")]),
        ("x", "not x", [(None, "not")]),
    ],
)
def test_alignment(old: str, new: str, expected: list[tuple[str | None, str | None]]) -> None:
    head, pairs = align(lex(old), lex(new))
    texts = [(a and a.text, b and b.text) for a, b in pairs]
    assert [pair for pair in texts if pair[0] != pair[1]] == expected
    assert lex(old)[:head] == lex(new)[:head]
    before, after = ([item for item in side if item] for side in zip(*pairs, strict=True))
    assert lex(old)[head : head + len(before)] == before
    assert lex(new)[head : head + len(after)] == after


def test_changes_put_insertions_into_holes_and_count_what_finds_none() -> None:
    (unit,) = units(FUNCTION)
    canvas = row(unit, 1, TOKENIZER.encode, HOLE)
    assert canvas is not None
    (_, line), *_ = lex_lines("    c = a + b + dd\n")
    found, homeless = changes(canvas, *align(unit.lines[1].lexemes, line), TOKENIZER.encode, HOLE)
    behind = canvas.gaps[-1]
    assert behind is not None
    assert [change.position for change in found] == [behind, behind + 1, behind + 2]
    assert TOKENIZER.decode([change.new for change in found]) == " + "
    assert {change.old for change in found} == {HOLE}
    assert homeless == len("dd")


def test_changes_of_a_deleted_lexeme_want_holes() -> None:
    (unit,) = units(FUNCTION)
    canvas = row(unit, 1, TOKENIZER.encode, HOLE)
    assert canvas is not None
    (_, line), *_ = lex_lines("    c = a\n")
    found, homeless = changes(canvas, *align(unit.lines[1].lexemes, line), TOKENIZER.encode, HOLE)
    assert {change.new for change in found} == {HOLE}
    assert TOKENIZER.decode([change.old for change in found]) == " + b"
    assert homeless == 0


@pytest.mark.parametrize("source", [FUNCTION.replace("\n", "\r\n"), FUNCTION.replace("    ", "\t"), "é = 1\n"])
def test_any_source_can_be_ranked(source: str) -> None:
    edits = enumerate_edits(source)
    assert edits
    assert len(rank_edits(Believer(""), source, edits)) == len(edits)


def test_lexemes_join_to_the_text() -> None:
    source = "def f(x):\n    return [x ** 2, 'a # b', 0x1f]  # note\n\n\n    # end\n"
    assert join(lex(source)) == "def f(x):\n    return [x ** 2, 'a # b', 0x1f]"
    assert lex("a  b") == [Lexeme("name", "a"), Lexeme("name", "b", " ")]
    assert all(character in string.printable for character in source)


def test_an_edit_of_a_line_below_the_focus_is_asked_about_too() -> None:
    lines = FUNCTION.splitlines(keepends=True)
    edit = Edit(2, 3, 0, 12, "", "", lines[1] + lines[2].replace("c", "a"), "copy")
    (found,) = weigh(Believer(""), FUNCTION, [edit])
    assert found.changed == 1


@pytest.mark.parametrize("focus", range(4))
def test_canvases_have_the_layout_that_training_uses(focus: int) -> None:
    source = "def f(a, b=1):\n    for x in a:\n        b += x[0]\n    return b\n"
    aligned = cells(regions(lex(source), ()), TOKENIZER.encode)
    starts = (aligned[:, 2] & STARTS) != 0
    line = np.cumsum(starts & ((aligned[:, 2] & NEWLINE) != 0))
    at, count = gaps(line, starts, np.zeros(len(line), dtype=bool), [focus])
    trained = np.insert(aligned[:, 0].astype(np.int64), np.repeat(at, count), HOLE)
    (unit,) = units(source)
    canvas = row(unit, focus, TOKENIZER.encode, HOLE)
    assert canvas is not None
    assert canvas.tokens == trained.tolist()
