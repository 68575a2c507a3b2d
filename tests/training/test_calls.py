import random

import numpy as np
import pytest

from agent_runtime import chat
from agent_runtime.decoding.lexer import lex
from agent_runtime.decoding.tokenizer import Tokenizer as RuntimeTokenizer
from agent_runtime.training import call_batches, calls
from agent_runtime.training.objectives import Noise


@pytest.fixture
def scribe(tokenizer):
    return calls.Scribe(tokenizer)


def transcripts(scribe, sources, count):
    rng = random.Random(0)
    made = (calls.transcript(scribe, lex(source), rng) for source in sources[:count])
    return [item for item in made if item is not None]


def test_calls_and_responses_are_written_as_the_runtime_writes_them(scribe, tokenizer):
    runtime = RuntimeTokenizer(tokenizer)
    values = {"start": 3, "end": 4, "path": "a.py", "text": "    return a[0]\n"}
    assert scribe.call("patch", values) == chat.to_ids(chat.render_call("patch", values), runtime)
    assert scribe.call("run_tests", {}) == chat.to_ids(chat.render_call("run_tests", {}), runtime)
    text = "FAILED 1 of 2 tests\nE   assert 1 == 2\n"
    assert scribe.response("run_tests", text) == chat.to_ids(chat.render_response("run_tests", text), runtime)
    schemas = {name: {"description": "", "parameters": {}} for name in calls.TOOLS}
    prompt = chat.to_ids(chat.render_prompt("", schemas, "Fix it.", declare=False), runtime)
    assert scribe.prompt(calls.TOOLS, "Fix it.") == prompt


def test_transcripts_run_the_tests_patch_and_say_how_it_ended(scribe, sources, tokenizer):
    for item in transcripts(scribe, sources, 60):
        names = [tokenizer.decode(call, skip_special_tokens=True).split(":")[1].split("{")[0] for _, call in item.steps]
        assert names[-1] == "finish"
        assert {"run_tests", "inspect"} <= set(names)
        for begin, call in item.steps:
            assert item.ids[begin : begin + len(call)] == call
        text = tokenizer.decode(item.ids, skip_special_tokens=False)
        solved = "PASSED" in text
        assert text.endswith(f'finish{{status:<|"|>{"solved" if solved else "unsolved"}<|"|>}}<tool_call|>')


def test_a_canvas_sees_its_past_and_itself_alone(scribe, sources):
    noise = Noise(hole=16, first=17, vocab=600)
    chosen = [item for item in transcripts(scribe, sources, 80) if len(item.ids) <= call_batches.CONTEXT][:3]
    batch = call_batches.batch(chosen, scribe, noise, np.random.default_rng(0))
    hidden = batch.mask()
    for row, item in enumerate(chosen):
        for number in set(batch.segment[row]) - {-1}:
            here = np.flatnonzero(batch.segment[row] == number)
            begin, call = item.steps[number]
            assert batch.targets[row, here][: len(call)].tolist() == call
            assert batch.positions[row, here[0]] == begin
            seen = np.flatnonzero(~hidden[row, here[0]])
            assert seen.tolist() == [*range(begin), *(call_batches.CONTEXT + here)]
            assert set(here[batch.tokens[row, here] != batch.targets[row, here]]) <= set(
                here[batch.weights[row, here] > 0]
            )
