"""What an attempt has written: found where its script wrote it, told by place, and read as it is."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.attempts import retention, saved_walk
from dtagent.attempts.attempts import Attempts
from dtagent.attempts.saved_places import named_outputs
from dtagent.attempts.saved_walk import Walk
from dtagent.locations import AttemptFiles
from dtagent.protocol import saved
from dtagent.protocol.rpc import MAX_CHUNK_BYTES, ErrorCode

from tests.agent.conversation import Conversation
from tests.agent.test_retention import OLD, make_attempt, remove_old

KEY = {"job_id": "job", "attempt": 0}
SCRIPT = """
import os, pathlib, sys
pathlib.Path("sent.py").write_text("changed")
pathlib.Path("runs/a").mkdir(parents=True)
pathlib.Path("runs/a/events").write_bytes(b"e" * 1000)
pathlib.Path("runs/last.pt").write_bytes(b"l" * 500)
pathlib.Path("result.txt").write_text("42")
pathlib.Path(".cache").mkdir()
pathlib.Path(".cache/x").write_text("not told")
checkpoints = pathlib.Path(os.environ["DTTUI_CHECKPOINT_DIR"])
(checkpoints / "step-10").mkdir()
(checkpoints / "step-10/model.pt").write_bytes(b"m" * 3000)
out = pathlib.Path(sys.argv[2])
out.mkdir(exist_ok=True)
(out / "adapter.bin").write_bytes(b"a" * 2000)
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "host") as conversation:
        yield conversation


def run(agent: Conversation, *arguments: str, script: str = SCRIPT) -> Path:
    """Run a script in an attempt's working directory, where files were sent before; return the directory."""
    directory = Path(agent.prepare("job")["directory"])
    work = directory / "work"
    for name in ("sent.py", "data.bin"):
        (work / name).write_text("sent")
    os.utime(work / "data.bin", (1e9, 1e9))
    env = {"DTTUI_CHECKPOINT_DIR": str(directory / "checkpoints")}
    process = {"name": "0", "rank": 0, "argv": [sys.executable, "-c", script, *arguments], "cwd": str(work), "env": env}
    agent.call("start", {"key": KEY, "node_rank": 0, "processes": [process], "ranks": [0]})
    status = agent.end_of("job")
    assert status["exits"][0]["exit_code"] == 0, (directory / "logs/0.err").read_text()
    return directory


def told(agent: Conversation) -> dict[str, Any]:
    reply: dict[str, Any] = agent.call("saved", {"key": KEY})
    return reply


def listed(agent: Conversation, *paths: str) -> tuple[dict[str, int], dict[str, Any]]:
    """Return what is listed: its place's name and path → bytes; and the answer."""
    reply = agent.call("list_files", {"key": KEY, "paths": list(paths)})
    names = [place["name"] for place in reply["places"]]
    return {os.path.join(names[index], path).rstrip("/"): size for index, path, size, *_ in reply["files"]}, reply


def test_what_a_script_saved_is_told_by_place_and_what_was_sent_is_not(agent: Conversation, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "before.bin").write_text("it was there")
    before = time.time()
    directory = run(agent, "--output_dir", str(out))
    found = {(place["path"], place["kind"]): place for place in told(agent)["places"]}
    sizes = {key: (place["count"], place["size_bytes"]) for key, place in found.items()}
    assert sizes == {
        (str(directory / "checkpoints"), "checkpoints"): (1, 3000),
        (str(out), "output"): (1, 2000),
        (str(directory / "work/runs"), "work"): (2, 1500),
        (str(directory / "work"), "work"): (2, 9),
    }
    assert all(before - 1 < place["newest"] < time.time() + 1 for place in found.values())
    goes = {path: place.get("goes_at") for (path, _kind), place in found.items()}
    assert goes[str(directory / "checkpoints")] is None
    assert goes[str(out)] is None
    assert goes[str(directory / "work")] == pytest.approx(time.time() + retention.KEEP_S, abs=60)
    assert told(agent)["is_whole"] is True


def test_of_an_attempt_that_runs_in_its_own_directory_what_the_agent_has_there_is_not_told(agent: Conversation) -> None:
    directory = Path(agent.prepare("job")["directory"])
    script = "import os; os.mkdir('out'); open('out/x', 'w').write('12'); open('result.txt', 'w').write('345')"
    process = {"name": "0", "rank": 0, "argv": [sys.executable, "-c", script], "cwd": str(directory)}
    sent = [{"path": "dttui_config.json", "text": "{}", "executable": False}]
    agent.call("start", {"key": KEY, "node_rank": 0, "processes": [process], "ranks": [0], "files": sent})
    agent.end_of("job")
    places = told(agent)["places"]
    assert {(place["path"], place["count"], place["size_bytes"]) for place in places} == {
        (str(directory), 1, 3),
        (str(directory / "out"), 1, 2),
    }
    assert all(place["goes_at"] is not None for place in places)
    assert listed(agent)[0] == {"work/out/x": 2, "work/result.txt": 3}


def test_files_are_listed_where_they_were_written_and_all_that_a_person_asks_for(
    agent: Conversation, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(agent, "--output_dir", str(out))
    assert listed(agent)[0] == {
        "checkpoints/step-10/model.pt": 3000,
        "out/adapter.bin": 2000,
        "work/result.txt": 2,
        "work/runs/a/events": 1000,
        "work/runs/last.pt": 500,
        "work/sent.py": 7,
    }
    assert listed(agent, "runs", "data.bin", str(out))[0] == {
        "runs/last.pt": 500,
        "runs/a/events": 1000,
        "data.bin": 4,
        "out/adapter.bin": 2000,
    }
    files, reply = listed(agent, "nowhere", "/dev/null")
    assert files == {}
    assert [place["detail_notice"]["code"] for place in reply["places"]] == ["paths-missing", "no-file-there"]


HOSTILE = """
import os, pathlib
base = pathlib.Path("runs")
base.mkdir()
(base / "good").write_text("good")
(base / "link").symlink_to("/etc/passwd")
(base / "up").symlink_to("..")
os.mkfifo(base / "pipe")
(base / "esc\\x1b[2Jape").write_text("x")
(base / "new\\nline").write_text("x")
os.close(os.open(b"runs/\\xff\\xfe", os.O_CREAT | os.O_WRONLY))
deep = base
for number in range(40):
    deep = deep / "d"
    deep.mkdir()
(deep / "bottom").write_text("x")
"""


def test_links_pipes_and_names_that_are_no_text_are_counted_and_never_listed(agent: Conversation) -> None:
    run(agent, script=HOSTILE)
    files, reply = listed(agent, "runs")
    assert files == {"runs/good": 4}
    left_out = reply["left_out"]
    assert {key: left_out[key] for key in ("links", "special", "names", "unreadable")} == {
        "links": 2,
        "special": 1,
        "names": 3,
        "unreadable": 0,
    }
    assert "\ufffd\ufffd" in left_out["examples"]
    assert reply["is_whole"] is False, "forty directories in one another"
    assert "runs" in {os.path.basename(place["path"]) for place in told(agent)["places"]}


def test_a_file_is_read_and_hashed_in_parts_and_nothing_else_is(agent: Conversation, tmp_path: Path) -> None:
    content = os.urandom(MAX_CHUNK_BYTES + 1000)
    path = tmp_path / "file"
    path.write_bytes(content)
    first = agent.call("read_file", {"path": str(path), "start": 0, "count": 10 * MAX_CHUNK_BYTES})
    rest = agent.call("read_file", {"path": str(path), "start": MAX_CHUNK_BYTES, "count": 5000})
    assert base64.b64decode(first["data"]) + base64.b64decode(rest["data"]) == content
    assert (first["size"], first["inode"]) == (len(content), path.stat().st_ino)
    whole = agent.call("digest_file", {"path": str(path), "start": 0, "count": 10**9})
    assert (whole["sha256"], whole["count"]) == (hashlib.sha256(content).hexdigest(), len(content))
    part = agent.call("digest_file", {"path": str(path), "start": 7, "count": 100})
    assert (part["sha256"], part["count"]) == (hashlib.sha256(content[7:107]).hexdigest(), 100)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", ".", "nothing"):
        refused = agent.ask("read_file", {"path": str(tmp_path / name), "start": 0, "count": 10})
        assert refused["error"]["code"] == ErrorCode.REFUSED, name
    for wrong in ({"path": "x", "start": 0, "count": 1}, {"path": str(path), "start": -1, "count": 1}):
        assert agent.ask("read_file", wrong)["error"]["code"] == ErrorCode.INVALID_PARAMS


def test_more_files_than_one_answer_carries_come_in_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dtagent.attempts import saved_files

    files = make_attempt(tmp_path, "job", time.time())
    for number in range(25):
        (files.work / f"{number:02}").write_text("x" * number)
    monkeypatch.setattr(saved_files, "MAX_LISTED", 10)
    key, found, more, start = Attempts(tmp_path, list).census.known_keys()[0], [], True, 0
    while more:
        reply = saved_files.list_files(files, saved.FilesRequest(key, [str(files.work)], start))
        found += [(path, size) for _index, path, size, *_ in reply.files]
        more, start = reply.more, len(found)
    assert found == [(f"{number:02}", number) for number in range(25)]


def test_an_answer_ends_before_its_paths_are_more_than_a_frame_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dtagent.attempts import saved_files

    files = make_attempt(tmp_path, "job", time.time())
    for number in range(12):
        (files.work / f"lr={number:02},bs=32,opt=adam").touch()
    key = Attempts(tmp_path, list).census.known_keys()[0]
    request = saved.FilesRequest(key, [str(files.work)])
    for name, bound, count in (("MOST_PATH_BYTES", 59, 2), ("MOST_SEPARATORS", 6, 3)):
        with monkeypatch.context() as changed:
            changed.setattr(saved_files, name, bound)
            reply = saved_files.list_files(files, request)
        assert (len(reply.files), reply.more) == (count, True)


def test_a_walk_looks_into_no_directory_any_more_once_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}").mkdir()
        (tmp_path / f"{number:02}/file").touch()
    walk = Walk(60.0)
    found = walk.files(str(tmp_path))
    assert next(found).path == "00/file"
    monkeypatch.setattr(saved_walk, "MOST_ENTRIES", 0)
    opened: list[str] = []
    with monkeypatch.context() as changed:
        changed.setattr(os, "scandir", opened.append)
        rest = list(found)
    assert (rest, opened, walk.is_whole) == ([], [], False)


def test_a_walk_ends_at_its_bounds_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    whole = Walk(10.0)
    assert len(list(whole.files(str(tmp_path)))) == 20
    assert whole.is_whole
    monkeypatch.setattr(saved_walk, "MOST_ENTRIES", 5)
    cut = Walk(10.0)
    assert len(list(cut.files(str(tmp_path)))) == 5
    assert not cut.is_whole
    (tmp_path / "0dir").mkdir()
    (tmp_path / "0dir/deep").touch()
    monkeypatch.setattr(saved_walk, "MOST_ENTRIES", 21)
    assert "0dir/deep" not in {found.path for found in Walk(10.0).files(str(tmp_path))}, "what lies deep comes last"
    late = Walk(-1.0)
    assert list(late.files(str(tmp_path))) == []
    assert not late.is_whole


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["train.py", "--output_dir", "out/a", "--lr", "0.1"], ["out/a"]),
        (["train.py", "--output-dir=/data/out"], ["/data/out"]),
        (["pretrain_gpt.py", "--save", "/ckpt", "--save-interval", "100"], ["/ckpt"]),
        (["train.py", "exp_manager.explicit_log_dir=/results", "trainer.max_steps=5"], ["/results"]),
        (["train.py", "+trainer.default_local_dir=x", "hydra.run.dir=y"], ["x", "y"]),
        (["bash", "-c", "cd /w && python t.py --logging_dir 'my logs' -v"], ["my logs"]),
        (["train.py", "--save", "--verbose"], []),
        (["train.py", "--output_dir="], []),
        (["train.py", "--load", "x"], []),
    ],
)
def test_arguments_name_where_trainers_write(argv: list[str], expected: list[str]) -> None:
    assert list(named_outputs(argv)) == expected


def test_a_kept_attempt_stays_however_old_it_is_and_goes_once_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "KEEP_NEWEST", 0)
    attempts = Attempts(tmp_path, list)
    made = {name: make_attempt(tmp_path, name, OLD) for name in ("kept", "other")}
    reply = attempts.keep(saved.KeepRequest("kept"))
    assert reply.directories == [str(made["kept"].directory)]
    os.utime(made["kept"].directory, (OLD, OLD))
    remove_old(attempts)
    assert (made["kept"].logs / "0.out").read_text() == "hello\n"
    assert not made["other"].directory.exists()
    attempts.keep(saved.KeepRequest("kept", keeps=False))
    os.utime(made["kept"].directory, (OLD, OLD))
    remove_old(attempts)
    assert not made["kept"].directory.exists()


def test_absolute_paths_are_listed_when_nothing_is_left_of_the_attempt_and_odd_names_are_refused(
    agent: Conversation, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "a").write_text("abc")
    (tmp_path / "a\u3000b").write_text("abc")
    assert listed(agent, str(out))[0] == {"out/a": 3}
    refused = agent.ask("list_files", {"key": KEY, "paths": ["out"]})
    assert refused["error"]["code"] == ErrorCode.NO_SUCH_ATTEMPT
    files, reply = listed(agent, str(tmp_path / "a\u3000b"))
    assert files == {}
    assert "is no plain text" in reply["places"][0]["detail"]


def test_what_is_left_of_an_attempt_is_kept_too(tmp_path: Path) -> None:
    files = make_attempt(tmp_path, "job", OLD)
    files.prepared.unlink()
    attempts = Attempts(tmp_path, list)
    assert attempts.keep(saved.KeepRequest("job")).directories == [str(files.directory)]
    assert files.keep.exists()


def test_the_greeting_says_that_it_keeps_directories(agent: Conversation) -> None:
    assert agent.call("hello", {"versions": [1]})["keeps_directories"] is True


def test_an_attempt_that_is_prepared_to_be_kept_is_and_those_that_follow_too(agent: Conversation) -> None:
    first = AttemptFiles(Path(agent.prepare("job", keeps=True)["directory"]))
    other = AttemptFiles(Path(agent.prepare("other")["directory"]))
    second = AttemptFiles(Path(agent.prepare("job", attempt=1)["directory"]))
    assert first.keep.exists()
    assert second.keep.exists()
    assert not other.keep.exists()
    kept = agent.call("keep", {"job_id": "job", "keeps": False})["directories"]
    assert kept == [str(first.directory), str(second.directory)]
    assert not first.keep.exists()
    assert agent.call("keep", {"job_id": "nobodys"})["directories"] == []
