"""Write tool-call transcripts: an oracle repairs an injected bug, in the syntax of the runtime.

A transcript is one append-only token sequence; a step is the place where a call begins and the call's
tokens. The oracle runs the tests, looks (a search now and then, then ``inspect``), patches, sometimes
in vain, tests again, and claims what the last test says. Every text follows the tools' own wording.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer

from agent_runtime.decoding.lexer import Lexeme, join
from agent_runtime.training import bugs
from agent_runtime.training.objectives import Ints

TOOLS = ("search", "inspect", "patch", "run_tests", "finish")
BUCKETS = (32, 64, 128)
_TASKS = (
    "Fix the bug so that all tests pass.", "Make the tests pass.", "The tests fail. Find the bug and repair it.",
    "{name} gives wrong results. Fix it.", "Repair {file}.", "There is a bug in {file}; the tests show it.",
    "One of the tests fails since the last change.", "{test} fails. Please fix the code.",
    "Fix {name} in {file} so that its tests pass.", "Correct the implementation of {name}.",
    "Fix the repository so that its tests pass.", "Fix the failing tests.",
)  # fmt: skip
_ERRORS = (
    "assert {a} == {b}", "AssertionError", "IndexError: list index out of range",
    "TypeError: unsupported operand type(s)",
    "NameError: name '{name}' is not defined", "KeyError: {a}", "ValueError: {name}", "assert [{a}] == [{a}, {b}]",
    "RecursionError: maximum recursion depth exceeded", "ZeroDivisionError: integer division or modulo by zero",
    "AttributeError: 'NoneType' object has no attribute '{name}'", "assert None == {b}", "assert '{name}' == '{file}'",
)  # fmt: skip


@dataclass
class Transcript:
    """Token ids, and for each step where its call begins and the call's tokens."""

    ids: list[int] = field(default_factory=list)
    steps: list[tuple[int, list[int]]] = field(default_factory=list)


class Scribe:
    """Writes transcripts with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.quote = self.special('<|"|>')

    def text(self, text: str) -> list[int]:
        """Token ids of text that holds no special tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def special(self, name: str) -> int:
        """The id of a special token."""
        found = self.tokenizer.token_to_id(name)
        assert found is not None, name
        return int(found)

    def arguments(self, values: dict[str, str | int]) -> list[int]:
        """``{key:value,…}`` with sorted bare keys and raw strings between quote tokens."""
        ids: list[int] = []
        before = "{"
        for key in sorted(values):
            value = values[key]
            if isinstance(value, str):
                ids += [*self.text(f"{before}{key}:"), self.quote, *self.text(value), self.quote]
                before = ","
            else:
                before = f"{before}{key}:{value},"
        return ids + self.text(before.removesuffix(",") + "}" if values else "{}")

    def call(self, name: str, values: dict[str, str | int]) -> list[int]:
        """One call, from ``<|tool_call>`` to ``<tool_call|>``."""
        head, *rest = self.joined(f"call:{name}", values)
        return [self.special("<|tool_call>"), head, *rest, self.special("<tool_call|>")]

    def joined(self, head: str, values: dict[str, str | int]) -> list[int]:
        """A head and its arguments; no token of ours spans the brace, so they tokenize apart."""
        return [*self.text(head), *self.arguments(values)]

    def response(self, name: str, text: str) -> list[int]:
        """One response, from ``<|tool_response>`` to ``<tool_response|>``."""
        body = self.joined(f"response:{name}", {"value": text})
        return [self.special("<|tool_response>"), *body, self.special("<tool_response|>")]

    def prompt(self, tools: Sequence[str], task: str) -> list[int]:
        """System turn with the tools' names, user turn, and the model's turn begun."""
        bos, turn, end = (self.special(name) for name in ("<bos>", "<|turn>", "<turn|>"))
        system, user, model = (
            self.text(text) for text in ("system\ntools: " + " ".join(tools), "user\n" + task, "model\n")
        )
        line = self.text("\n")
        return [bos, turn, *system, end, *line, turn, *user, end, *line, turn, *model]


def numbered(source: str) -> str:
    """Lines as ``inspect`` shows them."""
    return "".join(f"{number}: {line}\n" for number, line in enumerate(source.split("\n"), 1))


def changed_span(before: str, after: str) -> tuple[int, int, str]:
    """First and last changed line (from 1) of ``before`` and the lines that replace them."""
    old, new = before.split("\n"), after.split("\n")
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head + 1, len(old) - tail, "".join(line + "\n" for line in new[head : len(new) - tail])


class Oracle:
    """One repair, step by step."""

    def __init__(self, scribe: Scribe, lexemes: Sequence[Lexeme], bug: bugs.Bug, rng: random.Random) -> None:
        self.scribe, self.rng, self.lexemes = scribe, rng, lexemes
        self.fixed, self.broken = join(list(lexemes)), join(bugs.apply(lexemes, bug))
        self.name = lexemes[1].text
        self.file = rng.choice(
            [
                f"{self.name}.py",
                f"{self.name}.py",
                f"src/{self.name}.py",
                "main.py",
                "utils.py",
                f"lib/{rng.choice('abc')}.py",
            ]
        )
        self.test = f"test_{self.file.rsplit('/', 1)[-1]}"
        self.test = rng.choice([self.test, f"tests/{self.test}"])
        self.count = rng.randint(1, 12)
        self.out = Transcript()

    def step(self, name: str, values: dict[str, str | int], response: str | None) -> None:
        """Append one call and what it gave."""
        call = self.scribe.call(name, values)
        self.out.steps.append((len(self.out.ids), call))
        self.out.ids += call
        if response is not None:
            self.out.ids += self.scribe.response(name, response)

    def verdict(self, passed: bool) -> str:
        """What ``run_tests`` says."""
        rng = self.rng
        tests = "1 test" if self.count == 1 else f"{self.count} tests"
        if passed:
            return f"PASSED {tests}\n"
        if rng.random() < 0.08:
            return f"TIMED OUT after {rng.choice([5, 10, 30])} s in {self.test}::test_{self.name}\n"
        words = {"a": rng.randint(0, 20), "b": rng.randint(0, 20), "name": self.name, "file": self.file}
        message = rng.choice(_ERRORS).format(**words)
        lines = [f"FAILED {rng.randint(1, self.count)} of {tests}"]
        case = rng.choice(["", f"[{rng.randint(0, 9)}]", f"[input_data{rng.randint(0, 9)}-{rng.randint(0, 40)}]"])
        lines.append(f"first failure: {self.test}::test_{self.name}{case}")
        given = rng.choice(["*input_data", "x", "[1, 2]", "3"])
        expected = rng.choice(["expected", "0", "[]", "2"])
        lines.append(f"{self.test}:{rng.randint(3, 40)}: assert {self.name}({given}) == {expected}")
        lines.append(f"E   {message}")
        if rng.random() < 0.7:
            lines.append(f"at {self.file}:{rng.randint(2, self.broken.count(chr(10)) + 1)}")
        return "".join(line + "\n" for line in lines)

    def look(self, inspected: bool) -> None:
        """Search now and then, then inspect the file."""
        rng = self.rng
        if not inspected and rng.random() < 0.06:
            pattern = rng.choice([f"def {self.name}", self.name, "def "])
            hits = [f"{self.file}:1: {self.broken.splitlines()[0]}"] + (
                [f"{self.test}:{rng.randint(3, 9)}: def test_{self.name}():"]
                if rng.random() < 0.5 and pattern != "def "
                else []
            )
            self.step("search", {"pattern": pattern}, "".join(line + "\n" for line in hits))
        self.step("inspect", {"path": self.file}, numbered(self.broken))

    def patch(self, after: str, response: str | None = None) -> None:
        """Replace the lines in which ``after`` differs from what stands in the file."""
        start, end, text = changed_span(self.broken, after)
        where = f"line {start}" if start == end else f"lines {start}-{end}"
        said = response or f"replaced {where} of {self.file}\n"
        self.step("patch", {"end": end, "path": self.file, "start": start, "text": text}, said)

    def run(self, tools: Sequence[str], task: str) -> Transcript:
        """The whole transcript."""
        rng = self.rng
        self.out.ids = self.scribe.prompt(tools, task.format(name=self.name, file=self.file, test=self.test))
        first_look = rng.random() < 0.15
        if first_look:
            self.look(False)
        self.step("run_tests", {}, self.verdict(False))
        if not first_look:
            self.look(False)
        tried = rng.randint(2, 48)
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 3])):
            drawn = bugs.draw_bug(self.lexemes, rng)
            wrong = join(bugs.apply(self.lexemes, drawn[1])) if drawn else self.fixed
            if wrong in (self.fixed, self.broken):
                continue
            if rng.random() < 0.6:
                self.patch(wrong, f"none of {tried} edits passes the tests; the files are unchanged\n")
            else:
                self.patch(wrong)
                self.step("run_tests", {}, self.verdict(False))
                self.broken = wrong
                if rng.random() < 0.5:
                    self.look(True)
        if rng.random() < 0.12:
            self.step("finish", {"status": "unsolved"}, None)
            return self.out
        start, end, text = changed_span(self.broken, self.fixed)
        where = f"line {start}" if start == end else f"lines {start}-{end}"
        edited = f"replaced {where} of {self.file} (edit {rng.randint(1, tried)} of {tried}):\n{text}"
        self.patch(self.fixed, edited if rng.random() < 0.6 else None)
        self.step("run_tests", {}, self.verdict(True))
        self.step("finish", {"status": "solved"}, None)
        return self.out


def transcript(scribe: Scribe, lexemes: Sequence[Lexeme], rng: random.Random) -> Transcript | None:
    """A transcript about one function; ``None`` when no bug can be injected."""
    drawn = bugs.draw_bug(lexemes, rng)
    if drawn is None or join(bugs.apply(lexemes, drawn[1])) == join(list(lexemes)):
        return None
    tools = list(TOOLS)
    if rng.random() < 0.3:
        rng.shuffle(tools)
    return Oracle(scribe, lexemes, drawn[1], rng).run(tools, rng.choice(_TASKS))


def canvas(call: Sequence[int], eos: int, pad: int, rng: np.random.Generator) -> Ints | None:
    """A call on the shortest canvas that holds it and ``<eos>``, padded; now and then on a longer one."""
    fitting = [size for size in BUCKETS if size > len(call)]
    if not fitting:
        return None
    size = fitting[0] if len(fitting) == 1 or rng.random() < 0.85 else fitting[1]
    return np.array([*call, eos, *[pad] * (size - len(call) - 1)], dtype=np.int64)
