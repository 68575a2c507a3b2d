import jsonschema
import pytest

from agent_runtime.knowledge import Knowledge, is_source, listing, sayable
from agent_runtime.tool_definition import builtin_tools

TOOLS = builtin_tools()
EDIT = {"path": "a.py", "start": 3, "end": 3, "text": "x = 1\n"}
OTHERS = [f"docs/{number}.md" for number in range(30)]
FAILED, PASSED = {"status": "failed"}, {"status": "passed"}


def known(**facts):
    return Knowledge(files=["a.py", "b.py", "test_a.py", *OTHERS], **facts)


def says(schemas, name, arguments):
    return name in schemas and jsonschema.Draft202012Validator(schemas[name]).is_valid(arguments)


def guided(facts, proposal=None):
    return sayable(TOOLS, facts, proposal, guided=True)


def test_at_the_start_one_may_look_or_test_but_not_patch_or_finish():
    schemas = guided(known())
    assert set(schemas) == {"search", "inspect", "run_tests"}
    assert says(schemas, "inspect", {"path": "b.py"})
    assert not says(schemas, "inspect", {"path": "nowhere.py"})
    assert not says(schemas, "inspect", {"path": "a.py", "start": 1})


def test_what_was_shown_or_tested_is_not_asked_again():
    schemas = guided(known(inspected={"a.py"}, tests=FAILED, tests_current=True))
    assert "run_tests" not in schemas
    assert not says(schemas, "inspect", {"path": "a.py"})


def test_files_that_failing_tests_point_at_come_first():
    schemas = guided(known(tests=FAILED, tests_current=True, suspects=["b.py"]))
    assert says(schemas, "inspect", {"path": "b.py"})
    assert not says(schemas, "inspect", {"path": "a.py"})
    later = guided(known(tests=FAILED, tests_current=True, suspects=["b.py"], inspected={"b.py"}))
    assert says(later, "inspect", {"path": "a.py"})


def test_a_repository_of_few_files_needs_no_search():
    assert "search" not in guided(Knowledge(files=["a.py", "test_a.py"]))


def test_a_patch_is_exactly_the_best_untried_edit():
    schemas = guided(known(tests=FAILED, tests_current=True), EDIT)
    assert says(schemas, "patch", EDIT)
    assert not says(schemas, "patch", {**EDIT, "text": "x = 2\n"})


def test_a_change_is_tested_before_anything_else():
    facts = known(tests=FAILED, tests_current=True, inspected={"a.py"})
    facts.changed("a.py")
    assert set(guided(facts, EDIT)) == {"run_tests"}


@pytest.mark.parametrize(("tests", "status"), [(PASSED, "solved"), (FAILED, "unsolved")])
def test_finish_claims_what_the_tests_say(tests, status):
    facts = known(tests=tests, tests_current=True, inspected={"a.py", "b.py", "test_a.py", *OTHERS})
    schemas = guided(facts)
    assert set(schemas) == {"finish"}
    assert says(schemas, "finish", {"status": status})
    assert not says(schemas, "finish", {"status": {"solved": "unsolved", "unsolved": "solved"}[status]})


def test_tools_that_change_nothing_cannot_be_called_in_turns_for_ever():
    facts = known()
    facts.called("search")
    facts.called("changelog")
    tools = {**TOOLS, "changelog": TOOLS["search"]}
    assert set(sayable(tools, facts, None, guided=True)) == {"inspect", "run_tests"}
    facts.called("inspect")
    assert set(sayable(tools, facts, None, guided=True)) == {"inspect", "run_tests", "search", "changelog"}


def test_names_that_no_text_can_hold_are_not_offered():
    names = ["b.py", "naïve ☃.py", "odd-\udcff.py", "tab\t.py", "a.py"]
    assert listing(names) == ["a.py", "b.py", "naïve ☃.py"]


def test_a_free_model_may_patch_any_file_that_exists():
    schemas = sayable(TOOLS, known(), None, guided=False)
    assert says(schemas, "patch", EDIT)
    assert says(schemas, "patch", {"path": "b.py", "old": "x", "text": "y"})
    assert not says(schemas, "patch", {**EDIT, "path": "nowhere.py"})
    assert says(schemas, "finish", {"status": "unsolved"})


def test_suspects_alone_are_edited_while_there_are_any():
    facts = known(inspected={"a.py", "b.py", "test_a.py", *OTHERS}, suspects=["b.py", "test_a.py"])
    assert facts.editable() == ["b.py"]
    facts.exhausted.add("b.py")
    assert facts.editable() == ["a.py"]


@pytest.mark.parametrize(
    ("path", "source"),
    [("a.py", True), ("src/a.py", True), ("test_a.py", False), ("a_test.py", False), ("tests/a.py", False),
     ("pkg/conftest.py", False), ("a.txt", False)],
)  # fmt: skip
def test_tests_are_never_edited(path, source):
    assert is_source(path) is source
