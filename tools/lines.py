"""Files as the bytes of their lines, and edits as one splice of those bytes.

A line ends with `\\n`, `\\r\\n` or a lone `\\r`, exactly as Python's own tokenizer counts, so that line numbers
agree with tracebacks. Form feeds and Unicode separators end no line. Nothing here decodes a file: what lies
outside an edit is never looked at, only copied.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

BOM = b"\xef\xbb\xbf"
NEWLINES = (b"\n", b"\r")
COMPARED = 5_000
"""Lines that are compared to find the nearest one: `difflib` takes about 20 µs a line."""
SHOWN = 200
"""Characters of a line that an error quotes."""
SNIFFED = 8192
"""Bytes that are looked at to tell text from binary, as git does."""


class EditRefused(Exception):
    """The edit cannot be made exactly as asked; the message says why and what would do."""


@dataclass(frozen=True)
class Splice:
    """`removed` at byte `offset` becomes `inserted`; the first line it touches is `line` (1-based)."""

    offset: int
    removed: bytes
    inserted: bytes
    line: int

    def apply(self, data: bytes) -> bytes:
        """The file after the edit."""
        return data[: self.offset] + self.inserted + data[self.offset + len(self.removed) :]


def split(data: bytes) -> list[bytes]:
    """The lines with their endings; joined they are `data` again."""
    return data.splitlines(keepends=True)


def is_binary(data: bytes) -> bool:
    """Whether a NUL byte stands near the beginning (UTF-16 counts as binary)."""
    return b"\0" in data[:SNIFFED]


def body(line: bytes) -> bytes:
    """A line without its ending."""
    return line[: len(line) - len(ending(line))]


def ending(line: bytes) -> bytes:
    """The newline of a line, empty at the end of a file that has none."""
    for newline in (b"\r\n", b"\n", b"\r"):
        if line.endswith(newline):
            return newline
    return b""


def show(line: bytes) -> str:
    """A line's text for reading: bytes that are not UTF-8 become U+FFFD, the byte order mark is left out."""
    return body(line).decode("utf-8", "replace").lstrip("\ufeff")


def encode(text: str) -> bytes:
    """The bytes of new text; `EditRefused` for what UTF-8 cannot hold."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise EditRefused("the new text holds an unpaired surrogate, which UTF-8 cannot store") from error


def replace_lines(data: bytes, start: int, end: int, text: str) -> Splice:
    """Lines `start` to `end` (1-based, inclusive) become `text`; `end = start - 1` inserts before `start`.

    Empty text deletes. One newline at the end of `text` is optional: whole lines stay whole lines. Each new
    line takes the newline of the line that it replaces, further ones that of the last; inserted lines take
    their neighbour's. A missing newline at the end of the file stays missing.
    """
    lines = split(data)
    if not (1 <= start <= len(lines) + 1 and start - 1 <= end <= len(lines)):
        raise EditRefused(f"lines {start}-{end} are not in the file, whose last line is {len(lines)}")
    offset = sum(map(len, lines[: start - 1]))
    removed = lines[start - 1 : end]
    if start == 1 and data.startswith(BOM):
        offset += len(BOM)
        removed = [removed[0][len(BOM) :], *removed[1:]] if removed else []
    inserted = whole_lines(encode(text), endings_for(lines, start, end))
    if inserted and start > len(lines) and lines and not ending(lines[-1]):
        newline = common_ending(lines)  # the last line has no newline: one separates it from what is appended
        inserted = newline + inserted[: len(inserted) - len(ending(inserted))]
    elif inserted and removed and not ending(removed[-1]):
        inserted = inserted[: len(inserted) - len(ending(inserted))]
    return checked(data, Splice(offset, b"".join(removed), inserted, start))


def replace_block(data: bytes, old: str, text: str) -> Splice:
    """The only occurrence of `old` becomes `text`; newlines in `old` match any newline.

    A block of whole lines is replaced as lines are (see `replace_lines`), any other byte for byte.
    """
    found = occurrences(data, old)
    if not found:
        raise EditRefused(f"the block does not occur in the file{nearest(data, old)}")
    if len(found) > 1:
        numbers = ", ".join(str(line_at(data, begin)) for begin, _ in found)
        raise EditRefused(
            f"the block occurs {len(found)} times, at lines {numbers}: take in more lines around it, "
            "or replace by line numbers"
        )
    begin, finish = found[0]
    line, height = line_at(data, begin), len(split(data[begin:finish]))
    lines = split(data)
    line_begin = sum(map(len, lines[: line - 1]))
    if line == 1 and data.startswith(BOM):
        line_begin += len(BOM)
    at_end = finish == len(data) or data[finish - 1 : finish] in NEWLINES or data[finish : finish + 1] in NEWLINES
    if begin == line_begin and at_end:
        return replace_lines(data, line, line + height - 1, text)
    newline = ending(lines[line - 1]) or common_ending(lines)
    parts = [body(part) for part in split(encode(text) + b".")]  # the dot keeps a newline at the end apart
    return checked(data, Splice(begin, data[begin:finish], newline.join(parts)[:-1], line))


def occurrences(data: bytes, old: str) -> list[tuple[int, int]]:
    """Every place of `old`, overlapping ones too, as (first byte, byte after the last)."""
    if not old:
        raise EditRefused("the block to replace is empty: name its text, or insert by line numbers")
    parts = re.split(rb"\r\n|\n|\r", encode(old))
    pattern = re.compile(rb"(?:\r\n|(?<!\r)\n|\r(?!\n))".join(re.escape(part) for part in parts))
    found: list[tuple[int, int]] = []
    match = pattern.search(data)
    while match:
        found.append(match.span())
        match = pattern.search(data, match.start() + 1)
    return found


def line_at(data: bytes, offset: int) -> int:
    """The number of the line that holds the byte at `offset`."""
    return len(split(data[:offset] + b"."))


def nearest(data: bytes, old: str) -> str:
    """How the refusal of a block that does not occur goes on: the line most like the block's first."""
    lines = [show(line) for line in split(data)[:COMPARED]]
    wanted = [line.strip() for line in old.splitlines()]
    stripped = [line.strip() for line in lines]
    for index in range(len(lines) - len(wanted) + 1):
        if any(wanted) and stripped[index : index + len(wanted)] == wanted:
            return f": it differs only in white space from line {index + 1}: {lines[index]}"
    first = next((line for line in wanted if line), "")
    close = difflib.get_close_matches(first, sorted(set(stripped)), n=1, cutoff=0.5) if first else []
    if not close:
        return ""
    index = stripped.index(close[0])
    return f": the nearest line is {index + 1}: {lines[index][:SHOWN]}"


def whole_lines(new: bytes, endings: Sequence[bytes]) -> bytes:
    """`new` as complete lines; line i gets `endings[i]`, those beyond it the last of `endings`."""
    return b"".join(
        body(line) + (endings[index] if index < len(endings) else endings[-1]) for index, line in enumerate(split(new))
    )


def endings_for(lines: Sequence[bytes], start: int, end: int) -> list[bytes]:
    """The newlines that new lines at `start` to `end` take: the replaced lines' own, or a neighbour's."""
    neighbour = lines[start - 2 : start - 1] if start > 1 else lines[:1]
    models = lines[start - 1 : end] if end >= start else neighbour
    return [ending(line) or common_ending(lines) for line in models] or [b"\n"]


def common_ending(lines: Sequence[bytes]) -> bytes:
    """The newline that most lines have; `\\n` where there is none."""
    counts = Counter(ending(line) for line in lines)
    del counts[b""]
    return counts.most_common(1)[0][0] if counts else b"\n"


def checked(data: bytes, splice: Splice) -> Splice:
    """`splice`, unless it would make one newline of two: a lone `\\r` that comes to stand before a `\\n`."""
    before, after = data[: splice.offset], data[splice.offset + len(splice.removed) :]
    if (before.endswith(b"\r") and (splice.inserted + after).startswith(b"\n")) or (
        splice.inserted.endswith(b"\r") and after.startswith(b"\n")
    ):
        raise EditRefused("the edit would join a lone carriage return and a line feed into one newline")
    return splice
