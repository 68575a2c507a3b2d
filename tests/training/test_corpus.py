import zipfile

from agent_runtime.training import corpus, decontaminate

MODULE = '''
class Ring:
    @property
    def total(self, limit):
        """Docstring."""
        # a comment
        result = 0  # another
        for item in self.items[:limit]:

            result += item * 2
        return result

def tiny(): return 1

def add(a, b):
    c = a + b
    return c
'''


def wheel(path, licence):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ring/__init__.py", MODULE)
        archive.writestr("ring/tests/test_ring.py", "def helper(a):\n    b = a\n    c = b\n    return c\n")
        archive.writestr("ring-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: ring\nVersion: 1.0\n{licence}\n")


def test_functions_are_stripped_and_weighed(tmp_path):
    wheel(tmp_path / "ring-1.0-py3-none-any.whl", "License: MIT")
    package, texts = corpus.read_wheel(tmp_path / "ring-1.0-py3-none-any.whl")
    guard = decontaminate.Decontaminator([])
    found = [item for text in texts for item in corpus.functions_of(package.name, text, guard)]
    assert package == corpus.Package("ring", "1.0", "MIT")
    assert [item.source for item in found] == [
        (
            "def total(self, limit):\n    result = 0\n    for item in self.items[:limit]:\n"
            "        result += item * 2\n    return result"
        )
    ]
    assert 0 < found[0].weight < corpus.ALGORITHM


def test_other_licences_are_left_out(tmp_path):
    for licence in ("License: GPLv3", "License-Expression: MIT AND LGPL-2.1", "Summary: none"):
        wheel(tmp_path / "ring-1.0-py3-none-any.whl", licence)
        assert corpus.read_wheel(tmp_path / "ring-1.0-py3-none-any.whl") is None
