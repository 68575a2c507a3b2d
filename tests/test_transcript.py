"""The transcript only grows, and text in it never becomes a special token: for anything that may happen in a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.chat import Special, render_call, render_prompt, render_response
from agent_runtime.decoding import default_tokenizer
from agent_runtime.transcript import Transcript

TOKENIZER = default_tokenizer()
NAMES = sorted(TOKENIZER.specials)
TEXTS = st.text(max_size=40) | st.lists(st.sampled_from([*NAMES, "call:finish{", "\r\n", "é", "x"]), max_size=6).map(
    "".join
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
HAPPENINGS = st.one_of(
    st.tuples(st.just("call"), st.dictionaries(TEXTS, VALUES, max_size=3)),
    st.tuples(st.just("response"), TEXTS),
    st.tuples(st.just("decoded"), st.lists(st.integers(0, TOKENIZER.vocab_size - 1), max_size=8)),
)


@given(st.lists(HAPPENINGS, max_size=8), TEXTS)
def test_the_tokens_of_a_step_are_a_prefix_of_the_next_ones(happenings, task):
    transcript = Transcript(TOKENIZER)
    transcript.append(render_prompt("fix it", {}, task, declare=False))
    for kind, what in happenings:
        before = transcript.ids
        if kind == "decoded":
            transcript.append_ids(what)
        else:
            transcript.append(render_call("x", what) if kind == "call" else render_response("x", what))
        assert transcript.ids[: len(before)] == before
        assert transcript.since(len(before)) == list(transcript.ids[len(before) :])


@given(TEXTS)
def test_a_response_holds_its_own_special_tokens_and_the_exact_text(text):
    transcript = Transcript(TOKENIZER)
    segments = render_response("inspect", text)
    transcript.append(segments)
    specials = set(TOKENIZER.specials.values())
    expected = [TOKENIZER.special(segment.name) for segment in segments if isinstance(segment, Special)]
    assert [token for token in transcript.ids if token in specials] == expected
    assert TOKENIZER.decode_bytes(transcript.ids) == f"response:inspect{{value:{text}}}".encode()


@pytest.mark.parametrize("position", [-1, 1])
def test_a_position_outside_the_transcript_is_an_error(position):
    with pytest.raises(ValueError, match="outside"):
        Transcript(TOKENIZER).since(position)
