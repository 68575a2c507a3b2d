import json
import resource

import pytest
from pydantic import TypeAdapter

from agent_runtime.errors import UsageError
from agent_runtime.events import Event, Progress, RunFinished
from agent_runtime.run_folder import RunFolder, new_run_id


def test_each_event_is_one_line_that_can_be_read_back_at_once(tmp_path):
    folder = RunFolder(tmp_path / "run")
    happened = [
        Progress(message="line\nbreak and “quotes”"),
        RunFinished(status="solved", reason="the tests pass", steps=3, patches_tried=1, seconds=1.5),
    ]
    for count, event in enumerate(happened, start=1):
        folder.append(event)
        lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
        assert [TypeAdapter(Event).validate_json(line) for line in lines] == happened[:count]
    folder.close()


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path):
    RunFolder(tmp_path).close()
    with pytest.raises(UsageError, match="already holds a run"):
        RunFolder(tmp_path)


def test_a_folder_that_cannot_be_made_is_told_in_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        RunFolder(tmp_path / "file" / "run")


def test_the_result_is_replaced_whole(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_result({"status": "unsolved"})
    folder.write_result({"status": "solved"})
    folder.close()
    assert json.loads((tmp_path / "result.json").read_text()) == {"status": "solved"}
    assert {path.name for path in tmp_path.iterdir()} == {"events.jsonl", "result.json"}


def test_run_ids_are_unique_and_sort_by_time():
    names = [new_run_id() for _ in range(100)]
    assert len(set(names)) == 100
    assert sorted(name[:15] for name in names) == [name[:15] for name in names]


def test_a_disk_that_fills_up_is_told_in_one_sentence(tmp_path):
    folder = RunFolder(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # as a full disk does, without one
    try:
        with pytest.raises(UsageError, match=r"cannot be written.*free space"):
            folder.append(Progress(message="x" * 1000))
        with pytest.raises(UsageError, match=r"cannot be written.*free space"):
            folder.write_patch(b"x" * 1000)
        with pytest.raises(UsageError, match=r"cannot be written.*free space"):
            folder.write_result({"x": "x" * 1000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        folder.close()
