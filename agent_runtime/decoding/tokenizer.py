"""A byte-exact view of a checkpoint's `tokenizer.json`.

Constrained decoding needs to know which bytes each token stands for, and that text can never turn
into a special token. Both are settled here, once, for every vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from agent_runtime.errors import CheckpointError


def _byte_level_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE vocabularies use for the 256 bytes (GPT-2, 2019)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    shifted = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(shifted)})
    return alphabet


class Tokenizer:
    """Text to token ids and back, without loss, for any `tokenizer.json`.

    Two kinds of vocabulary are understood: byte-level BPE (as in the small checkpoint) and
    SentencePiece-style BPE with `▁` for the space and `<0x0A>`-style byte tokens (as in Gemma).
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        # Without this, "<|tool_call>" in a file that a tool reads would become the special token itself.
        self._backend.encode_special_tokens = True
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.specials: dict[str, int] = {
            added.content: index for index, added in backend.get_added_tokens_decoder().items()
        }

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Read `tokenizer.json` in a checkpoint folder; `CheckpointError` when it is missing or corrupt."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: give a checkpoint folder that holds a tokenizer.json")
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the binding raises bare Exception for every parse error
            raise CheckpointError(f"{path} cannot be read as a tokenizer: {error}") from error
        return cls(backend)

    @cached_property
    def fingerprint(self) -> str:
        """A short digest that names this vocabulary in cache keys."""
        import hashlib

        return hashlib.sha256(self._backend.to_str().encode()).hexdigest()[:16]

    @cached_property
    def token_bytes(self) -> list[bytes | None]:
        """For each id the bytes that it stands for; None for special tokens and unused ids."""
        byte_level = '"ByteLevel"' in json.dumps(json.loads(self._backend.to_str()).get("decoder"))
        alphabet = _byte_level_alphabet() if byte_level else {}
        table: list[bytes | None] = [None] * self.vocab_size
        special_ids = set(self.specials.values())
        for token, index in self._backend.get_vocab(with_added_tokens=True).items():
            if index in special_ids:
                continue
            if byte_level:
                table[index] = bytes(alphabet[character] for character in token)
            elif len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                table[index] = bytes([int(token[3:5], 16)])
            else:
                table[index] = token.replace("▁", " ").encode()
        return table

    def special(self, name: str) -> int:
        """The id of the special token called `name`; `CheckpointError` when the vocabulary lacks it."""
        if name not in self.specials:
            raise CheckpointError(f"the vocabulary has no special token {name!r}: use a tool-calling checkpoint")
        return self.specials[name]

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text; special tokens written out in it stay ordinary characters."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of `ids`; special tokens contribute nothing."""
        return b"".join(self.token_bytes[index] or b"" for index in ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`; invalid UTF-8 shows as U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")
