"""Collect small Python functions from the standard library and permissively licensed packages.

A record is one function of 3 to 24 lines, dedented, without decorators, docstring and comments.
Sources are wheels (read as archives, never imported) and the running interpreter's standard library.
"""

from __future__ import annotations

import ast
import email
import hashlib
import json
import sys
import sysconfig
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from agent_runtime.decoding.lexer import Lexeme, join
from agent_runtime.training.decontaminate import Decontaminator, function_source

MIN_LINES, MAX_LINES = 3, 24
#: No package of more than this many functions: one large framework must not drown the others.
MAX_PER_PACKAGE = 12_000
#: Packages that are never trained on: their functions are what the checkpoint is measured with.
HELD_OUT = frozenset(
    [
        "pygorithm",
        "labmath",
        "funcy",
        "humanize",
        "intervaltree",
        "textdistance",
        "primefac",
        "algorithms-lib",
        "binarytree",
    ]
)
#: Functions of at least this weight count as algorithms rather than glue.
ALGORITHM = 0.8
_PERMISSIVE = ("mit", "bsd", "apache", "psf", "python software foundation", "isc", "unlicense", "public domain", "zlib")
_RESTRICTED = ("gpl", "general public", "mozilla", "mpl", "proprietary", "non-commercial", "cc-by-nc")


@dataclass(frozen=True)
class Package:
    """Where functions came from, as the data list of the checkpoint names it."""

    name: str
    version: str
    licence: str
    functions: int = 0


@dataclass(frozen=True)
class Function:
    """One function of the corpus. ``weight`` is how often it is drawn, relative to others."""

    package: str
    name: str
    source: str
    weight: float


def weigh(name: str, lexemes: list[Lexeme]) -> float:
    """Algorithms before glue: loops, arithmetic, indexing and recursion count, ``self`` costs.

    The programs to be repaired are small algorithms; nine in ten functions of any package are not.
    """
    words = [item.text for item in lexemes]
    loops = sum(word in ("for", "while") for word in words)
    arithmetic = sum(word in ("+", "-", "*", "//", "%", "+=", "-=", "<", ">", "<=", ">=", "==") for word in words)
    indexing = sum(word == "[" and before.kind == "name" for word, before in zip(words[1:], lexemes, strict=False))
    recursion = words[2:].count(name) > 0
    weight = 0.3 + (loops > 0) + 0.5 * (arithmetic > 1) + 0.5 * (arithmetic > 3) + 0.5 * (indexing > 0) + recursion
    return weight * (0.25 if "self" in words or "cls" in words else 1.0)


def functions_of(package: str, text: str, decontaminator: Decontaminator) -> Iterator[Function]:
    """The usable functions of one source file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    lines = text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("test"):
            continue
        if not MIN_LINES <= (node.end_lineno or 0) - node.lineno + 1 <= 3 * MAX_LINES:
            continue
        lexemes = function_source(lines, node)
        if lexemes is None:
            continue
        count = 1 + sum(item.kind == "newline" for item in lexemes)
        source = join(lexemes)
        if not MIN_LINES <= count <= MAX_LINES or len(source) > 1200 or not source.isascii():
            continue
        if any(item.kind == "string" and len(item.text) > 60 for item in lexemes):
            continue
        if decontaminator.contaminated(node.name, lexemes):
            continue
        yield Function(package, node.name, source, weigh(node.name, lexemes))


def licence_of(metadata: str) -> tuple[str, str, str] | None:
    """Name, version and licence from a wheel's metadata; ``None`` when it is not permissive."""
    message = email.message_from_string(metadata)
    stated = message.get("License-Expression") or ""
    if not stated:
        classifiers = [
            row.rsplit("::", 1)[-1].strip() for row in message.get_all("Classifier", []) if row.startswith("License ::")
        ]
        stated = "; ".join(classifiers) or (message.get("License") or "").strip().split("\n")[0][:60]
    lower = stated.lower()
    if any(word in lower for word in _RESTRICTED) or not any(word in lower for word in _PERMISSIVE):
        return None
    return str(message["Name"]), str(message["Version"]), stated


def read_wheel(path: Path) -> tuple[Package, list[str]] | None:
    """The package of a wheel and its Python files; ``None`` when its licence is not permissive."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        facts = licence_of(archive.read(metadata).decode(errors="replace"))
        if facts is None:
            return None
        texts = [
            archive.read(name).decode(errors="replace")
            for name in sorted(names)
            if name.endswith(".py") and "/tests/" not in name and "/_vendor/" not in name
        ]
    return Package(*facts), texts


def read_standard_library() -> tuple[Package, list[str]]:
    """The pure Python part of the running interpreter's standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"site-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip"}
    texts = [
        path.read_text(errors="replace")
        for path in sorted(root.rglob("*.py"))
        if not skipped & set(path.relative_to(root).parts)
    ]
    version = ".".join(map(str, sys.version_info[:3]))
    return Package("python-standard-library", version, "PSF-2.0"), texts


def build(wheels: Path, out: Path, decontaminator: Decontaminator) -> list[Package]:
    """Write ``functions.jsonl`` (distinct functions) and ``data.json`` (their packages) into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    seen: set[bytes] = set()
    packages: list[Package] = []
    sources = [read_standard_library()]
    with (out / "functions.jsonl").open("w") as sink:
        for path in [None, *sorted(wheels.glob("*.whl"))]:
            source = sources[0] if path is None else read_wheel(path)
            if source is None:
                continue
            package, texts = source
            found: list[Function] = []
            for text in texts:
                for function in functions_of(package.name, text, decontaminator):
                    key = hashlib.blake2b("".join(function.source.split()).encode(), digest_size=8).digest()
                    if key not in seen:
                        seen.add(key)
                        found.append(function)
            found.sort(key=lambda item: -item.weight)
            for function in found[:MAX_PER_PACKAGE]:
                sink.write(json.dumps(asdict(function)) + "\n")
            packages.append(Package(package.name, package.version, package.licence, min(len(found), MAX_PER_PACKAGE)))
    rows = [asdict(package) for package in packages]
    (out / "data.json").write_text(json.dumps(rows, indent=2) + "\n")
    return packages


def load(path: Path) -> list[Function]:
    """The functions that ``build`` wrote."""
    with path.open() as lines:
        return [Function(**json.loads(line)) for line in lines]
