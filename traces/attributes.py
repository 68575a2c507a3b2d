"""Attribute values as every exporter takes them.

The SDK checks them in its own spans. Ours are made without it, and one value that protobuf cannot write, such as a
numpy integer or a lone surrogate from a file's name, would lose a whole batch on its way to the collector.
"""

from collections.abc import Mapping
from typing import Any

from .conventions import AttributeValue

_PLAIN = frozenset({int, float, bool})


def plain(attributes: Mapping[str, Any] | None) -> dict[str, AttributeValue]:
    """A copy without those that are None, and with the others as strings, numbers, booleans or tuples of them."""
    if not attributes:
        return {}
    return {key: plain_value(value) for key, value in attributes.items() if value is not None}


def plain_value(value: Any) -> AttributeValue:
    """`value` itself where it is plain already."""
    kind = type(value)
    if kind in _PLAIN or (kind is str and value.isascii()):
        known: AttributeValue = value
        return known
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, list | tuple):
        return tuple(plain_value(item) for item in value)  # type: ignore[return-value]  # of one type or not
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value)
    if callable(getattr(value, "item", None)):
        return plain_value(value.item())  # a numpy or torch number
    return plain_text(str(value))


def plain_text(text: str) -> str:
    """`text` with question marks for what has no UTF-8 form."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
