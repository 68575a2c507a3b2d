"""Keep the evaluation programs, their fixes and their near duplicates out of the training data.

A function is dropped when its name is that of an evaluation program, or when its lexemes overlap with
one: equal streams, 8-lexeme shingles with Jaccard >= 0.5, or >= 0.6 of the program's shingles contained
in the function (or the reverse). A second set of shingles, with every name replaced by one symbol,
catches renamed copies. A one-lexeme bug hardly moves a shingle set, so the fix goes with the bug.

Programs come from folders (``from_folders``) and, where those are absent, from ``fingerprints.json``:
hashes of shingles, from which no program can be read back.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_runtime.decoding.lexer import Lexeme, LexError, lex
from agent_runtime.training.reserved_names import CONTAINED, EXACT

SHINGLE = 8
#: Structural shingles say little in a short program; below this count only the named ones are used.
MIN_STRUCTURAL = 24
FINGERPRINTS = Path(__file__).with_name("fingerprints.json")


@dataclass(frozen=True)
class Fingerprint:
    """The hashed shingles of one function: as it is named, and with all names made alike."""

    named: frozenset[int]
    structural: frozenset[int]


def _hash(words: tuple[str, ...]) -> int:
    digest = hashlib.blake2b("\x00".join(words).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little")


def _shingles(words: list[str]) -> frozenset[int]:
    width = min(SHINGLE, len(words))
    return frozenset(_hash(tuple(words[at : at + width])) for at in range(max(1, len(words) - width + 1)))


def fingerprint(lexemes: list[Lexeme]) -> Fingerprint:
    """The fingerprint of a function, blind to layout, comments and its own name."""
    solid = [item for item in lexemes if item.kind != "newline"]
    own = solid[1].text if len(solid) > 1 and solid[0].text == "def" else None
    named = ["def" if item.text == own else item.text for item in solid]
    structural = ["$" if item.kind == "name" else item.text for item in solid]
    return Fingerprint(_shingles(named), _shingles(structural))


def reserved(name: str) -> bool:
    """Whether a function of this name may be an evaluation program."""
    plain = name.replace("_", "").lower()
    return plain in EXACT or any(part in plain for part in CONTAINED)


class Decontaminator:
    """Answers whether a function is an evaluation program or close to one."""

    def __init__(self, programs: Iterable[Fingerprint]) -> None:
        self.programs = list(programs)
        self._named: dict[int, list[int]] = {}
        self._structural: dict[int, list[int]] = {}
        for index, program in enumerate(self.programs):
            for shingle in program.named:
                self._named.setdefault(shingle, []).append(index)
            for shingle in program.structural:
                self._structural.setdefault(shingle, []).append(index)

    def contaminated(self, name: str, lexemes: list[Lexeme]) -> bool:
        """Whether the function has a reserved name or overlaps with a known program."""
        if reserved(name):
            return True
        own = fingerprint(lexemes)
        for index, shared in _overlaps(own.named, self._named):
            theirs = len(self.programs[index].named)
            union = len(own.named) + theirs - shared
            if shared >= 0.5 * union or shared >= 0.6 * min(theirs, len(own.named)):
                return True
        for index, shared in _overlaps(own.structural, self._structural):
            theirs = len(self.programs[index].structural)
            if theirs >= MIN_STRUCTURAL and shared >= 0.75 * theirs:
                return True
        return False


def _overlaps(own: frozenset[int], table: dict[int, list[int]]) -> Iterator[tuple[int, int]]:
    counts: dict[int, int] = {}
    for shingle in own:
        for index in table.get(shingle, ()):
            counts[index] = counts.get(index, 0) + 1
    yield from counts.items()


def from_folders(folders: Iterable[Path]) -> list[Fingerprint]:
    """Fingerprints of every function in the Python files of ``folders``, tests left out."""
    found: list[Fingerprint] = []
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if path.name.startswith("test_") or path.name == "conftest.py":
                continue
            text = path.read_text(errors="replace")
            try:
                tree = ast.parse(text)
            except SyntaxError:
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    source = function_source(text.splitlines(), node)
                    if source is not None:
                        found.append(fingerprint(source))
    return found


def function_source(lines: list[str], node: ast.FunctionDef) -> list[Lexeme] | None:
    """The lexemes of one function: dedented, without decorators, docstring and comments."""
    first = node.body[0]
    drop: set[int] = set()
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        if first.lineno == node.lineno or len(node.body) == 1:
            return None
        drop = set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    end = node.end_lineno or node.lineno
    kept = [lines[number - 1][node.col_offset :] for number in range(node.lineno, end + 1) if number not in drop]
    try:
        return lex("\n".join(kept))
    except LexError:
        return None


def pack(fingerprints: Iterable[Fingerprint]) -> str:
    """Fingerprints as JSON text, four bytes a shingle."""

    def text(shingles: frozenset[int]) -> str:
        return base64.b85encode(struct.pack(f"<{len(shingles)}I", *sorted(shingles))).decode()

    rows = sorted([text(item.named), text(item.structural)] for item in fingerprints)
    return json.dumps(rows, indent=0) + "\n"


def unpack(text: str) -> list[Fingerprint]:
    """The fingerprints that ``pack`` wrote."""

    def shingles(row: str) -> frozenset[int]:
        raw = base64.b85decode(row)
        return frozenset(struct.unpack(f"<{len(raw) // 4}I", raw))

    return [Fingerprint(shingles(named), shingles(structural)) for named, structural in json.loads(text)]
