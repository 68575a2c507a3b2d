import subprocess

import pytest

from agent_runtime.errors import PatchConflict
from agent_runtime.patches import apply_patch

PATCH = b"""diff --git a/a.txt b/a.txt
--- a/a.txt
+++ b/a.txt
@@ -1,2 +1,2 @@
 one
-two
+TWO
diff --git a/b.txt b/b.txt
new file mode 100644
--- /dev/null
+++ b/b.txt
@@ -0,0 +1 @@
+new
"""


@pytest.fixture(params=["plain folder", "git repository", "folder inside another repository"])
def repo(request, tmp_path):
    folder = tmp_path / "outer" / "repo"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"one\ntwo\n")
    if request.param != "plain folder":
        where = folder if request.param == "git repository" else folder.parent
        subprocess.run(["git", "init", "-q", str(where)], check=True)
    return folder


def test_the_whole_patch_is_applied(repo):
    apply_patch(repo, PATCH)
    assert (repo / "a.txt").read_bytes() == b"one\nTWO\n"
    assert (repo / "b.txt").read_bytes() == b"new\n"


def test_a_patch_that_does_not_fit_changes_nothing(repo):
    (repo / "a.txt").write_bytes(b"one\nthree\n")
    with pytest.raises(PatchConflict, match=r"was left as it is: .*a\.txt"):
        apply_patch(repo, PATCH)
    assert (repo / "a.txt").read_bytes() == b"one\nthree\n"
    assert not (repo / "b.txt").exists()
