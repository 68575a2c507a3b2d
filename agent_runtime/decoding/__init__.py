"""From a schema to tokens: tokenizer, grammars, canvases, samplers, decoders, checkpoints, edits.

May import `agent_runtime.errors` and `agent_runtime.chat`, nothing else of the package. Importing this
package is cheap: torch and numpy load when a name below is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_runtime.errors import UnsupportedSchema

if TYPE_CHECKING:
    from agent_runtime.decoding.call import ToolCall
    from agent_runtime.decoding.compiler import compile_calls, compile_schema, default_tokenizer
    from agent_runtime.decoding.engine import Marginals
    from agent_runtime.decoding.grammar import Grammar
    from agent_runtime.decoding.loading import load_decoder

_WHERE = {
    "Grammar": "grammar",
    "Marginals": "engine",
    "ToolCall": "call",
    "compile_calls": "compiler",
    "compile_schema": "compiler",
    "default_tokenizer": "compiler",
    "load_decoder": "loading",
}

__all__ = [
    "Grammar",
    "Marginals",
    "ToolCall",
    "UnsupportedSchema",
    "compile_calls",
    "compile_schema",
    "default_tokenizer",
    "load_decoder",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
