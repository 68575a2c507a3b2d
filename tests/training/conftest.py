"""A tiny corpus and a tokenizer trained on it."""

from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer

from agent_runtime.training.shards import lexeme_encoder
from agent_runtime.training.synthetic import write_function
from agent_runtime.training.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def sources() -> list[str]:
    rng = random.Random(0)
    return [write_function(rng) for _ in range(200)]


@pytest.fixture(scope="session")
def tokenizer(sources: list[str]) -> Tokenizer:
    return train_tokenizer(sources, vocab_size=600)


@pytest.fixture(scope="session")
def encode(tokenizer: Tokenizer):
    return lexeme_encoder(tokenizer)
