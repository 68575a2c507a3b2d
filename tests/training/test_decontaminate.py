import random

import pytest

from agent_runtime.decoding.lexer import lex
from agent_runtime.training import decontaminate

PROGRAM = """
def zigzag(rows, width):
    out = []
    for number, row in enumerate(rows):
        if number % 2 == 1:
            row = row[::-1]
        for column in range(0, len(row), width):
            piece = row[column:column + width]
            if sum(piece) > width or not piece:
                out.append(piece)
    return out
"""


@pytest.fixture
def guard(tmp_path):
    (tmp_path / "zigzag.py").write_text(PROGRAM)
    (tmp_path / "test_zigzag.py").write_text("def helper(a):\n    b = a + 1\n    return b\n")
    return decontaminate.Decontaminator(decontaminate.from_folders([tmp_path]))


def test_a_copy_its_fix_and_a_renamed_copy_are_dropped(guard):
    for text in (
        PROGRAM,
        PROGRAM.replace("== 1", "== 0").replace("zigzag", "snake"),
        PROGRAM.replace("row", "line").replace("out", "result").replace("piece", "part"),
        PROGRAM.replace("    return out", "    out.reverse()\n    print(out)\n    return out"),
    ):
        assert guard.contaminated("other", lex(text))


def test_other_functions_stay(guard, sources):
    dropped = sum(guard.contaminated("other", lex(source)) for source in sources)
    assert dropped <= 2


def test_test_files_are_no_programs(guard):
    assert len(guard.programs) == 1


@pytest.mark.parametrize("name", ["quicksort", "_merge_sort", "levenshtein_distance", "isPrime", "add", "fizz_buzz"])
def test_reserved_names_are_dropped_unseen(guard, name):
    assert guard.contaminated(name, lex("def f(a):\n    return a"))


def test_fingerprints_come_back_and_tell_nothing(guard):
    text = decontaminate.pack(guard.programs)
    assert decontaminate.unpack(text) == guard.programs
    assert "zigzag" not in text


def test_shipped_fingerprints_can_be_read():
    programs = decontaminate.unpack(decontaminate.FINGERPRINTS.read_text())
    assert len(programs) > 50
    assert not any(decontaminate.Decontaminator(programs).contaminated("f", lex(s)) for s in _novel())


def _novel():
    rng = random.Random(1)
    words = [f"name{number}" for number in range(40)]
    yield "def f():\n    " + "\n    ".join(
        f"{rng.choice(words)}.{rng.choice(words)}({rng.choice(words)})" for _ in range(9)
    )
