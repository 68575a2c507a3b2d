"""`inspect` shows lines so that `patch` can name them."""

from __future__ import annotations

from pathlib import Path

from agent_runtime.tools.inspection import inspect
from agent_runtime.tools.patch import patch

from .conftest import fill


def test_lines_are_numbered_and_tabs_are_tabs(workspace):  # F2
    fill(workspace, {"a.py": "if x:\n\treturn 1\n"})
    outcome = inspect(workspace, "a.py")
    assert outcome.text == "1: if x:\n2: \treturn 1\n"
    assert outcome.data == {"path": "a.py", "start": 1, "end": 2, "total": 2, "lines": ["if x:", "\treturn 1"]}


def test_what_is_shown_can_be_named_in_a_patch(workspace):
    fill(workspace, {"a.py": b"if x:\r\n\treturn 1\r\n"})
    shown = inspect(workspace, "a.py").data["lines"][1]
    assert patch(workspace, "a.py", old=shown, text="\treturn 2").ok
    assert Path(workspace.root, "a.py").read_bytes() == b"if x:\r\n\treturn 2\r\n"


def test_a_range_tells_how_many_lines_there_are(workspace):
    fill(workspace, {"a": "".join(f"{number}\n" for number in range(1, 10))})
    assert inspect(workspace, "a", 3, 4).text == "3: 3\n4: 4\n[lines 3-4 of 9]\n"
    assert inspect(workspace, "a", start=9).text == "9: 9\n[lines 9-9 of 9]\n"
    assert inspect(workspace, "a", end=99).text.startswith("1: 1\n")
    assert inspect(workspace, "a", 10).error["kind"] == "usage"
    assert inspect(workspace, "a", 3, 2).error["kind"] == "usage"


def test_a_long_file_and_a_long_line_are_cut_and_say_so(workspace):
    fill(workspace, {"a": "x\n" * 1_000, "b": "y" * 3_000})
    assert inspect(workspace, "a").text.endswith("400: x\n[lines 1-400 of 1000]\n")
    assert inspect(workspace, "b").text == "1: " + "y" * 400 + "… (3000 characters)\n"


def test_crlf_is_told_once_and_not_shown(workspace):  # F1
    fill(workspace, {"a": b"one\r\ntwo\r\n"})
    assert inspect(workspace, "a").text == "1: one\n2: two\n[lines end with CRLF, which patch keeps]\n"


def test_the_outline_of_python_is_its_classes_and_functions(workspace):
    source = "import os\n\n\nclass A:\n    @property\n    def b(self):\n        return 1\n\n\nasync def c(): ...\n"
    fill(workspace, {"a.py": source})
    outcome = inspect(workspace, "a.py", outline=True)
    assert outcome.text == "4: class A:\n6:     def b(self):\n10: async def c(): ...\n"
    assert outcome.data["outline"][0] == {"start": 4, "end": 7, "text": "class A:"}


def test_the_outline_of_other_files_is_their_headings_and_definitions(workspace):
    fill(
        workspace,
        {
            "a.md": "# One\ntext\n## Two\n",
            "a.ts": "export class A {\n  private x = 1;\n}\nexport const f = async (x) => x;\nfunction g() {}\n",
            "a.c": "int main(int argc, char **argv)\n{\n  return call(argc);\n}\n",
            "broken.py": "def f(:\n    x\n",
        },
    )
    assert inspect(workspace, "a.md", outline=True).text == "1: # One\n3: ## Two\n"
    assert inspect(workspace, "a.ts", outline=True).text.splitlines() == [
        "1: export class A {",
        "4: export const f = async (x) => x;",
        "5: function g() {}",
    ]
    assert inspect(workspace, "a.c", outline=True).text == "1: int main(int argc, char **argv)\n"
    assert inspect(workspace, "broken.py", outline=True).text == "1: def f(:\n"


def test_a_directory_lists_its_entries(workspace):
    fill(workspace, {"b.txt": "", "a/x": "", ".git/config": ""})
    assert inspect(workspace, ".").text == "a/\nb.txt\n"
    assert inspect(workspace, "a").data["entries"] == ["x"]


def test_what_is_no_text_is_answered_in_a_sentence(workspace, tmp_path):
    fill(workspace, {"a.bin": b"\0" * 10, "empty": ""})
    Path(workspace.root, "link").symlink_to("/etc")
    assert inspect(workspace, "a.bin").text == "a.bin is a binary file of 10 bytes"
    assert inspect(workspace, "empty").text == "[empty is empty]\n"
    assert inspect(workspace, "nothing").error["kind"] == "not_found"
    assert inspect(workspace, "link/passwd").error["kind"] == "outside_workspace"  # F6
    assert inspect(workspace, "/etc/passwd").error["kind"] == "outside_workspace"
