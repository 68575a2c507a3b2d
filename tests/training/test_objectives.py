import random

import numpy as np

from agent_runtime.decoding import edit_canvas
from agent_runtime.decoding.lexer import lex
from agent_runtime.training import bugs, objectives
from agent_runtime.training.alignment import cells, regions
from agent_runtime.training.shards import write_shard
from agent_runtime.training.stream import Cursor, edit_batches, pack

NOISE = objectives.Noise(hole=16, first=17, vocab=600)


def made(sources, encode, count, bug=True):
    rng = random.Random(3)
    out = []
    for source in sources[:count]:
        lexemes = lex(source)
        edits = bugs.draw_bug(lexemes, rng)[1] if bug else ()
        out.append(cells(regions(lexemes, edits), encode))
    return out


def test_targets_without_holes_are_the_repaired_function(sources, encode):
    rng = np.random.default_rng(0)
    for source in sources:
        clean = [token for lexeme in lex(source) for token in encode(lexeme.whole)]
        canvas = objectives.edit_canvas(cells(regions(lex(source), ()), encode), NOISE, rng)
        if canvas is not None:
            assert [token for token in canvas.targets if token != NOISE.hole] == clean
            assert (canvas.what[canvas.tokens != canvas.targets] >= objectives.MASK).all()


def test_gaps_stand_where_the_runtime_puts_them(encode):
    source = "def f(a, b):\n    if a < b:\n        return a\n    return b"
    aligned = cells(regions(lex(source), ()), encode)
    unit = edit_canvas.units(source)[0]
    line = np.cumsum((aligned[:, 2] & objectives.NEWLINE != 0) & (aligned[:, 2] & objectives.STARTS != 0))
    starts = aligned[:, 2] & objectives.STARTS != 0
    for focus in range(4):
        at, count = objectives.gaps(line, starts, np.zeros(len(line), bool), [focus])
        tokens = np.insert(aligned[:, 0].astype(int), np.repeat(at, count), NOISE.hole)
        expected = edit_canvas.row(unit, focus, encode, NOISE.hole)
        assert expected is not None
        assert tokens.tolist() == expected.tokens


def test_an_insertion_stands_in_the_gap_of_its_place(encode):
    lexemes = lex("def f(a):\n    return a + 1")
    at = next(index for index, item in enumerate(lexemes) if item.text == "+")
    aligned = cells(regions(lexemes, (bugs.Edit(at, at + 2),)), encode)
    canvas = objectives.edit_canvas(aligned, NOISE, np.random.default_rng(4))
    wanted = [*encode(" +"), *encode(" 1")]
    where = [index for index, what in enumerate(canvas.what) if what == objectives.BUG]
    assert canvas.targets[where].tolist() == wanted
    assert (canvas.tokens[where] == NOISE.hole).all()


def test_chosen_positions_keep_all_noise_and_the_weight_of_copies():
    what = np.array([objectives.COPY] * 90 + [objectives.BUG] * 10)
    chosen, weights = objectives.choose_positions(what, 40, np.random.default_rng(0))
    assert set(range(90, 100)) <= set(chosen.tolist())
    copies = weights[what[chosen] == objectives.COPY]
    assert np.isclose(copies.sum(), 90 * objectives.WEIGHTS[objectives.COPY])


def test_packing_keeps_every_canvas_whole(sources, encode):
    rng = np.random.default_rng(0)
    canvases = [objectives.edit_canvas(item, NOISE, rng) for item in made(sources, encode, 40)]
    canvases = [item for item in canvases if item is not None]
    wanted = sorted(tuple(item.tokens) for item in canvases)
    found = []
    for batch in pack(iter(canvases), 4, 0):
        for row in range(4):
            for number in range(batch.segment[row].max() + 1):
                here = batch.segment[row] == number
                assert batch.positions[row][here].tolist() == list(range(1, here.sum() + 1))
                found.append(tuple(batch.tokens[row][here]))
    assert 30 < len(found) <= len(wanted)
    assert all(wanted.count(item) >= found.count(item) for item in found)


def test_a_stream_goes_on_where_its_cursor_stands(sources, encode, tmp_path):
    for number in range(2):
        write_shard(tmp_path / f"{number}.npz", made(sources, encode, 60))
    shards = [tmp_path / "0.npz", tmp_path / "1.npz"]
    cursor = Cursor()
    stream = edit_batches(shards, NOISE, 4, 0, cursor)
    first = [next(stream) for _ in range(4)]
    again = edit_batches(shards, NOISE, 4, 0, Cursor(cursor.shard, cursor.batch))
    assert (next(again).tokens == next(stream).tokens).all()
    assert (first[0].tokens != first[1].tokens).any()
