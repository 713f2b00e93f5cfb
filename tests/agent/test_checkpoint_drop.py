"""What is removed of the checkpoints of attempts that others have followed, and what is left alone there."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.checkpoints.dropping import drop
from dtagent.protocol.checkpoints import DropReply, DropRequest, FoundCheckpoint, WrittenIn
from dtagent.protocol.replication import STORE
from dtagent.protocol.rpc import ErrorCode

from tests.agent.conversation import Conversation

SINCE, UNTIL = 1000.0, 2000.0
WITHIN = 1500.0


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    with Conversation(tmp_path_factory.mktemp("agent") / "root") as begun:
        yield begun


def written(place: Path, name: str, at: float = WITHIN, *, complete: bool = True) -> Path:
    path = place / name
    path.mkdir(parents=True)
    (path / "state").write_text("state")
    if complete:
        (path / "COMPLETE").touch()
    for file in path.iterdir():
        os.utime(file, (at, at))
    return path


def own(place: Path, name: str = "step-30", form: str = "complete-file") -> FoundCheckpoint:
    """Return what the running attempt tells of one of its own, in the directory after a place."""
    return FoundCheckpoint(str(place.parent / f"{place.name}-running" / name), form, 30)


def dropped(place: Path, *spared: Path, running: FoundCheckpoint | None = None, step: int | None = 30) -> DropReply:
    written_in = [WrittenIn(str(place), SINCE, UNTIL)]
    return drop(DropRequest(written_in, list(map(str, spared)), own=[running or own(place)], step=step))


def test_the_complete_ones_of_the_attempt_go(tmp_path: Path) -> None:
    gone = [written(tmp_path, "step-10"), written(tmp_path, "step-20")]
    half = written(tmp_path, "step-30", complete=False)
    reply = dropped(tmp_path)
    assert (reply.count, reply.size_bytes, reply.detail) == (2, 10, "")
    assert not any(path.exists() for path in gone)
    assert [path.name for path in tmp_path.iterdir()] == [half.name]


@pytest.mark.parametrize("at", [SINCE - 1, UNTIL + 1], ids=["before the attempt", "after it"])
def test_what_somebody_wrote_outside_the_attempts_time_stays(at: float, tmp_path: Path) -> None:
    path = written(tmp_path, "step-10", at)
    assert dropped(tmp_path).count == 0
    assert (path / "COMPLETE").exists()


def test_one_that_is_spared_stays_however_it_is_called(tmp_path: Path) -> None:
    place, other = tmp_path / "a", tmp_path / "b"
    path = written(place, "step-10")
    other.symlink_to(place)
    assert dropped(place, other / "step-10").count == 0
    assert path.exists()


def test_one_whose_name_tells_no_number_stays(tmp_path: Path) -> None:
    for name in ("best.pt", "step-10.pt"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02}.")
        os.utime(tmp_path / name, (WITHIN, WITHIN))
    assert dropped(tmp_path, running=own(tmp_path, "step-30.pt", "file")).count == 1
    assert [path.name for path in tmp_path.iterdir()] == ["best.pt"]


def test_a_link_and_what_it_leads_to_stay(tmp_path: Path) -> None:
    place = tmp_path / "here"
    place.mkdir()
    elsewhere = written(tmp_path / "elsewhere", "step-10")
    (place / "step-10").symlink_to(elsewhere)
    assert dropped(place).count == 0
    assert (place / "step-10" / "state").exists()


def test_a_directory_that_is_itself_a_checkpoint_stays(tmp_path: Path) -> None:
    place = written(tmp_path, "step-10")
    later = written(place / "attempt-1", "step-20")
    assert dropped(place).count == 0
    assert (place / "state").exists()
    assert later.exists()


def test_what_later_attempts_and_other_hosts_have_there_stays(tmp_path: Path) -> None:
    written(tmp_path, "step-10")
    later = written(tmp_path / "attempt-1", "step-20")
    copy = written(tmp_path / STORE / "job" / "rank-0" / "0-abc", "step-10")
    assert dropped(tmp_path).count == 1
    assert later.exists()
    assert copy.exists()


def test_what_is_no_checkpoint_stays(tmp_path: Path) -> None:
    written(tmp_path, "step-10")
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    os.utime(notes, (WITHIN, WITHIN))
    assert dropped(tmp_path).count == 1
    assert notes.exists()


def test_what_an_earlier_call_has_begun_to_remove_goes(tmp_path: Path) -> None:
    written(tmp_path, ".dttui-removed-step-10")
    assert dropped(tmp_path) == DropReply()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_cleared_of_an_earlier_call_keeps_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest, path = written(tmp_path, ".dttui-removed-step-5"), written(tmp_path, "step-10")
    refuse(monkeypatch, rest)
    reply = dropped(tmp_path)
    assert (reply.count, path.exists()) == (1, False)
    assert rest.name in reply.detail


def test_one_of_which_nothing_can_be_removed_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "step-10")
    refuse(monkeypatch, path.with_name(".dttui-removed-step-10"))
    reply = dropped(tmp_path)
    assert (reply.count, reply.detail != "") == (0, True)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def refuse(monkeypatch: pytest.MonkeyPatch, stays: Path) -> None:
    """Have one directory not be removable, whoever runs the tests."""
    remove = shutil.rmtree

    def refused(path: Path, *args: Any, **more: Any) -> None:
        if path == stays:
            raise PermissionError(1, "Operation not permitted", str(path))
        remove(path, *args, **more)

    monkeypatch.setattr(shutil, "rmtree", refused)


def test_one_that_is_newer_than_the_running_attempts_stays(tmp_path: Path) -> None:
    written(tmp_path, "step-30")
    newer = written(tmp_path, "step-5000")
    assert dropped(tmp_path).count == 1
    assert newer.exists()


def test_where_the_running_attempts_step_is_not_known_all_stay(tmp_path: Path) -> None:
    path = written(tmp_path, "step-10")
    assert dropped(tmp_path, step=None) == DropReply()
    assert path.exists()


def test_one_that_is_called_otherwise_stays(tmp_path: Path) -> None:
    written(tmp_path, "step-10")
    others = [written(tmp_path, name) for name in ("step-20-paper", "model-7b-step-20", "iter-20")]
    assert dropped(tmp_path).count == 1
    assert all(path.exists() for path in others)


def test_one_of_another_size_of_model_stays(tmp_path: Path) -> None:
    small, large = written(tmp_path, "model-7b-step-10"), written(tmp_path, "model-13b-step-10")
    assert dropped(tmp_path, running=own(tmp_path, "model-7b-step-30")).count == 1
    assert (small.exists(), large.exists()) == (False, True)


def test_a_file_with_a_number_that_is_no_checkpoint_of_the_job_stays(tmp_path: Path) -> None:
    for name in ("tokens-00000.bin", "tokens-00001.bin"):
        (tmp_path / name).write_bytes(b"tokens")
        os.utime(tmp_path / name, (WITHIN, WITHIN))
    assert dropped(tmp_path, running=own(tmp_path, "step-30.pt", "file")).count == 0
    assert dropped(tmp_path).count == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_one_of_another_form_stays(tmp_path: Path) -> None:
    path = written(tmp_path, "step-10")
    assert dropped(tmp_path, running=own(tmp_path, form="torch-dcp")).count == 0
    assert path.exists()


def test_where_the_running_attempt_has_several_kinds_all_stay(tmp_path: Path) -> None:
    path = written(tmp_path, "step-10")
    both = [own(tmp_path), own(tmp_path, "step-20-paper")]
    assert drop(DropRequest([WrittenIn(str(tmp_path), SINCE, UNTIL)], own=both, step=30)).count == 0
    assert path.exists()


def test_those_of_lightning_stay(tmp_path: Path) -> None:
    path = tmp_path / "epoch=0-step=10.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
    os.utime(path, (WITHIN, WITHIN))
    assert dropped(tmp_path, running=own(tmp_path, "epoch=0-step=30.ckpt", "lightning")).count == 0
    assert path.exists()


@pytest.mark.parametrize("is_own", [True, False], ids=["the running attempt's", "an earlier one's"])
def test_what_a_trainer_calls_its_best_stays(is_own: bool, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    paths = {step: trained(place / f"checkpoint-{step}", step) for step in (10, 20)}
    running = tmp_path / "kept-running" / "checkpoint-30"
    best = "/inside/a/container/checkpoint-10"
    trained(running, 30, best if is_own else None)
    trained(paths[20], 20, None if is_own else best)
    assert dropped(place, running=own(place, running.name, "hugging-face")).count == 1
    assert (paths[10].exists(), paths[20].exists()) == (True, False)


def trained(path: Path, step: int, best: str | None = None) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    state = path / "trainer_state.json"
    state.write_text(json.dumps({"global_step": step, "best_model_checkpoint": best}))
    os.utime(state, (WITHIN, WITHIN))
    return path


@pytest.mark.parametrize("where", ["beside it", "beside the running attempt's", "in one of these", "in an earlier one"])
def test_what_a_link_leads_to_stays(where: str, tmp_path: Path) -> None:
    place = tmp_path / "kept"
    old = {step: written(place, f"step-{step}") for step in (10, 20)}
    running = written(tmp_path / "kept-running", "step-30")
    link, target = {
        "beside it": (place / "best", old[10]),
        "beside the running attempt's": (running.parent / "best", old[10]),
        "in one of these": (running / "weights", old[10] / "state"),
        "in an earlier one": (written(place, "step-40") / "weights", old[10] / "state"),
    }[where]
    link.symlink_to(target)
    assert dropped(place).count == 1
    assert (old[10].exists(), old[20].exists()) == (True, False)


def test_where_a_link_leads_to_the_directory_of_an_attempt_all_of_it_stays(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    path = written(place, "step-10")
    running = written(tmp_path / "kept-running", "step-30")
    (running.parent / "before").symlink_to(place)
    assert dropped(place).count == 0
    assert path.exists()


def test_what_a_trainer_calls_its_best_stays_where_a_link_leads_to_what_says_so(tmp_path: Path) -> None:
    place = tmp_path / "kept"
    path = trained(place / "checkpoint-10", 10)
    state = trained(tmp_path / "elsewhere", 30, path.name) / "trainer_state.json"
    running = tmp_path / "kept-running" / "checkpoint-30"
    running.mkdir(parents=True)
    (running / state.name).symlink_to(state)
    assert dropped(place, running=own(place, running.name, "hugging-face")).count == 0
    assert path.exists()


def test_a_link_within_one_keeps_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "step-10")
    (path / "weights").symlink_to("state")
    assert dropped(tmp_path).count == 1
    assert not path.exists()


def test_what_a_link_of_an_attempt_leads_to_stays_that_this_call_is_not_told_of(tmp_path: Path) -> None:
    path = written(tmp_path, "step-10")
    (tmp_path / "attempt-3").mkdir()
    (tmp_path / "attempt-3" / "best").symlink_to(path)
    running = FoundCheckpoint(str(tmp_path / "attempt-20" / "step-30"), "complete-file", 30)
    assert dropped(tmp_path, running=running).count == 0
    assert path.exists()


def test_where_not_all_can_be_looked_at_all_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "step-10")
    monkeypatch.setattr("dtagent.checkpoints.sparing.MOST_FILES", 2)
    reply = dropped(tmp_path)
    assert (reply.count, "more than 2 files" in reply.detail) == (0, True)
    assert path.exists()


def test_a_directory_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert dropped(tmp_path / "nowhere") == DropReply()


def test_an_agent_removes_them_when_it_is_asked_to(conversation: Conversation, tmp_path: Path) -> None:
    path = written(tmp_path, "step-10")
    place = {"directory": str(tmp_path), "since": SINCE, "until": UNTIL}
    assert conversation.call("drop_checkpoints", {"written": [place]})["count"] == 0
    assert path.exists()
    running = {"path": own(tmp_path).path, "form": "complete-file", "step": 30}
    reply = conversation.call("drop_checkpoints", {"written": [place], "own": [running], "step": 30})
    assert (reply["count"], reply["detail"]) == (1, "")
    assert not path.exists()
    refused = conversation.ask("drop_checkpoints", {"written": [{**place, "directory": "relative"}]})
    assert refused["error"]["code"] == ErrorCode.INVALID_PARAMS
