"""Train the byte-level BPE tokenizer of the small checkpoint.

Pre-tokenization cuts at lexeme boundaries, so no token spans two Python lexemes; only one space may
stand in front of what follows it, and a newline swallows the indentation behind it. Digits are single.
All 256 bytes are tokens, so every text can be written. Special tokens carry Gemma 4's names.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from agent_runtime.decoding.lexer import OPERATORS
from agent_runtime.training.corpus import Function

#: In this order from id 0; the names of the turn and tool tokens are those of Gemma 4.
SPECIAL_TOKENS = (
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<|turn>",
    "<turn|>",
    "<|tool>",
    "<tool|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    '<|"|>',
    "<|think|>",
    "<|channel>",
    "<channel|>",
    "<hole>",
)
PATTERN = rf"\n *| ?[^\W\d]+| ?\d| ?(?:{OPERATORS}|[^\w\s])| +|\s|."


def train_tokenizer(texts: Iterable[str], vocab_size: int = 4096) -> Tokenizer:
    """A byte-level BPE tokenizer of ``vocab_size`` tokens, special tokens included."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


#: What the tools say, so that the wording of transcripts is in the vocabulary.
_WORDING = """
tools: search inspect patch run_tests finish shell
call:run_tests{} call:inspect{path:main.py} call:search{pattern:def} call:finish{status:solved} unsolved
response:run_tests{value:FAILED 2 of 9 tests
first failure: test_main.py::test_main[input_data0-17]
test_main.py:14: assert main(*input_data) == expected
E   AssertionError: assert 0 == 17
at main.py:3
TIMED OUT after 10 s in tests/test_main.py::test_main
PASSED 9 tests
response:patch{value:replaced lines 3-4 of src/utils.py (edit 3 of 24):
none of 24 edits passes the tests; the files are unchanged
call:patch{end:3,path:main.py,start:3,text:
response:search{value:main.py:3: def
user model system Fix the bug in the repository so that all tests pass. failing error expected gives wrong results
"""


def tokenizer_texts(functions: Sequence[Function], seed: int, count: int = 60_000) -> Iterator[str]:
    """Functions by weight, and the tools' wording often enough to become whole tokens."""
    rng = random.Random(seed)
    for function in rng.choices(functions, [item.weight for item in functions], k=count):
        yield function.source
    for _ in range(count // 100):
        yield _WORDING


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that ``save_tokenizer`` wrote."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write ``tokenizer.json`` and the ``tokenizer_config.json`` that transformers reads beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "additional_special_tokens": [
            name for name in SPECIAL_TOKENS if name not in ("<bos>", "<eos>", "<pad>", "<unk>")
        ],
        "clean_up_tokenization_spaces": False,
        # Trained with the names of the tools alone: five full declarations would cost 600 tokens of prefill.
        "tool_declarations": False,
        "model_max_length": 4096,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
