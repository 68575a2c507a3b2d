"""Enumeration of edits: which ones there are, that they parse, and that they map onto the patch tool."""

from __future__ import annotations

import ast
import inspect
import random
import textwrap
import time
import types
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_runtime.decoding.edits import KINDS, Edit, _minimal, enumerate_edits
from agent_runtime.tools.lines import replace_lines


def results(source: str) -> set[str]:
    return {edit.apply(source) for edit in enumerate_edits(source)}


FUNCTION = textwrap.dedent('''\
    def pick(rows, count, seen=None):
        """Say what it does."""
        total = 0
        chosen = []
        for row in rows:
            if count <= total and row not in seen:
                break
            total += row.weight
            chosen.append(row)  # keep it
        while total > count:
            total -= chosen.pop(0)
        if not chosen:
            return None
        return max(chosen[1:])
''')


@pytest.mark.parametrize(
    ("line", "kind", "before", "after"),
    [
        (6, "operator", "count <= total", "count < total"),
        (6, "operator", "row not in seen", "row in seen"),
        (6, "operator", "total and row", "total or row"),
        (8, "operator", "total += ", "total -= "),
        (8, "operator", "total += ", "total = "),
        (3, "constant", "total = 0", "total = 1"),
        (13, "constant", "return None", "return False"),
        (13, "constant", "return None", "return []"),
        (1, "constant", "seen=None", "seen=0"),
        (6, "name", "row not in", "total not in"),
        (5, "name", "for row in", "for count in"),
        (14, "name", "max(", "min("),
        (11, "attribute", ".pop(", ".remove("),
        (7, "keyword", "break", "continue"),
        (13, "keyword", "return None", "yield None"),
        (10, "keyword", "while total", "if total"),
        (12, "remove", "not chosen", "chosen"),
        (14, "remove", "max(chosen[1:])", "chosen[1:]"),
        (14, "remove", "chosen[1:]", "chosen"),
        (6, "remove", "count <= total and row not in seen", "count <= total"),
        (6, "swap", "count <= total", "total <= count"),
        (1, "swap", "rows, count", "count, rows"),
        (11, "insert-arithmetic", "pop(0)", "pop(0) + 1"),
        (14, "insert-arithmetic", "chosen[1:]", "chosen[1 + count:]"),
        (10, "insert-not", "total > count", "not total > count"),
        (5, "insert-slice", "in rows", "in rows[1:]"),
        (14, "insert-slice", "chosen[1:]", "chosen[1:][:count]"),
        (9, "insert-attribute", "append(row)", "append(row.weight)"),
        (9, "insert-brackets", "append(row)", "append([row])"),
        (5, "insert-call", "in rows", "in reversed(rows)"),
        (14, "insert-call", "max(chosen[1:])", "pick(max(chosen[1:]))"),
        (14, "insert-argument", "max(chosen[1:])", "max(chosen[1:], 0)"),
        (11, "insert-argument", "pop(0)", "pop(count, 0)"),
        (10, "insert-clause", "while total > count", "while total > count and chosen"),
        (12, "insert-clause", "if not chosen", "if total > count or not chosen"),
        (8, "copy", "+= row.weight", "+= chosen[1:]"),
    ],
)  # fmt: skip
def test_edits_within_a_line(line: int, kind: str, before: str, after: str) -> None:
    old_line = FUNCTION.splitlines(keepends=True)[line - 1]
    assert before in old_line
    wanted = old_line.replace(before, after, 1)
    edits = [edit for edit in enumerate_edits(FUNCTION) if edit.line == line]
    assert [edit.kind for edit in edits if edit.new_line == wanted] == [kind]


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("delete-line", "        total += row.weight\n", ""),
        ("delete-line", "        return None\n", "        pass\n"),
        ("swap-lines", "    total = 0\n    chosen = []\n", "    chosen = []\n    total = 0\n"),
        (
            "indent-line",
            "        chosen.append(row)  # keep it\n    while",
            "    chosen.append(row)  # keep it\n    while",
        ),
        ("insert-line", "pop(0)\n", "pop(0)\n        total -= 1\n"),
        ("insert-line", "# keep it\n", "# keep it\n        return rows\n"),
        ("insert-line", "    total = 0\n", "    if not rows: return None\n    total = 0\n"),
    ],
)
def test_edits_of_whole_lines(kind: str, old: str, new: str) -> None:
    wanted = FUNCTION.replace(old, new, 1)
    assert wanted != FUNCTION
    assert [edit.kind for edit in enumerate_edits(FUNCTION) if edit.apply(FUNCTION) == wanted] == [kind]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("for i in range(n):", "for i in range(1, n + 1):"),
        ("for i in range(n):", "for i in range(n - 1):"),
        ("best = 0", 'best = float("-inf")'),
        ("best = x[i]", "best = max(x[i], best)"),
        ("best = x[i]", "best = x.get(i, 0)"),
        ("best = x[i]", "best = x[i + 1]"),
        ("best = x[i]", "best = self.x[i]"),
        ("best += self.n", "best += n"),
        ("best += self.n", "best += self.n - best"),
        ("if k:", "if k is not None:"),
        ("return sorted(x, reverse=True)", "return sorted(x)"),
        ("return sorted(x, reverse=True)", "return sorted(x, reverse=True)[:n]"),
        ("x.sort()", "x.sort(reverse=True)"),
        ("except KeyError:", "except IndexError:"),
        ("for a, b in x:", "for b, a in x:"),
        ("while (n) > 0:", "while (n - i) > 0:"),
    ],
)
def test_usual_fixes_are_among_the_edits(before: str, after: str) -> None:
    body = {
        "for": "{}\n        pass",
        "if ": "{}\n        pass",
        "whi": "{}\n        pass",
        "exc": "try:\n        pass\n    {}\n        pass",
    }.get(before[:3], "{}")
    source = "def f(self, x, n, k):\n    i = 1\n    best = 2\n    if best > n:\n        best = 3\n    " + body + "\n"
    assert source.format(after) in results(source.format(before))


def test_a_statement_moves_into_the_block_before_it() -> None:
    source = "def f(a):\n    for x in a:\n        g(x)\n    h(x)\n    return x\n"
    assert source.replace("    h(x)", "        h(x)") in results(source)


def test_a_loop_keeps_its_break() -> None:
    """Neither moving nor rewriting a line may put `break` outside of a loop, which only compiling would notice."""
    source = "def f(a):\n    while a:\n        a -= 1\n        break\n    return a\n"
    for edit in enumerate_edits(source):
        compile(edit.apply(source), "f.py", "exec")


def test_kinds_come_in_order_of_cost_and_are_all_known() -> None:
    kinds = [edit.kind for edit in enumerate_edits(FUNCTION)]
    assert kinds == sorted(kinds, key=KINDS.index)
    assert set(kinds) == set(KINDS)


def test_edits_are_distinct_and_never_the_same_program() -> None:
    source = "def f(x):\n    y = (x)\n    return y + y + 0\n"
    texts = [edit.apply(source) for edit in enumerate_edits(source)]
    assert texts
    assert len(texts) == len(set(texts))
    unchanged = ast.dump(ast.parse(source))
    assert all(ast.dump(ast.parse(text)) != unchanged for text in texts)


def test_comments_imports_docstrings_and_annotations_stay() -> None:
    source = '"""Doc 1."""\nimport os\nfrom re import sub\n\n\n'
    source += 'def f(x: int, y: int = 0) -> str:\n    "Doc 2."\n    # note\n    return x\n'
    changed = {line for edit in enumerate_edits(source) for line in range(edit.line, edit.end_line + 1)}
    assert changed == {6, 9}
    headers = {edit.new_line for edit in enumerate_edits(source) if edit.line == 6}
    assert all(") -> str" in header for header in headers)


def test_lines_restrict_the_edits() -> None:
    assert {edit.line for edit in enumerate_edits(FUNCTION, lines={10})} <= {10, 11}
    assert enumerate_edits(FUNCTION, lines=set()) == []


def test_limit_and_exclude() -> None:
    edits = enumerate_edits(FUNCTION)
    assert enumerate_edits(FUNCTION, limit=7) == edits[:7]
    assert enumerate_edits(FUNCTION, exclude={edits[0].apply(FUNCTION)}) == edits[1:]


@pytest.mark.parametrize("source", ["def f(:\n", "x = 1\0", "x = '\udc80'", "(" * 5000 + ")" * 5000])
def test_a_source_that_does_not_parse_is_refused(source: str) -> None:
    with pytest.raises(SyntaxError):
        enumerate_edits(source)


def test_nothing_to_edit() -> None:
    assert enumerate_edits("") == []
    assert enumerate_edits("import os\n") == []


SOURCES = {
    "crlf": FUNCTION.replace("\n", "\r\n"),
    "tabs": FUNCTION.replace("    ", "\t"),
    "no final newline": FUNCTION.rstrip("\n"),
    "not ascii": FUNCTION.replace("chosen", "gewählt").replace("keep it", "behält 😀"),
    "byte order mark": "\ufeffx = 1\n" + FUNCTION,
    "form feed": "\f\n" + FUNCTION,
    "one line": "def f(x): return x + 1",
    "several statements on a line": "def f(x):\n    y = 1; z = 2\n    return x; pass\n",
    "class": "class A:\n    limit = 3\n    def f(self, x=1):\n        return self.limit - x\n",
    "module": "SIZE = 4\nfor i in range(SIZE):\n    print(i)\n",
    "multi-line": "def f(a,\n      b):\n    return g(\n        a,\n        b[0],\n    )\n",
    "match": "def f(a):\n    match a:\n        case [x, y] if x > y:\n            return x\n        case _:\n"
    "            return 1\n",
    "try": "def f(a):\n    try:\n        return a[0]\n    except (KeyError, IndexError) as e:\n"
    "        raise ValueError(a) from e\n    finally:\n        a = 1\n",
    "elif": "def f(a):\n    if a > 1:\n        return 1\n    elif a < 0:\n        return 2\n"
    "    else:\n        return a\n",
    "f-string": "def f(a, b):\n    return f'{a!r:>{b}} {a + 1}' + a\n",
    "async": "async def f(a):\n    async with a as b:\n        async for c in b:\n            await c(a)\n"
    "            yield c\n",
    "decorated": "@d(1)\ndef f(a):\n    @e\n    def g(b):\n        return a + b\n    return g\n",
    "lambda": "def f(a):\n    return sorted(a, key=lambda x: -x[1])[:2]\n",
    "comments": "def f(a):\n    # one\n    x = (a  # why\n         + 1)\n    # two\n    return x  # three\n",
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_every_edit_compiles_and_equals_its_patch(source: str) -> None:
    edits = enumerate_edits(source)
    assert edits
    for edit in edits:
        check(source, edit)


def check(source: str, edit: Edit) -> None:
    """The edited source compiles; columns, `apply` and the patch tool agree about it."""
    edited = edit.apply(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(edited.encode(), "edited.py", "exec")
    arguments = edit.patch_arguments("a.py")
    assert arguments["path"] == "a.py"
    splice = replace_lines(source.encode(), int(arguments["start"]), int(arguments["end"]), str(arguments["text"]))
    assert splice.apply(source.encode()).decode() == edited
    mark = "\ufeff" if source.startswith("\ufeff") else ""
    source, edited = source.removeprefix(mark), edited.removeprefix(mark)
    lines = source.encode().splitlines(keepends=True)
    before = b"".join(lines[: edit.line - 1]).decode() + lines[edit.line - 1].decode()[: edit.column]
    assert source.startswith(before + edit.old)
    assert edited == before + edit.new + source[len(before) + len(edit.old) :]


MODULES = ["textwrap", "heapq", "bisect", "difflib", "fnmatch", "statistics", "calendar", "ast"]


def standard_functions() -> list[str]:
    functions = []
    for name in MODULES:
        module = __import__(name)
        for value in vars(module).values():
            if isinstance(value, types.FunctionType) and value.__module__ == name:
                functions.append(textwrap.dedent(inspect.getsource(value)))
    return [source for source in functions if source.count("\n") <= 40]


FUNCTIONS = standard_functions()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(FUNCTIONS), st.integers(0, 2**32))
def test_edits_of_standard_library_functions_compile(source: str, seed: int) -> None:
    edits = enumerate_edits(source)
    for edit in random.Random(seed).sample(edits, min(40, len(edits))):
        check(source, edit)


def test_long_lines_are_not_taken_apart() -> None:
    table = "x = [" + ", ".join(map(str, range(5000))) + "]\n"
    assert all(edit.kind not in ("constant", "remove") for edit in enumerate_edits(table))


def test_enumeration_is_fast() -> None:
    """30 lines within 150 ms on the two cores it is made for; ten times that here, for a busy machine."""
    source = FUNCTION + FUNCTION.replace("pick", "choose")
    enumerate_edits(source)
    started = time.perf_counter()
    enumerate_edits(source)
    assert time.perf_counter() - started < 1.5


@given(st.text("ab", min_size=1, max_size=8), st.data())
def test_minimal_replacements_are_equal_exactly_when_their_results_are(text: str, data: st.DataObject) -> None:
    def draw() -> tuple[int, int, str]:
        start = data.draw(st.integers(0, len(text)))
        return start, data.draw(st.integers(start, len(text))), data.draw(st.text("ab", max_size=4))

    one, other = draw(), draw()
    results = [text[:start] + new + text[end:] for start, end, new in (one, other)]
    assert (_minimal(text, *one) == _minimal(text, *other)) == (results[0] == results[1])
    assert (_minimal(text, *one) is None) == (results[0] == text)
