"""Languages of numbers: integers and decimals in canonical form, with exact bounds and multiples.

Canonical is what `json.dumps` writes without an exponent: `-?(0|[1-9]\\d*)` for an integer, and for a
decimal the shortest digits that give the float back (`2.5`, `1.0`, `-0.0`). That a decimal is the shortest one is
not regular; `syntax.py` checks it. With that check, comparing digits is comparing floats.
"""

from __future__ import annotations

from decimal import Decimal

from agent_runtime.decoding.regular import (
    EMPTY,
    NOTHING,
    Language,
    both,
    either,
    join,
    optional,
    repeat,
    residue,
    symbols,
    without,
    word,
)


def digits(low: int, high: int = 9) -> Language:
    """One digit from `low` to `high`."""
    return symbols((1 << (0x30 + high + 1)) - (1 << (0x30 + low))) if low <= high else NOTHING


ANY_DIGIT = digits(0)
NATURAL = either(word("0"), join(digits(1), repeat(ANY_DIGIT)))
INTEGER = either(NATURAL, join(word("-"), digits(1), repeat(ANY_DIGIT)))
DECIMAL = join(optional(word("-")), NATURAL, word("."), either(word("0"), join(repeat(ANY_DIGIT), digits(1))))
"""Decimals; also some that are not the shortest ones."""
_SIGN = optional(word("-"))
SHORT_DECIMAL = without(
    both(DECIMAL, join(_SIGN, repeat(either(ANY_DIGIT, word(".")), 3, 16))),
    join(_SIGN, word("0.0000"), repeat(ANY_DIGIT)),
)
"""Decimals of at most 15 digits: each is the shortest one of its float, and none needs an exponent."""
NUMBER = either(INTEGER, DECIMAL)


def integers(low: int | None, high: int | None) -> Language:
    """Integers from `low` to `high`, both included; None is no bound."""
    if low is None and high is None:
        return INTEGER
    if low is not None and high is not None and low > high:
        return NOTHING
    if low is not None and low >= 0:
        return _naturals(low, high)
    if high is not None and high <= 0:
        negative = join(word("-"), _naturals(max(1, -high), None if low is None else -low))
        return either(negative, word("0")) if high == 0 else negative
    negative = join(word("-"), _naturals(1, None if low is None else -low))
    return either(_naturals(0, high), negative)


def numbers(low: Decimal | None, high: Decimal | None, open_low: bool = False, open_high: bool = False) -> Language:
    """Integers and decimals in an interval; `open_…` excludes the bound itself."""
    if low is None and high is None:
        return NUMBER
    whole_low, whole_high = _integer_bounds(low, high, open_low, open_high)
    parts = [DECIMAL]
    if low is not None:
        parts.append(_decimals_from(low, open_low))
    if high is not None:
        parts.append(_decimals_to(high, open_high))
    decimals = parts[0]
    for part in parts[1:]:
        decimals = both(decimals, part)
    return either(integers(whole_low, whole_high), decimals)


def whole(low: Decimal | None, high: Decimal | None, open_low: bool, open_high: bool, plain: bool) -> Language:
    """Numbers without a fraction in an interval; unless `plain`, also written as decimals (`3.0`)."""
    first, last = _integer_bounds(low, high, open_low, open_high)
    result = integers(first, last)
    if plain:
        return result
    zero = word("-0.0") if (first is None or first <= 0) and (last is None or last >= 0) else NOTHING
    return either(join(result, optional(word(".0"))), zero)


def multiples(modulus: int) -> Language:
    """Whole numbers that `modulus` divides, as integers or decimals."""
    return join(optional(word("-")), residue(modulus), optional(word(".0")))


def _integer_bounds(
    low: Decimal | None, high: Decimal | None, open_low: bool, open_high: bool
) -> tuple[int | None, int | None]:
    """The least and the greatest integer of an interval."""
    first = last = None
    if low is not None:
        first = int(low.to_integral_value("ROUND_CEILING"))
        first += open_low and first == low
    if high is not None:
        last = int(high.to_integral_value("ROUND_FLOOR"))
        last -= open_high and last == high
    return first, last


def _naturals(low: int, high: int | None) -> Language:
    """Naturals from `low` to `high`."""
    if high is None:
        text = str(low)
        longer = join(digits(1), repeat(ANY_DIGIT, len(text)))
        if low == 0:
            return NATURAL
        return either(_same_length(text, "9" * len(text)), longer)
    options: list[Language] = []
    for length in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (length - 1) if length > 1 else 0)
        last = min(high, 10**length - 1)
        if first <= last:
            options.append(_same_length(str(first), str(last)))
    return either(*options)


def _same_length(low: str, high: str) -> Language:
    """Digit strings of one length from `low` to `high`."""
    if not low:
        return EMPTY
    if low == "0" * len(low) and high == "9" * len(high):
        return repeat(ANY_DIGIT, len(low), len(low))
    first, last = int(low[0]), int(high[0])
    if first == last:
        return join(digits(first, first), _same_length(low[1:], high[1:]))
    rest = len(low) - 1
    return either(
        join(digits(first, first), _same_length(low[1:], "9" * rest)),
        join(digits(first + 1, last - 1), repeat(ANY_DIGIT, rest, rest)),
        join(digits(last, last), _same_length("0" * rest, high[1:])),
    )


def _decimals_from(low: Decimal, strict: bool) -> Language:
    """Decimals at least `low` (more than it when `strict`), any number of digits."""
    if low > 0:
        return _magnitudes_from(low, strict)
    negative = join(word("-"), _magnitudes_to(-low, strict))
    return negative if low > 0 else either(negative, _magnitudes_from(Decimal(0), strict and low == 0))


def _decimals_to(high: Decimal, strict: bool) -> Language:
    """Decimals at most `high` (less than it when `strict`)."""
    if high < 0:
        return join(word("-"), _magnitudes_from(-high, strict))
    negative = join(word("-"), _magnitudes_from(Decimal(0), strict and high == 0))
    return either(_magnitudes_to(high, strict), negative)


def _magnitudes_from(bound: Decimal, strict: bool) -> Language:
    """Unsigned decimals of at least `bound` ≥ 0."""
    whole, fraction = _split(bound)
    above = join(_naturals(int(whole) + 1, None), word("."), repeat(ANY_DIGIT, 1))
    return either(above, join(word(whole), word("."), _fraction_from(fraction, strict)))


def _magnitudes_to(bound: Decimal, strict: bool) -> Language:
    """Unsigned decimals of at most `bound` ≥ 0."""
    whole, fraction = _split(bound)
    options = [join(word(whole), word("."), _fraction_to(fraction, strict))]
    if int(whole):
        options.append(join(_naturals(0, int(whole) - 1), word("."), repeat(ANY_DIGIT, 1)))
    return either(*options)


def _split(bound: Decimal) -> tuple[str, str]:
    """Digits before and behind the point, without zeros at the end."""
    whole, _, fraction = f"{bound:f}".partition(".")
    return whole, fraction.rstrip("0")


def _fraction_from(bound: str, strict: bool) -> Language:
    """Digits behind the point (at least one) whose value is at least that of `bound`."""
    if not bound:
        one_more = join(repeat(word("0")), digits(1), repeat(ANY_DIGIT))
        return one_more if strict else repeat(ANY_DIGIT, 1)
    result = join(repeat(word("0")), digits(1), repeat(ANY_DIGIT)) if strict else repeat(ANY_DIGIT)
    for digit in reversed(bound):
        higher = join(digits(int(digit) + 1), repeat(ANY_DIGIT))
        result = either(higher, join(digits(int(digit), int(digit)), result))
    return result


def _fraction_to(bound: str, strict: bool) -> Language:
    """Digits behind the point (at least one) whose value is at most that of `bound`."""
    if not bound:
        return NOTHING if strict else repeat(word("0"), 1)
    result = NOTHING if strict else repeat(word("0"))
    for index in reversed(range(len(bound))):
        lower = join(digits(0, int(bound[index]) - 1), repeat(ANY_DIGIT))
        here = either(lower, join(digits(int(bound[index]), int(bound[index])), result))
        # Ending here means zeros from here on, which is less than the bound (it does not end in 0).
        result = either(here, EMPTY) if index else here
    return result
