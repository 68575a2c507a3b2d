import json
import sys
import zipfile

import pytest

from agent_runtime.training import __main__ as command
from agent_runtime.training import corpus, shards, train


@pytest.fixture
def little(monkeypatch, sources):
    """A standard library of random functions, and few of everything."""
    texts = ["\n\n".join(sources)]
    monkeypatch.setattr(corpus, "read_standard_library", lambda: (corpus.Package("stdlib", "3", "PSF-2.0"), texts))
    monkeypatch.setattr(shards, "SHARD_SAMPLES", 200)
    monkeypatch.setattr(shards, "VALIDATION_SAMPLES", 100)
    monkeypatch.setattr(train, "CHECKS", 1)


def wheel(path, sources):
    with zipfile.ZipFile(path / "funcy-2.1-py3-none-any.whl", "w") as archive:
        archive.writestr("funcy/seqs.py", "\n\n".join(sources))
        archive.writestr(
            "funcy-2.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: funcy\nVersion: 2.1\nLicense: BSD\n"
        )


def test_one_command_makes_and_measures_a_checkpoint(little, sources, tmp_path, monkeypatch, capsys):
    wheel(tmp_path, [source.replace("def ", "def other_") for source in sources[:40]])
    options = ["all", "--out", str(tmp_path / "out"), "--wheels", str(tmp_path), "--eval-dir", str(tmp_path)]
    quick = ["--shards", "1", "--minutes", "0.02", "--eager", "--cases", "3"]
    monkeypatch.setattr(sys, "argv", ["training", *options, *quick])
    command.main()
    folder = tmp_path / "out" / "checkpoint"
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "data.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    packages = {row["name"]: row["functions"] for row in json.loads((folder / "data.json").read_text())}
    assert packages["stdlib"] > 100
    assert packages["funcy"] > 10
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["reachable"] <= report["cases"] == 3
