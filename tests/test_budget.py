import pytest

from agent_runtime.budget import Budget


def test_a_fresh_budget_is_not_exhausted():
    assert Budget(max_steps=1, max_tokens=1, timeout=60).exhausted() is None


@pytest.mark.parametrize(
    ("spent", "reason"),
    [
        ({"steps": 3}, "the step budget of 3 is used up"),
        ({"tokens": 500}, "the token budget of 500 is used up"),
        ({"started": -1e9}, "the time budget of 60 s is used up"),
    ],
)
def test_what_ran_out_is_said_in_words(spent, reason):
    assert Budget(max_steps=3, max_tokens=500, timeout=60, **spent).exhausted() == reason


def test_a_call_gets_its_own_limit_or_what_is_left_of_the_run():
    budget = Budget(max_steps=3, max_tokens=500, timeout=60)
    assert budget.for_call(5) == 5
    assert 59 < budget.for_call(300) <= 60
    budget.started -= 100
    assert budget.for_call(5) == 0
