"""JSON Schema (draft 2020-12) to the language of exactly the values that it allows.

Values are written canonically (`syntax.py`), one text for one value, so the schema's logic is the algebra
of regular languages: `allOf` is intersection, `anyOf` union, `not` difference from all values. A language
is kept apart for each JSON type: texts of different types never meet.

What no regular language holds is treated in one of two ways. Facts about a single text (a decimal is the
shortest of its float, free keys are distinct and sorted, a long `maxLength`, a long enum) are left out of the *wide*
language, which decoding runs on, and are checked afterwards by the *exact* one, which is never built as a
table; if the check fails, decoding repeats on the *sure* language, a part of the exact one. Everything else
is refused with its JSON pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from agent_runtime.decoding import numerals
from agent_runtime.decoding.containers import Property, arrays, arrays_of_distinct, arrays_with, objects
from agent_runtime.decoding.keywords import (
    TYPES,
    bound_of,
    count_of,
    escape,
    finite_values,
    flag_of,
    is_number,
    list_of,
    mapping_of,
    names_of,
    refuse_unknown,
    type_of,
    types_of,
)
from agent_runtime.decoding.listed import DIRECT, listed, nearest, outline
from agent_runtime.decoding.references import References
from agent_runtime.decoding.regular import NOTHING, Language, both, either, join, without, word
from agent_runtime.decoding.strings import string_content
from agent_runtime.decoding.syntax import Syntax
from agent_runtime.decoding.text import anything, literals, spelled
from agent_runtime.errors import UnsupportedSchema

Mode: TypeAlias = Literal["wide", "exact", "sure"]
Schema: TypeAlias = Mapping[str, Any] | bool
#: The language of each JSON type; a missing type has no values.
Values: TypeAlias = dict[str, Language]

#: How deep values may be nested where the schema does not say: when decoding, and when checking.
FREE_DEPTH = 2
CHECKED_DEPTH = 12
#: How many levels a recursive schema unrolls to when decoding, beyond what it spells out.
RECURSION_DEPTH = 1
#: Longer arrays than this are left to the check, like long strings (`strings.py`).
COUNTED_ITEMS = 64
_DISTINCT_LIMIT = 10
_MODULUS_LIMIT = 2000

_OBJECT_KEYWORDS = (
    "properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties",
    "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
)  # fmt: skip


class SchemaCompiler:
    """Compiles one document in one mode; `closed` is for tool calls, see `compile_calls`."""

    def __init__(self, root: Schema, syntax: Syntax, mode: Mode, closed: bool, decoded: Sequence[str] = ()) -> None:
        """`decoded`, for the sure mode, are the texts that the wide language led to."""
        self.root = root
        self.syntax = syntax
        self.mode: Mode = mode
        self.closed = closed
        self.decoded = decoded
        self.references = References(root)
        self._universes: dict[int, Values] = {}
        self._memo: dict[tuple[int, int, bool], Values] = {}
        self._active: set[tuple[int, int]] = set()
        self._exact: SchemaCompiler | None = None

    def language(self, pointer: str = "", only: str | None = None) -> Language:
        """Every allowed value, or every allowed value of one type, as text."""
        depth, recursive = self.references.depth(self.root)
        depth += FREE_DEPTH + (RECURSION_DEPTH if recursive else 0)
        if self.mode == "exact":
            depth = max(depth, CHECKED_DEPTH)
        values = self.values(self.root, pointer, depth, self.closed)
        return _union(values) if only is None else values.get(only, NOTHING)

    def universe(self, depth: int) -> Values:
        """Every JSON value nested at most `depth` deep."""
        if self.mode != "exact":
            depth = min(depth, FREE_DEPTH)
        depth = max(depth, 0)
        if depth not in self._universes:
            sure = self.mode == "sure"
            values = {
                "null": word("null"),
                "boolean": either(word("true"), word("false")),
                "number": either(numerals.INTEGER, numerals.SHORT_DECIMAL) if sure else numerals.NUMBER,
                "string": self.syntax.string(anything(self.syntax.spelling)),
            }
            if depth:
                inner = _union(self.universe(depth - 1))
                values["array"] = arrays([], inner)
                values["object"] = objects(self.syntax, {}, [(anything(self.syntax.spelling), inner)], sure=sure)
            self._universes[depth] = values
        return self._universes[depth]

    def values(self, schema: Any, pointer: str, depth: int, closed: bool) -> Values:
        """What `schema` allows, nested at most `depth` deep."""
        if schema is True:
            return self.universe(depth)
        if schema is False:
            return {}
        if not isinstance(schema, Mapping):
            raise UnsupportedSchema(pointer, "schema", f"{schema!r} is neither an object nor a boolean")
        key = (id(schema), depth, closed)
        if key not in self._memo:
            if (id(schema), depth) in self._active:
                raise UnsupportedSchema(pointer, "$ref", "the reference leads to itself without nesting")
            self._active.add((id(schema), depth))
            self._memo[key] = self._compile(schema, pointer, depth, closed)
            self._active.discard((id(schema), depth))
        return self._memo[key]

    def _compile(self, schema: Mapping[str, Any], pointer: str, depth: int, closed: bool) -> Values:
        refuse_unknown(schema, pointer)
        types = types_of(schema, pointer)
        everything = self.universe(depth)
        result = {name: everything[name] for name in everything if name in types}
        builders: dict[str, Callable[[], Language | None]] = {
            "number": lambda: self._numbers(schema, pointer, types["number"] == "integer"),
            "string": lambda: self._strings(schema, pointer),
            "array": lambda: self._arrays(schema, pointer, depth, closed),
            "object": lambda: self._objects(schema, pointer, depth, closed),
        }
        if depth <= 0:
            del builders["array"], builders["object"]
        for name, build in builders.items():
            if name in types:
                built = build()
                if built is not None:
                    result[name] = built
        return self._apply(result, schema, pointer, depth, closed)

    def _numbers(self, schema: Mapping[str, Any], pointer: str, whole: bool) -> Language | None:
        low, open_low = bound_of(schema, pointer, "minimum", "exclusiveMinimum", max)
        high, open_high = bound_of(schema, pointer, "maximum", "exclusiveMaximum", min)
        modulus = schema.get("multipleOf")
        if low is None and high is None and modulus is None and not whole:
            return None
        result = numerals.numbers(low, high, open_low, open_high)
        if whole:
            result = numerals.whole(low, high, open_low, open_high, plain=self.closed)
        if modulus is not None:
            if not is_number(modulus) or modulus <= 0:
                raise UnsupportedSchema(pointer, "multipleOf", f"{modulus!r} is not a positive number")
            if modulus != int(modulus):
                raise UnsupportedSchema(pointer, "multipleOf", "only whole numbers are exact in floating point")
            if modulus > _MODULUS_LIMIT:
                raise UnsupportedSchema(pointer, "multipleOf", f"more than {_MODULUS_LIMIT}")
            result = both(result, numerals.multiples(int(modulus)))
        return both(result, self.universe(0)["number"]) if self.mode == "sure" and not whole else result

    def _strings(self, schema: Mapping[str, Any], pointer: str) -> Language | None:
        low, high = count_of(schema, pointer, "minLength", 0), count_of(schema, pointer, "maxLength", None)
        content = string_content(schema, pointer, low or 0, high, self.syntax.spelling, self.mode)
        return None if content is None else self.syntax.string(content)

    def _arrays(self, schema: Mapping[str, Any], pointer: str, depth: int, closed: bool) -> Language | None:
        low = count_of(schema, pointer, "minItems", 0) or 0
        high = count_of(schema, pointer, "maxItems", None)
        prefix, rest_schema, rest_name = schema.get("prefixItems", []), schema.get("items", True), "items"
        if isinstance(rest_schema, Sequence):  # draft 7
            prefix, rest_schema, rest_name = rest_schema, schema.get("additionalItems", True), "additionalItems"
        elif "additionalItems" in schema and "prefixItems" in schema:
            raise UnsupportedSchema(pointer, "additionalItems", "mixed with prefixItems")
        if not isinstance(prefix, Sequence):
            raise UnsupportedSchema(pointer, "prefixItems", f"{prefix!r} is not a list")
        contains = schema.get("contains")
        unique = flag_of(schema, pointer, "uniqueItems") and (high is None or high > 1)
        if not prefix and rest_schema is True and not low and high is None and contains is None and not unique:
            return None
        if high is not None and high > COUNTED_ITEMS and self.mode != "exact":
            high = None if self.mode == "wide" else max(low, COUNTED_ITEMS)
        inside = depth - 1
        first_name = "prefixItems" if "prefixItems" in schema else "items"
        first = [
            _union(self.values(item, f"{pointer}/{first_name}/{index}", inside, closed))
            for index, item in enumerate(prefix)
        ]
        rest = _union(self.values(rest_schema, f"{pointer}/{rest_name}", inside, closed))
        if unique:
            values = finite_values(rest_schema) if not prefix else None
            if values is None or len(values) > _DISTINCT_LIMIT:
                reason = f"only over an enum of at most {_DISTINCT_LIMIT} values"
                raise UnsupportedSchema(pointer, "uniqueItems", reason)
            result = arrays_of_distinct([both(self.constant(value), rest) for value in values], low, high)
        else:
            result = arrays(first, rest, low, high)
        if contains is not None:
            least = count_of(schema, pointer, "minContains", 1)
            most = count_of(schema, pointer, "maxContains", None)
            match = _union(self.values(contains, f"{pointer}/contains", inside, False))
            exact = _union(self.exact().values(contains, f"{pointer}/contains", inside, False))
            other = without(_union(self.universe(inside)), exact)
            if least or most is not None:
                result = both(result, arrays_with(match, other, least or 0, most))
        return result

    def _objects(self, schema: Mapping[str, Any], pointer: str, depth: int, closed: bool) -> Language | None:
        if not any(keyword in schema for keyword in _OBJECT_KEYWORDS):
            return None
        properties = mapping_of(schema, pointer, "properties")
        patterns = mapping_of(schema, pointer, "patternProperties")
        required = names_of(schema.get("required", []), pointer, "required")
        rest = schema.get("additionalProperties", True)
        if closed and properties and "additionalProperties" not in schema and not patterns:
            rest = False
        spelling = self.syntax.spelling
        everything = anything(spelling)
        names = everything
        if "propertyNames" in schema:
            allowed = self.values(schema["propertyNames"], f"{pointer}/propertyNames", 0, False)
            names = self.syntax.inside(allowed.get("string", NOTHING))
        contents = {
            pattern: string_content({"pattern": pattern}, f"{pointer}/patternProperties", 0, None, spelling, "exact")
            or everything
            for pattern in patterns
        }
        inside = depth - 1

        def value_of(name: str) -> Language:
            found = [pattern for pattern in patterns if contents[pattern].contains(spelled(name, spelling).encode())]
            pieces = [(patterns[pattern], f"{pointer}/patternProperties/{escape(pattern)}") for pattern in found]
            if name in properties:
                pieces.append((properties[name], f"{pointer}/properties/{escape(name)}"))
            if not pieces:
                pieces.append((rest, f"{pointer}/additionalProperties"))
            if not names.contains(spelled(name, spelling).encode()):
                return NOTHING
            return _union(self._all([self.values(piece, where, inside, closed) for piece, where in pieces], inside))

        known = {name: Property(value_of(name), name in required) for name in {*properties, *required}}
        free: list[tuple[Language, Language]] = []
        for chosen in range(1 << len(patterns)):
            keys, pieces = names, []
            for index, pattern in enumerate(patterns):
                if chosen >> index & 1:
                    keys = both(keys, contents[pattern])
                    where = f"{pointer}/patternProperties/{escape(pattern)}"
                    pieces.append(self.values(patterns[pattern], where, inside, closed))
                else:
                    keys = without(keys, contents[pattern])
            if not pieces:
                pieces = [self.values(rest, f"{pointer}/additionalProperties", inside, closed)]
            value = _union(self._all(pieces, inside))
            if keys is not NOTHING and value is not NOTHING:
                free.append((keys, value))
        low = count_of(schema, pointer, "minProperties", 0) or 0
        high = count_of(schema, pointer, "maxProperties", None)
        result = objects(self.syntax, known, free, low, high, sure=self.mode == "sure")
        return self._dependencies(result, schema, pointer, depth)

    def _dependencies(self, result: Language, schema: Mapping[str, Any], pointer: str, depth: int) -> Language:
        """`dependentRequired`, `dependentSchemas`, and draft 7's `dependencies`, which is either."""
        needs: dict[tuple[str, str], Any] = {}
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, need in mapping_of(schema, pointer, keyword).items():
                needs[keyword, name] = need
        for (keyword, name), need in needs.items():
            lacking = self._with_keys({name: Property(NOTHING)}, depth)
            if isinstance(need, Sequence):
                inner = _union(self.universe(depth - 1))
                keys = {other: Property(inner, True) for other in (name, *names_of(need, pointer, keyword))}
                holding = self._with_keys(keys, depth)
            else:
                where = f"{pointer}/{keyword}/{escape(name)}"
                holding = self.values(need, where, depth, False).get("object", NOTHING)
            result = both(result, either(lacking, holding))
        return result

    def _with_keys(self, known: Mapping[str, Property], depth: int) -> Language:
        inner = _union(self.universe(depth - 1))
        free = [(anything(self.syntax.spelling), inner)]
        return objects(self.syntax, known, free, sure=self.mode == "sure")

    def _apply(self, result: Values, schema: Mapping[str, Any], pointer: str, depth: int, closed: bool) -> Values:
        """Narrows `result` by the keywords that hold for values of every type."""
        pieces = [result]
        # Two schemas of the same object must not both forbid what only the other one names.
        alone = closed and not any(keyword in schema for keyword in _OBJECT_KEYWORDS)
        alone = alone and len(_applicators(schema)) == 1
        if "const" in schema:
            pieces.append(self._constants([schema["const"]]))
        if "enum" in schema:
            if not isinstance(schema["enum"], Sequence) or isinstance(schema["enum"], str):
                raise UnsupportedSchema(pointer, "enum", "is not a list")
            pieces.append(self._constants(schema["enum"]))
        if "$ref" in schema:
            target, where = self.references.resolve(schema, pointer)
            pieces.append(self.values(target, where, depth, alone))
        options = {name: list_of(schema, pointer, name) for name in ("allOf", "anyOf", "oneOf")}
        for index, part in enumerate(options["allOf"]):
            lone = alone and len(options["allOf"]) == 1
            pieces.append(self.values(part, f"{pointer}/allOf/{index}", depth, lone))
        if options["anyOf"]:
            parts = enumerate(options["anyOf"])
            pieces.append(_any([self.values(p, f"{pointer}/anyOf/{i}", depth, alone) for i, p in parts]))
        if options["oneOf"]:
            pieces.append(self._one(options["oneOf"], f"{pointer}/oneOf", depth, alone))
        if "not" in schema:
            pieces.append(self._not(schema["not"], f"{pointer}/not", depth))
        if "if" in schema and ("then" in schema or "else" in schema):
            then = self.values(schema.get("then", True), f"{pointer}/then", depth, False)
            other = self.values(schema.get("else", True), f"{pointer}/else", depth, False)
            yes = self.values(schema["if"], f"{pointer}/if", depth, False)
            no = self._not(schema["if"], f"{pointer}/if", depth)
            pieces.append(_any([self._all([yes, then], depth), self._all([no, other], depth)]))
        return self._all(pieces, depth)

    def _all(self, pieces: Sequence[Values], depth: int) -> Values:
        """Intersection. What allows every value of a type leaves the others as they are."""
        everything = self.universe(depth)
        result = pieces[0]
        for piece in pieces[1:]:
            met: Values = {}
            for name in result.keys() & piece.keys():
                if result[name] is everything.get(name):
                    met[name] = piece[name]
                elif piece[name] is everything.get(name):
                    met[name] = result[name]
                else:
                    met[name] = both(result[name], piece[name])
            result = met
        return {name: result[name] for name in TYPES if result.get(name, NOTHING) is not NOTHING}

    def _not(self, schema: Any, pointer: str, depth: int) -> Values:
        denied = self.exact().values(schema, pointer, depth, False)
        return self._subtract(self.universe(depth), denied, depth)

    def _one(self, options: Sequence[Any], pointer: str, depth: int, closed: bool) -> Values:
        allowed = [self.values(part, f"{pointer}/{i}", depth, closed) for i, part in enumerate(options)]
        denied = [self.exact().values(part, f"{pointer}/{i}", depth, False) for i, part in enumerate(options)]
        return _any(
            [
                self._subtract(part, _any(denied[:index] + denied[index + 1 :]), depth)
                for index, part in enumerate(allowed)
            ]
        )

    def _subtract(self, part: Values, denied: Values, depth: int) -> Values:
        full = self.exact().universe(depth)
        return {
            name: without(part[name], denied.get(name, NOTHING))
            for name in part
            if denied.get(name) is not full.get(name, NOTHING)
        }

    def exact(self) -> SchemaCompiler:
        """The compiler for schemas under a negation, where wide would be wrong."""
        if self.mode == "exact":
            return self
        if self._exact is None:
            self._exact = SchemaCompiler(self.root, self.syntax, "exact", False)
        return self._exact

    def constant(self, value: Any) -> Language:
        """One value; whole numbers also as decimals (1 and 1.0 are equal)."""
        if isinstance(value, float) and not is_number(value):
            return NOTHING  # NaN and infinity are no JSON
        if is_number(value) and value == int(value) and not self.closed:
            number = int(value)
            zero = [word("-0.0")] if number == 0 else []
            return either(join(word(str(number)), either(word(".0"), word(""))), *zero)
        if isinstance(value, Mapping):
            known = {key: Property(self.constant(item), True) for key, item in value.items()}
            return objects(self.syntax, known, [])
        if isinstance(value, Sequence) and not isinstance(value, str):
            return arrays([self.constant(item) for item in value], NOTHING, len(value), len(value))
        return word(self.syntax.write(value))

    def _constants(self, values: Sequence[Any]) -> Values:
        found: dict[str, list[Language]] = {}
        texts = [value for value in values if isinstance(value, str)]
        for value in values:
            if not isinstance(value, str):
                found.setdefault(type_of(value), []).append(self.constant(value))
        result = {name: either(*options) for name, options in found.items()}
        if texts:
            result["string"] = self.syntax.string(self._listed(texts))
        return result

    def _listed(self, texts: Sequence[str]) -> Language:
        if len(texts) > DIRECT:
            if self.mode == "wide":
                return outline(tuple(texts), self.syntax.spelling)
            if self.mode == "exact":
                return listed(texts, self.syntax.spelling)
            texts = nearest(texts, self.decoded)
        return literals(texts, self.syntax.spelling)


def _union(values: Values) -> Language:
    return either(*values.values())


def _any(options: Sequence[Values]) -> Values:
    return {
        name: either(*(option[name] for option in options if name in option))
        for name in TYPES
        if any(name in option for option in options)
    }


def _applicators(schema: Mapping[str, Any]) -> list[str]:
    return [name for name in ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "enum", "const") if name in schema]
