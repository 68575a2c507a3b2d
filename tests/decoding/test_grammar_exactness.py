"""Grammars against brute force: every member of a small alphabet, listed, weighed and compared."""

from __future__ import annotations

import itertools

import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from agent_runtime.decoding import Grammar, ToolCall, compile_calls, compile_schema
from agent_runtime.decoding.tokenizer import Tokenizer
from agent_runtime.errors import CanvasTooSmall, DecodingError

SPECIALS = ("<pad>", "<eos>", '<|"|>')


def vocabulary(*words: str, specials: tuple[str, ...] = SPECIALS) -> Tokenizer:
    """A tokenizer of just these tokens (printable ASCII)."""
    ids = {name: index for index, name in enumerate((*specials, *dict.fromkeys(words)))}
    backend = Backend(models.BPE(vocab=ids, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(specials))
    return Tokenizer(backend)


def spelled(tokenizer: Tokenizer, *words: str) -> list[int]:
    """The ids of these tokens."""
    return [tokenizer.token_bytes.index(word.encode()) for word in words]


def members(grammar: Grammar, length: int) -> list[list[int]]:
    """Every sequence of `length` tokens that is a member and its tail, found by trying all."""
    specials = grammar.tokenizer.specials
    pad, eos = specials["<pad>"], specials["<eos>"]
    ordinary = [token for token in range(grammar.tokenizer.vocab_size) if token not in (pad, eos)]
    is_member = {}
    found = []
    for used in range(length + 1):
        tail = [eos] + [pad] * (length - used - 1) if used < length else []
        for tokens in itertools.product(ordinary, repeat=used):
            text = tuple(grammar.tokenizer.token_bytes[token] or token for token in tokens)
            text = tuple(part for word in text for part in ([word] if isinstance(word, int) else word))
            if text not in is_member:
                is_member[text] = grammar.contains(tokens)
            if is_member[text]:
                found.append([*tokens, *tail])
    return found


CASES = {
    "integers": ({"type": "integer", "minimum": -2, "maximum": 12}, "json", 4, "1 2 0 12 - -1 . 3"),
    "numbers": ({"type": "number", "exclusiveMinimum": 0.1, "maximum": 2}, "json", 4, "1 2 0 .1 . 0. 25"),
    "strings": ({"type": "string", "maxLength": 2}, "gemma", 5, "a b ab bb"),
    "pattern": ({"type": "string", "pattern": "^a+b?$", "minLength": 2, "maxLength": 3}, "gemma", 5, "a b ab aa bb"),
    "enum": ({"enum": ["a", "ab", 1, True]}, "json", 5, 'a b ab " "a 1 true t rue ue'),
    "arrays": ({"items": {"enum": [1, 2]}, "type": "array", "maxItems": 2}, "json", 5, "[ ] 1 2 , [1 1, 2]"),
    "unique": ({"items": {"enum": [1, 2]}, "uniqueItems": True, "type": "array"}, "json", 5, "[ ] 1 2 , [1 1, 2]"),
    "objects": (
        {"type": "object", "properties": {"a": {"enum": [1]}, "b": {"const": 2}}, "additionalProperties": False},
        "gemma",
        6,
        "{a {b :1 , b :2 } {",
    ),
    "exclusive": ({"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, "json", 3, "1 2 3 4"),
    "negated": ({"type": "integer", "minimum": 0, "maximum": 20, "not": {"multipleOf": 3}}, "json", 3, "1 2 0 3 9"),
}


@pytest.mark.parametrize("name", CASES)
def test_best_sum_and_marginals_agree_with_brute_force(name):
    schema, syntax, length, words = CASES[name]
    grammar = compile_schema(schema, vocabulary(*words.split()), syntax)
    vocab_size = grammar.tokenizer.vocab_size
    everything = torch.tensor(members(grammar, length))
    assert len(everything) > 1
    for seed in range(3):
        logp = torch.randn(length, vocab_size, generator=torch.Generator().manual_seed(seed)) * 2
        weights = logp.double()[torch.arange(length), everything].sum(dim=1)
        assert grammar.viterbi(logp).tolist() == everything[weights.argmax()].tolist()
        marginals = grammar.marginals(logp)
        assert marginals.log_z == pytest.approx(torch.logsumexp(weights, 0).item(), abs=1e-4)
        chances = torch.zeros(length, vocab_size, dtype=torch.float64)
        for tokens, chance in zip(everything, torch.softmax(weights, 0), strict=True):
            chances[torch.arange(length), tokens] += chance
        torch.testing.assert_close(marginals.token_logp().exp().double(), chances, atol=1e-5, rtol=1e-4)
        entropy = torch.special.entr(chances).sum(dim=1)
        torch.testing.assert_close(marginals.entropy.double(), entropy, atol=1e-4, rtol=1e-4)
        assert marginals.argmax.tolist() == chances.argmax(dim=1).tolist()
        torch.testing.assert_close(marginals.max_logp.exp().double(), chances.amax(dim=1), atol=1e-5, rtol=1e-4)
        single = [len(set(column)) == 1 for column in everything.T.tolist()]
        assert [token >= 0 for token in grammar.pinned(length).tolist()] == single
    assert grammar.min_length == min(int((row > 1).sum()) for row in everything)


def test_samples_come_as_often_as_their_weight_says():
    schema, syntax, length, words = CASES["strings"]
    grammar = compile_schema(schema, vocabulary(*words.split()), syntax)
    generator = torch.Generator().manual_seed(7)
    logp = torch.randn(length, grammar.tokenizer.vocab_size, generator=generator)
    everything = members(grammar, length)
    weights = logp.double()[torch.arange(length), torch.tensor(everything)].sum(dim=1)
    expected = torch.softmax(weights, 0)
    draws = 3000
    drawn = [grammar.sample(logp, generator).tolist() for _ in range(draws)]
    observed = torch.tensor([drawn.count(tokens) / draws for tokens in everything])
    assert observed.sum() == pytest.approx(1)
    # Three standard deviations for the largest of some ten shares.
    assert (observed - expected).abs().max() < 3 * (0.25 / draws) ** 0.5


def test_a_batch_is_decoded_like_its_rows():
    schema, syntax, length, words = CASES["objects"]
    grammar = compile_schema(schema, vocabulary(*words.split()), syntax)
    logp = torch.randn(2, 3, length, grammar.tokenizer.vocab_size)
    batch = grammar.viterbi(logp)
    assert batch.shape == (2, 3, length)
    assert all(torch.equal(batch[i, j], grammar.viterbi(logp[i, j])) for i in range(2) for j in range(3))


def test_a_long_canvas_with_extreme_logits_stays_exact():
    """Forced tokens 300 nats below the rest, 256 positions: probabilities far below any float."""
    tokenizer = vocabulary("a", "b", "c", "x")
    grammar = compile_schema({"type": "string", "pattern": "^(abc)*$"}, tokenizer, "gemma")
    logp = torch.full((256, tokenizer.vocab_size), -300.0)
    logp[:, spelled(tokenizer, "x")] = 300.0
    tokens = grammar.viterbi(logp)
    assert grammar.contains(tokens)
    marginals = grammar.marginals(logp)
    # 85 members fit, from the empty string to 84 repetitions, and all weigh the same.
    assert marginals.log_z == pytest.approx(-300.0 * 256 + torch.tensor(85.0).log().item(), abs=1e-2)


def test_a_canvas_that_is_too_small_is_refused():
    grammar = compile_schema({"const": "abc"}, vocabulary("a", "b", "c"), "gemma")
    with pytest.raises(CanvasTooSmall, match="5 tokens"):
        grammar.viterbi(torch.zeros(4, grammar.tokenizer.vocab_size))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_are_an_error(bad):
    grammar = compile_schema({"const": "a"}, vocabulary("a"), "gemma")
    logp = torch.full((4, grammar.tokenizer.vocab_size), bad)
    for decode in (grammar.viterbi, grammar.sample, grammar.marginals):
        with pytest.raises(DecodingError):
            decode(logp)


def test_special_tokens_never_stand_inside_a_string():
    names = (*SPECIALS, "<|tool_call>", "<tool_call|>", "<|turn>")
    tokenizer = vocabulary("a", "<", "|", '"', ">", "tool_call", "{k:", "}", "call:", "f", specials=names)
    schema = {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}
    grammar = compile_calls({"f": schema}, tokenizer)
    special = [tokenizer.special(name) for name in names]
    logp = torch.zeros(16, tokenizer.vocab_size)
    logp[:, special] = 10.0
    for seed in range(20):
        tokens = grammar.sample(logp, torch.Generator().manual_seed(seed)).tolist()
        quote = tokenizer.special('<|"|>')
        first = tokens.index(quote)
        last = tokens.index(quote, first + 1)
        assert not set(tokens[first + 1 : last]) & set(special)
        call = grammar.parse(tokens)
        assert isinstance(call, ToolCall)
        assert call.name == "f"
    text = [quote, *spelled(tokenizer, "a", "<", "|", "tool_call", "|", ">"), quote]
    head = [tokenizer.special("<|tool_call>"), *spelled(tokenizer, "call:", "f", "{k:")]
    tail = [*spelled(tokenizer, "}"), tokenizer.special("<tool_call|>")]
    assert grammar.parse([*head, *text, *tail]) == ToolCall("f", {"k": "a<|tool_call|>"})
