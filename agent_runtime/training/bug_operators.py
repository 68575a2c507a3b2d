"""The kinds of bugs: each operator lists the places of a function where it applies.

They mirror the slips that people make in small algorithms, not those of any collection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent_runtime.decoding.lexer import Lexeme
from agent_runtime.training.bug_sites import BUILTINS, CLOSERS, OPENERS, Code, Edit, Sites

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_NEAR = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_FLIP = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "<", "!=": "=="}
ARITHMETIC = {
    "+": "-*",
    "-": "+/",
    "*": ("+", "**", "//"),
    "/": ("//", "*"),
    "//": ("/", "%"),
    "%": ("//", "/"),
    "**": ("*",),
    "&": ("|", "^"),
    "|": ("&", "^"),
    "^": ("&", "|"),
    "<<": (">>",),
    ">>": ("<<",),
}
AUGMENTED = {
    "+=": ("-=", "="),
    "-=": ("+=", "="),
    "*=": ("+=", "/="),
    "/=": ("//=", "*="),
    "//=": ("/=", "%="),
    "%=": ("//=",),
    "|=": ("&=", "="),
    "&=": ("|=", "="),
    "^=": ("&=", "|="),
}
WORDS = {
    "and": ("or",), "or": ("and",), "break": ("continue",), "continue": ("break",),
    "True": ("False",), "False": ("True",), "min": ("max",), "max": ("min",), "any": ("all",),
    "all": ("any",), "while": ("if",), "if": ("while",), "elif": ("if",), "append": ("extend", "add"),
    "extend": ("append",), "add": ("remove", "append"), "keys": ("values", "items"),
    "values": ("keys",), "items": ("keys",), "lower": ("upper",), "upper": ("lower",),
    "startswith": ("endswith",), "endswith": ("startswith",), "lstrip": ("rstrip",), "pop": ("popleft", "remove"),
    "rstrip": ("lstrip",), "left": ("right",), "right": ("left",), "floor": ("ceil",), "ceil": ("floor",),
    "insert": ("append",), "popleft": ("pop",), "set": ("list",), "list": ("set",), "find": ("index", "rfind"),
    "ord": ("chr",), "chr": ("ord",), "sum": ("len",), "len": ("sum",), "sorted": ("list",), "None": ("False",),
    "int": ("float",), "float": ("int",), "return": ("yield",), "yield": ("return",), "range": ("len",),
}  # fmt: skip
WRAPPERS = ("len", "abs", "int", "sorted", "list", "str", "set", "sum", "max", "min", "reversed", "tuple")


def _op(text: str, lead: str = " ") -> Lexeme:
    return Lexeme("operator", text, lead)


def comparison(code: Code) -> Sites:
    """``<`` for ``<=``, ``==`` for ``!=``, ``in`` for ``not in``."""
    for at in code.inside():
        text = code.text(at)
        if code.kind(at) == "operator" and text in COMPARISONS:
            roll = code.rng.random()
            other = code.rng.choice([word for word in COMPARISONS if word != text])
            yield code.swap(at, _NEAR[text] if roll < 0.5 else _FLIP[text] if roll < 0.75 else other)
        elif text == "not" and code.text(at + 1) == "in":
            yield (Edit(at, at + 1),)
        elif text == "is" and code.text(at + 1) == "not":
            yield (Edit(at + 1, at + 2),)


def arithmetic(code: Code) -> Sites:
    """Another arithmetic or bit operator, or another augmented assignment."""
    for at in code.inside():
        if code.kind(at) != "operator":
            continue
        if code.text(at) in ARITHMETIC and code.binary(at):
            yield code.swap(at, code.rng.choice(ARITHMETIC[code.text(at)]))
        elif code.text(at) in AUGMENTED:
            yield code.swap(at, code.rng.choice(AUGMENTED[code.text(at)]))


def extra_offset(code: Code) -> Sites:
    """``+ 1`` or ``- 1`` too much; sometimes ``- name``."""
    for at in code.inside():
        if code.ends(at) and (code.simple(at - 1) or code.text(at - 1) in (")", "]")) and code.text(at) != ":":
            number = "1" if code.rng.random() < 0.8 or not code.names else code.rng.choice(code.names)
            kind = "number" if number == "1" else "name"
            yield (Edit(at, at, (_op(code.rng.choice("+-")), Lexeme(kind, number, " "))),)  # type: ignore[arg-type]


def missing_operand(code: Code) -> Sites:
    """``x + y`` without ``+ y`` or without ``x +``."""
    for at in code.inside():
        if code.text(at) in ("+", "-", "*", "//", "%", "/") and code.binary(at):
            stop = code.operand_end(at + 1)
            if stop - at <= 5:
                yield (Edit(at, stop),)
            if (
                code.simple(at - 1)
                and stop <= len(code.lexemes)
                and code.text(at - 2) in ("(", "[", ",", "=", "return")
            ):
                first = replace(code.lexemes[at + 1], lead=code.lexemes[at - 1].lead)
                yield (Edit(at - 1, at + 2, (first,)),)


def name_swap(code: Code) -> Sites:
    """One name of the function for another; most often a local."""
    if len(code.names) < 2:
        return
    for at in code.inside():
        text = code.text(at)
        if code.kind(at) != "name" or text in BUILTINS or code.text(at - 1) in (".", "for"):
            continue
        if code.text(at + 1) == "=" and code.text(at - 1) in ("(", ","):
            continue
        yield code.swap(at, code.rng.choice([name for name in code.names if name != text]))


def attribute_swap(code: Code) -> Sites:
    """One attribute of the function for another."""
    for at in code.inside():
        if code.kind(at) == "name" and code.text(at - 1) == "." and len(code.attributes) > 1:
            others = [name for name in code.attributes if name != code.text(at)]
            yield code.swap(at, code.rng.choice(others))


def operand_swap(code: Code) -> Sites:
    """Two neighbouring arguments, or the two sides of ``-``, ``/``, ``//``, ``%``, in the wrong order."""
    for at in code.inside():
        if code.text(at) in (",", "-", "/", "//", "%", "<", ">") and code.simple(at - 1) and code.simple(at + 1):
            left, right = code.lexemes[at - 1], code.lexemes[at + 1]
            if left.text != right.text and not (code.text(at) == "," and code.text(at + 2) == "="):
                yield (
                    Edit(at - 1, at, (replace(right, lead=left.lead),)),
                    Edit(at + 1, at + 2, (replace(left, lead=right.lead),)),
                )


def missing_clause(code: Code) -> Sites:
    """``if a and b`` without ``and b`` or without ``a and``."""
    for at in code.inside():
        if code.text(at) not in ("and", "or"):
            continue
        stop, depth = at + 1, 0
        while stop < len(code.lexemes):
            text = code.text(stop)
            depth += (text in OPENERS) - (text in CLOSERS) if text else 0
            if depth < 0 or (depth == 0 and (text in ("and", "or", ":", "else", ",") or code.kind(stop) == "newline")):
                break
            stop += 1
        yield (Edit(at, stop),)
        if code.text(at - 2) in ("if", "while", "return", "(", "elif", "not"):
            first = replace(code.lexemes[at + 1], lead=code.lexemes[at - 1].lead)
            yield (Edit(at - 1, at + 2, (first,)),)


def extra_clause(code: Code) -> Sites:
    """``and x`` or ``or x`` too much at the end of a condition; ``not`` too much or too few."""
    for at in code.inside():
        text = code.text(at)
        if text == "not" and code.text(at + 1) != "in" and code.text(at - 1) != "is":
            yield (Edit(at, at + 1),)
        elif text in ("if", "while", "elif") and code.text(at + 1) != "not":
            yield (Edit(at + 1, at + 1, (Lexeme("keyword", "not", " "),)),)
        elif text == ":" and code.kind(at + 1) == "newline" and code.names and code.text(at - 1) != "else":
            word = code.rng.choice(("and", "or"))
            yield (Edit(at, at, (Lexeme("keyword", word, " "), Lexeme("name", code.rng.choice(code.names), " "))),)


def unwrapped(code: Code) -> Sites:
    """``f(x)`` without ``f``, ``[x]`` without its brackets."""
    for start, stop in code.closer.items():
        if start <= code.body or stop - start > 8 or stop == start + 1:
            continue
        items = code.lexemes[start + 1 : stop]
        called = code.kind(start - 1) == "name" and code.lexemes[start].text == "("
        if any(item.text in (",", "for", ":", "=") for item in items) and called:
            continue
        if called and code.text(start - 2) != ".":
            first = replace(items[0], lead=code.lexemes[start - 1].lead)
            yield (Edit(start - 1, start + 2, (first,)), Edit(stop, stop + 1))
        elif code.text(start) == "[" and code.text(start - 1) in ("=", "(", "[", ",", "return", "+", ":"):
            first = replace(items[0], lead=code.lexemes[start].lead)
            yield (Edit(start, start + 2, (first,)), Edit(stop, stop + 1))


def wrapped(code: Code) -> Sites:
    """``len(x)`` for ``x``, ``[x]`` for ``x``, ``x[0]`` or ``x[1:]`` for ``x``."""
    for at in code.inside():
        if not code.simple(at) or code.kind(at) != "name" or code.text(at + 1) in ("=", ",", "in", "+=", "-="):
            continue
        item, roll = code.lexemes[at], code.rng.random()
        bare = replace(item, lead="")
        if roll < 0.5:
            word = Lexeme("name", code.rng.choice(WRAPPERS), item.lead)
            yield (Edit(at, at + 1, (word, _op("(", ""), bare, _op(")", ""))),)
        elif roll < 0.7:
            yield (Edit(at, at + 1, (_op("[", item.lead), bare, _op("]", ""))),)
        else:
            number = Lexeme("number", code.rng.choice("01"), "")
            colon = (_op(":", ""),) if code.rng.random() < 0.5 else ()
            yield (Edit(at + 1, at + 1, (_op("[", ""), number, *colon, _op("]", ""))),)


def missing_part(code: Code) -> Sites:
    """A call or list without one of its parts, a name without its attribute or index."""
    for at in code.inside():
        if code.text(at) == ",":
            stop = code.operand_end(at + 1)
            if code.ends(stop) and stop - at <= 4 and code.text(at - 1) != "(":
                yield (Edit(at, stop),)
            if code.simple(at - 1) and code.text(at - 2) in ("(", "["):
                first = replace(code.lexemes[at + 1], lead="")
                yield (Edit(at - 1, at + 2, (first,)),)
        elif code.text(at) == "." and code.kind(at - 1) == "name" and code.text(at + 2) not in (".", "(", "="):
            yield (Edit(at, at + 2),)
        elif code.text(at) == "[" and code.kind(at - 1) == "name" and code.text(at + 2) == "]":
            yield (Edit(at, at + 3),)
        elif code.text(at) == "-" and not code.binary(at):
            yield (Edit(at, at + 1),)


def extra_part(code: Code) -> Sites:
    """A call or list with one part too many."""
    for start, stop in code.closer.items():
        if start <= code.body or not code.names or code.text(stop - 1) == ",":
            continue
        if code.text(start) in ("(", "[") and (
            code.kind(start - 1) == "name" or "," in map(code.text, range(start, stop))
        ):
            name = code.rng.choice(code.names)
            lexeme = (
                Lexeme("name", name, " ") if code.rng.random() < 0.7 else Lexeme("number", code.rng.choice("012"), " ")
            )
            if stop == start + 1:
                yield (Edit(stop, stop, (replace(lexeme, lead=""),)),)
            else:
                yield (Edit(stop, stop, (_op(",", ""), lexeme)),)


def constant(code: Code) -> Sites:
    """A wrong small number, or the wrong side of a slice."""
    for at in code.inside():
        text = code.text(at)
        if code.kind(at) == "number" and text.isdigit() and len(text) < 3:
            near = [str(int(text) + step) for step in (-1, 1) if int(text) + step >= 0]
            far = [number for number in ("0", "1", "2", "10") if number != text]
            yield code.swap(at, code.rng.choice(near if code.rng.random() < 0.6 else far))
        elif text == ":" and code.simple(at - 1) and code.text(at - 2) == "[" and code.text(at + 1) == "]":
            yield (Edit(at - 1, at + 1, (code.lexemes[at], replace(code.lexemes[at - 1], lead=""))),)
        elif text == ":" and code.text(at - 1) == "[" and code.simple(at + 1) and code.text(at + 2) == "]":
            yield (Edit(at, at + 2, (replace(code.lexemes[at + 1], lead=""), code.lexemes[at])),)
            yield (Edit(at + 1, at + 2),)


def word_swap(code: Code) -> Sites:
    """A keyword, builtin or method for its neighbour in meaning."""
    for at in code.inside():
        text = code.text(at)
        if text in WORDS and code.kind(at) in ("keyword", "name") and code.text(at - 2) != "for":
            yield code.swap(at, code.rng.choice(WORDS[text]))


#: How often each kind is drawn, relative to the others.
OPERATORS: dict[Callable[[Code], Sites], float] = {
    comparison: 2.0, arithmetic: 2.0, extra_offset: 1.2, missing_operand: 2.2, name_swap: 3.0,
    attribute_swap: 0.7, operand_swap: 1.2, missing_clause: 1.2, extra_clause: 1.0, unwrapped: 1.6,
    wrapped: 1.2, missing_part: 1.3, extra_part: 0.8, constant: 1.6, word_swap: 1.6,
}  # fmt: skip
