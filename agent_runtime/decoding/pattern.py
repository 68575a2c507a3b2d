"""Regular expressions of JSON Schema's `pattern` (ECMA-262, the regular part) as languages.

A pattern matches anywhere in the string unless it is anchored. Where ECMA-262 and Python's `re` differ
(`\\d`, `\\w`, `\\s`, `.`, `$`), only what both accept is accepted, because validators use either.
Back-references, look-behind and word boundaries are refused.
"""

from __future__ import annotations

from functools import lru_cache

from agent_runtime.decoding.regular import EMPTY, Language, both, either, join, repeat, without
from agent_runtime.decoding.text import Ranges, Spelling, anything, characters, invert, ranges

_DIGIT = ranges([(0x30, 0x39)])
_WORD = ranges([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
_LINE_ENDS = ranges([(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)])
_SPACES_OF_BOTH = [(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)]
_SPACES_OF_BOTH += [(0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)]
_SPACE = ranges(_SPACES_OF_BOTH)
_SPACE_OF_EITHER = ranges([*_SPACES_OF_BOTH, (0x1C, 0x1F), (0x85, 0x85), (0xFEFF, 0xFEFF)])
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
_REPEAT_LIMIT = 1000


class PatternError(ValueError):
    """A pattern that is malformed, or not regular, or would be too large."""


@lru_cache(maxsize=1024)
def contains_match(pattern: str, spelling: Spelling) -> Language:
    """Every text in which `pattern` matches somewhere; `PatternError` when it cannot be expressed."""
    parser = _Parser(pattern, spelling)
    result = parser.alternatives()
    if parser.at < len(pattern):
        raise PatternError(f"unbalanced ')' in {pattern!r}")
    return result


@lru_cache(maxsize=1)
def _unicode_classes() -> tuple[Ranges, Ranges]:
    """Digits and word characters as Python's `re` sees them."""
    digit = ranges((c, c) for c in range(0x110000) if chr(c).isdecimal())
    word_like = ranges((c, c) for c in range(0x110000) if chr(c).isalnum() or c == 0x5F)
    return digit, word_like


class _Parser:
    """Recursive descent. The continuation is part of each alternative, so that look-ahead is `both`."""

    def __init__(self, pattern: str, spelling: Spelling) -> None:
        self.pattern = pattern
        self.spelling = spelling
        self.at = 0

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if self.peek(text):
            self.at += len(text)
            return True
        return False

    def alternatives(self) -> Language:
        """The top level: unanchored ends may be anything."""
        any_text = anything(self.spelling)
        options: list[Language] = []
        while True:
            anchored = False
            while self.take("^"):
                anchored = True
            body = self.sequence(any_text, top=True)
            options.append(body if anchored else join(any_text, body))
            if not self.take("|"):
                return either(*options)

    def sequence(self, rest: Language, top: bool) -> Language:
        """Terms up to `|`, `)` or the end, then `rest`; at the top level `$` replaces `rest` by the end."""
        terms: list[tuple[str, Language]] = []
        ended = False
        while self.at < len(self.pattern) and not self.peek("|") and not self.peek(")"):
            if self.take("$"):
                if not top:
                    raise PatternError(f"'$' inside a group of {self.pattern!r}")
                ended = True
                continue
            if self.peek("^"):
                raise PatternError(f"'^' inside {self.pattern!r}")
            if ended:
                raise PatternError(f"'$' inside {self.pattern!r}")
            if self.take("(?=") or self.take("(?!"):
                kind = self.pattern[self.at - 1]
                inner = self.look_ahead()
                terms.append((kind, inner))
                if not top:
                    raise PatternError(f"look-ahead inside a group of {self.pattern!r}")
                continue
            terms.append(("", self.quantified()))
        result = EMPTY if ended or not top else rest
        for kind, language in reversed(terms):
            if kind == "=":
                result = both(result, language)
            elif kind == "!":
                result = without(result, language)
            else:
                result = join(language, result)
        return result

    def look_ahead(self) -> Language:
        """The texts that start with a match, up to the closing parenthesis."""
        any_text = anything(self.spelling)
        options: list[Language] = []
        while True:
            options.append(self.sequence(any_text, top=True))
            if not self.take("|"):
                break
        self.close()
        return either(*options)

    def close(self) -> None:
        if not self.take(")"):
            raise PatternError(f"unbalanced '(' in {self.pattern!r}")

    def quantified(self) -> Language:
        atom = self.atom()
        low, high = 1, 1
        if self.take("*"):
            low, high = 0, -1
        elif self.take("+"):
            low, high = 1, -1
        elif self.take("?"):
            low, high = 0, 1
        elif self.peek("{"):
            end = self.pattern.find("}", self.at)
            first, comma, second = self.pattern[self.at + 1 : max(end, 0)].partition(",")
            if not first.isdigit() or not (second.isdigit() or not second) or end < 0:
                raise PatternError(f"a bare '{{' in {self.pattern!r}")
            low = int(first)
            high = int(second) if second else (-1 if comma else low)
            self.at = end + 1
        else:
            return atom
        self.take("?")  # lazy or greedy makes no difference to what matches
        if self.peek("*") or self.peek("+") or self.peek("?") or max(low, high) > _REPEAT_LIMIT:
            raise PatternError(f"a quantifier that is nested or above {_REPEAT_LIMIT} in {self.pattern!r}")
        if high != -1 and high < low:
            raise PatternError(f"a quantifier out of order in {self.pattern!r}")
        return repeat(atom, low, None if high == -1 else high)

    def atom(self) -> Language:
        if self.take("("):
            if self.take("?") and not self.take(":") and not self.named():
                raise PatternError(f"a group of an unsupported kind in {self.pattern!r}")
            options: list[Language] = []
            while True:
                options.append(self.sequence(EMPTY, top=False))
                if not self.take("|"):
                    break
            self.close()
            return either(*options)
        if self.take("["):
            return characters(self.char_class(), self.spelling)
        if self.take("."):
            return characters(invert(_LINE_ENDS), self.spelling)
        if self.take("\\"):
            return characters(self.escape(in_class=False), self.spelling)
        character = self.pattern[self.at]
        if character in "*+?{":
            raise PatternError(f"nothing to repeat before {character!r} in {self.pattern!r}")
        self.at += 1
        return characters(ranges([(ord(character), ord(character))]), self.spelling)

    def named(self) -> bool:
        end = self.pattern.find(">", self.at)
        if self.peek("<") and end > 0 and self.pattern[self.at + 1 : end].isidentifier():
            self.at = end + 1
            return True
        return False

    def char_class(self) -> Ranges:
        negated = self.take("^")
        pieces: list[tuple[int, int]] = []
        while not self.take("]"):
            low = self.class_atom(negated)
            if self.peek("-") and not self.peek("-]"):
                self.at += 1
                high = self.class_atom(negated)
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    raise PatternError(f"a range with a class in {self.pattern!r}")
                if low[0][0] > high[0][0]:
                    raise PatternError(f"a range out of order in {self.pattern!r}")
                pieces.append((low[0][0], high[0][0]))
            else:
                pieces += low
        return invert(ranges(pieces)) if negated else ranges(pieces)

    def class_atom(self, negated: bool) -> Ranges:
        if self.at >= len(self.pattern):
            raise PatternError(f"unbalanced '[' in {self.pattern!r}")
        if self.take("\\"):
            return self.escape(in_class=True, widest=negated)
        code = ord(self.pattern[self.at])
        self.at += 1
        return ranges([(code, code)])

    def escape(self, in_class: bool, widest: bool = False) -> Ranges:
        """One escape; `widest` takes the larger reading of a class, for use in a negated one."""
        if self.at >= len(self.pattern):
            raise PatternError(f"a backslash at the end of {self.pattern!r}")
        letter = self.pattern[self.at]
        self.at += 1
        if letter in "dwsDWS":
            return _class_escape(letter, widest)
        if letter in "xu":
            if self.take("{"):
                end = self.pattern.find("}", self.at)
                digits, self.at = self.pattern[self.at : max(end, 0)], end + 1
            else:
                length = 2 if letter == "x" else 4
                digits = self.pattern[self.at : self.at + length]
                self.at += length
                if len(digits) != length:
                    digits = ""
            try:
                code = int(digits, 16)
            except ValueError as error:
                raise PatternError(f"a malformed escape in {self.pattern!r}") from error
            if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
                raise PatternError(f"a surrogate in {self.pattern!r}")
            return ranges([(code, code)])
        if letter == "c" and self.at < len(self.pattern) and self.pattern[self.at].isascii():
            code = ord(self.pattern[self.at]) % 32
            self.at += 1
            return ranges([(code, code)])
        if letter == "b" and in_class:
            return ranges([(0x08, 0x08)])
        if letter in _CONTROLS:
            if letter == "0" and self.at < len(self.pattern) and self.pattern[self.at].isdigit():
                raise PatternError(f"an octal escape in {self.pattern!r}")
            return ranges([(_CONTROLS[letter], _CONTROLS[letter])])
        if letter.isalnum():
            raise PatternError(f"the escape \\{letter} in {self.pattern!r}")
        return ranges([(ord(letter), ord(letter))])


def _class_escape(letter: str, widest: bool) -> Ranges:
    inverted = letter.isupper()
    if letter in "sS":
        return invert(_SPACE if widest else _SPACE_OF_EITHER) if inverted else (_SPACE_OF_EITHER if widest else _SPACE)
    narrow = _DIGIT if letter in "dD" else _WORD
    if widest == inverted:
        return invert(narrow) if inverted else narrow
    wide = _unicode_classes()[0 if letter in "dD" else 1]
    return invert(wide) if inverted else wide
