"""The two ways to write a value: Gemma's tool syntax and JSON, both canonical: one text for one value.

A text is a sequence of symbols (`regular.py`): bytes, and special tokens such as the string delimiter.
Object keys are sorted by code point, there is no white space, numbers are as in `numerals.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent_runtime.chat import BARE_KEY, JSON
from agent_runtime.decoding.regular import QUOTE, Language, before, both, either, join, repeat, symbols, word
from agent_runtime.decoding.text import Spelling, literal
from agent_runtime.errors import DecodingError

_BARE = repeat(symbols(sum(1 << byte for byte in range(128) if re.fullmatch(BARE_KEY, chr(byte)))), 1)
_NUMERAL = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?")
_NAMES: tuple[tuple[bytes, JSON], ...] = ((b"null", None), (b"true", True), (b"false", False))


@dataclass(frozen=True)
class Syntax:
    """How strings and keys are delimited; everything else is the same in both syntaxes."""

    name: str
    spelling: Spelling
    delimiter: int
    """The symbol before and behind a string."""

    def string(self, content: Language) -> Language:
        """Strings whose inside, as spelled in this syntax, is in `content`."""
        quote = word((self.delimiter,))
        return join(quote, content, quote)

    def inside(self, strings: Language) -> Language:
        """The opposite of `string`."""
        return before(strings.after((self.delimiter,)), self.delimiter)

    def key(self, name: str) -> Language:
        """One object key, without the colon."""
        if self.name == "gemma" and is_bare(name):
            return word(name)
        return self.string(literal(name, self.spelling))

    def keys(self, content: Language) -> Language:
        """Every object key whose inside is in `content`."""
        if self.name == "json":
            return self.string(content)
        # Quoted exactly when it must be, so that a key has one form.
        quoted = both(content, _NOT_BARE)
        return either(both(content, _BARE), self.string(quoted))

    def write(self, value: JSON) -> list[int]:
        """The canonical symbols of `value`."""
        if self.name == "json":
            return list(json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode())
        out: list[int] = []
        _write_gemma(value, out)
        return out

    def read(self, text: Sequence[int]) -> JSON:
        """The value of canonical symbols; `DecodingError` for anything else."""
        value, end = _Reader(self, text).value(0)
        if end != len(text) or self.write(value) != list(text):
            raise DecodingError(f"not a canonical value in {self.name} syntax")
        return value


def is_bare(key: str) -> bool:
    """Whether Gemma's syntax writes `key` without delimiters."""
    return re.fullmatch(BARE_KEY + "+", key) is not None


def _write_gemma(value: JSON, out: list[int]) -> None:
    match value:
        case str():
            out += [QUOTE, *value.encode(), QUOTE]
        case Mapping():
            out.append(0x7B)
            for index, key in enumerate(sorted(value)):
                out += b"," if index else b""
                out += key.encode() if is_bare(key) else [QUOTE, *key.encode(), QUOTE]
                out += b":"
                _write_gemma(value[key], out)
            out.append(0x7D)
        case None | bool() | int() | float():
            out += json.dumps(value).encode()
        case _:
            out.append(0x5B)
            for index, item in enumerate(value):
                out += b"," if index else b""
                _write_gemma(item, out)
            out.append(0x5D)


class _Reader:
    """A recursive-descent reader; lenient where `Syntax.read` compares with the canonical text anyway."""

    def __init__(self, syntax: Syntax, text: Sequence[int]) -> None:
        self.syntax = syntax
        self.text = text

    def value(self, at: int) -> tuple[JSON, int]:
        text = self.text
        if at < len(text):
            if text[at] == self.syntax.delimiter:
                return self.string(at)
            if text[at] == 0x7B:
                return self.object(at + 1)
            if text[at] == 0x5B:
                return self.array(at + 1)
        ahead = self.plain(at)
        for name, constant in _NAMES:
            if ahead.startswith(name):
                return constant, at + len(name)
        found = _NUMERAL.match(ahead)
        if not found:
            raise DecodingError(f"no value at symbol {at}")
        number = float(found[0]) if found[1] else _integer(found[0])
        return number, at + found.end()

    def plain(self, at: int) -> bytes:
        """The bytes from `at` to the next delimiter, comma or bracket."""
        end = at
        while end < len(self.text) and self.text[end] < 256 and self.text[end] not in b",]}:":
            end += 1
        return bytes(self.text[at:end])

    def string(self, at: int) -> tuple[str, int]:
        end = at + 1
        quote = self.syntax.delimiter
        escapes = self.syntax.name == "json"
        while end < len(self.text) and self.text[end] != quote:
            end += 2 if escapes and self.text[end] == 0x5C else 1
        body = self.text[at + 1 : end]
        try:
            content = bytes(body).decode()
            return (json.loads(f'"{content}"') if escapes else content), end + 1
        except ValueError as error:
            raise DecodingError(f"no string at symbol {at}: {error}") from error

    def object(self, at: int) -> tuple[dict[str, JSON], int]:
        found: dict[str, JSON] = {}
        while at < len(self.text) and self.text[at] != 0x7D:
            if found:
                at = self.expect(0x2C, at)
            if at < len(self.text) and self.text[at] == self.syntax.delimiter:
                key, at = self.string(at)
            else:
                bare = self.plain(at)
                key, at = bare.decode(errors="replace"), at + len(bare)
            at = self.expect(0x3A, at)
            found[key], at = self.value(at)
        return found, self.expect(0x7D, at)

    def array(self, at: int) -> tuple[list[JSON], int]:
        found: list[JSON] = []
        while at < len(self.text) and self.text[at] != 0x5D:
            if found:
                at = self.expect(0x2C, at)
            item, at = self.value(at)
            found.append(item)
        return found, self.expect(0x5D, at)

    def expect(self, symbol: int, at: int) -> int:
        if at >= len(self.text) or self.text[at] != symbol:
            raise DecodingError(f"expected {chr(symbol)!r} at symbol {at}")
        return at + 1


def _integer(digits: bytes) -> int:
    try:
        return int(digits)
    except ValueError as error:  # Python refuses to read more than 4,300 digits
        raise DecodingError("an integer of more than 4,300 digits") from error


def text_of(parts: Iterable[int]) -> str:
    """Symbols as text, for messages: special tokens by name."""
    from agent_runtime.decoding.regular import SPECIALS

    out = b""
    for part in parts:
        out += bytes([part]) if part < 256 else SPECIALS[part - 256].encode()
    return out.decode(errors="replace")


def _not_bare() -> Language:
    from agent_runtime.decoding.regular import without
    from agent_runtime.decoding.text import anything

    return without(anything("raw"), _BARE)


_NOT_BARE = _not_bare()
GEMMA = Syntax("gemma", "raw", QUOTE)
JSON_SYNTAX = Syntax("json", "json", 0x22)
SYNTAXES = {syntax.name: syntax for syntax in (GEMMA, JSON_SYNTAX)}
