"""The search for checkpoints as clients ask for it, and what hostile directories may do to it: nothing."""

from __future__ import annotations

import json
import os
import pickle
import struct
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.checkpoints.search import newest_complete
from dtagent.checks import checkpoints as asked
from dtagent.protocol.checkpoints import CheckpointsOf
from dtagent.protocol.replication import STORE
from dtagent.protocol.rpc import ErrorCode

from tests.agent.conversation import Conversation


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    with Conversation(tmp_path_factory.mktemp("agent") / "root") as begun:
        yield begun


def _complete(place: Path, step: int) -> Path:
    checkpoint = place / f"step-{step}"
    checkpoint.mkdir(parents=True)
    with zipfile.ZipFile(checkpoint / "state.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
    (checkpoint / "COMPLETE").touch()
    return checkpoint


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _lie_of_length(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}")


def _huge_and_hollow(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 42)


def _not_a_table(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + b"x" * 100 + b"PK\x05\x06" + b"\xff" * 18)


HOSTILE: list[Callable[[Path], None]] = [_pipe, _device, _loop, _lie_of_length, _huge_and_hollow, _not_a_table]


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__.strip("_"))
@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "index.json"])
def test_what_lies_in_the_place_of_a_file_is_neither_waited_for_nor_read_without_end(
    make: Callable[[Path], None], name: str, tmp_path: Path
) -> None:
    _complete(tmp_path, 10)
    bad = _complete(tmp_path, 20) / name
    bad.unlink(missing_ok=True)
    make(bad)
    search = newest_complete(tmp_path)
    assert search.newest is not None
    assert search.newest.step == 10
    assert [item.path for item in search.passed] == [str(tmp_path / "step-20")]


@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__.strip("_"))
@pytest.mark.parametrize(
    "name", ["COMPLETE", "latest", ".metadata", "latest_checkpointed_iteration.txt", "step-30", "last.ckpt", "x.pt"]
)
def test_what_lies_in_the_place_of_a_mark_ends_no_search(
    make: Callable[[Path], None], name: str, tmp_path: Path
) -> None:
    make(tmp_path / name)
    search = newest_complete(tmp_path)
    assert search.newest is None or name == "COMPLETE"  # Any file of that name is the mark.


class _Bomb:
    """Runs a command wherever it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    place, ran = tmp_path / "run", tmp_path / "ran"
    place.mkdir()
    for name in (".metadata", "mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        (place / name).write_bytes(pickle.dumps({"a": _Bomb(f"touch {ran}")}))
    assert newest_complete(place).newest is None
    os.unlink(place / ".metadata")
    os.rename(place, tmp_path / "global_step1")
    (tmp_path / "latest").write_text("global_step1")
    newest_complete(tmp_path)
    assert not ran.exists()


def _of_endless_memory() -> bytes:
    """A memo of 2³¹ places: 34 GB, where nothing bounds it."""
    return b"\x80\x02N" + b"r" + struct.pack("<I", 2**31 - 1) + b"."


def _of_endless_length() -> bytes:
    return b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"."


def _of_endless_time() -> bytes:
    """A tuple of two of a tuple of two …, as the key of a dictionary: its hash takes 2¹⁰⁰ steps."""
    grown = b"\x80\x02)" + b"q\x00"
    for depth in range(100):
        grown += b"h" + bytes([depth]) + b"h" + bytes([depth]) + b"\x86" + b"q" + bytes([depth + 1])
    return b"\x80\x02}" + grown[2:] + b"K\x01s."


@pytest.mark.parametrize("make", [_of_endless_memory, _of_endless_length, _of_endless_time])
def test_a_search_takes_no_more_than_it_is_given(
    make: Callable[[], bytes], conversation: Conversation, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    _complete(good, 10)
    bad.mkdir()
    (bad / ".metadata").write_bytes(make())
    began = time.monotonic()
    reply = conversation.call("checkpoints", {"directories": [str(bad), str(good)], "seconds": 2})
    assert time.monotonic() - began < 60
    told = reply["directories"]
    assert told[1]["complete"][0]["step"] == 10
    assert told[0]["complete"] == []
    assert told[0].get("detail_notice", {"code": ""})["code"] == "search-silent" or told[0]["passed"]


def test_a_client_is_told_the_newest_and_why_newer_ones_were_passed(conversation: Conversation, tmp_path: Path) -> None:
    for step in (10, 20, 30):
        _complete(tmp_path, step)
    (tmp_path / "step-40").mkdir()
    os.truncate(tmp_path / "step-30" / "state.pt", 20)
    unwanted = [str(tmp_path / "step-20")]
    directories = [str(tmp_path), str(tmp_path / "none")]
    reply = conversation.call("checkpoints", {"directories": directories, "unwanted": unwanted, "most": 3})
    first, second = reply["directories"]
    assert [item["step"] for item in first["complete"]] == [10]
    assert first["complete"][0]["path"] == str(tmp_path / "step-10")
    assert first["complete"][0]["size_bytes"] == (tmp_path / "step-10" / "state.pt").stat().st_size
    assert [(Path(item["path"]).name, item["why_notice"]["code"]) for item in first["passed"]] == [
        ("step-40", "mark-is-missing"),
        ("step-30", "file-ends-early"),
        ("step-20", "came-to-nothing"),
    ]
    assert second == {"complete": [], "passed": [], "detail": "", "parts": []}


@pytest.mark.parametrize("path", ["run", "", "a\0b"])
def test_what_is_no_path_is_refused(path: str, conversation: Conversation) -> None:
    assert conversation.ask("checkpoints", {"directories": [path]})["error"]["code"] == ErrorCode.INVALID_PARAMS


def test_many_entries_are_looked_at_in_no_time_and_strange_names_are_left_alone(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"log-{number}").touch()
    for name in ("step-99\n", "step-98\x1b[31m", os.fsdecode(b"step-97\xff")):
        checkpoint = tmp_path / name
        checkpoint.mkdir()
        (checkpoint / "COMPLETE").touch()
    _complete(tmp_path, 5)
    search = newest_complete(tmp_path)
    assert search.newest is not None
    assert search.newest.step == 5


def test_a_search_that_hangs_is_told_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = tmp_path / "python"
    stuck.write_text("#!/bin/sh\nexec sleep 600\n")
    stuck.chmod(0o755)
    monkeypatch.setattr(asked, "own_python", lambda: str(stuck))
    began = time.monotonic()
    assert (
        asked.run(json.dumps({}), 0.2, CheckpointsOf).detail == "the search for checkpoints was not done within 0.2 s"
    )
    assert time.monotonic() - began < 30


def test_links_lead_to_one_thing_once(tmp_path: Path) -> None:
    _complete(tmp_path, 10)
    _complete(tmp_path, 20)
    (tmp_path / "latest").symlink_to("step-20")
    (tmp_path / "step-30").symlink_to("nowhere")
    search = newest_complete(tmp_path, most=5)
    assert [item.step for item in search.complete] == [20, 10]


def _share(place: Path, rank: int, age_s: float) -> None:
    path = place / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
    os.utime(path, (time.time() - age_s, time.time() - age_s))


@pytest.mark.parametrize(
    ("ages", "is_complete"), [((300, 300), True), ((300, 200), True), ((0, 0), False), ((300, 0), False)]
)
def test_a_tag_without_a_number_is_taken_though_others_wrote_late_but_not_while_it_is_written_over(
    ages: tuple[int, int], is_complete: bool, tmp_path: Path
) -> None:
    tag = tmp_path / "newest"
    tag.mkdir()
    with zipfile.ZipFile(tag / "mp_rank_00_model_states.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"dp_world_size": 2}, 2))
    os.utime(tag / "mp_rank_00_model_states.pt", (time.time() - 301, time.time() - 301))
    for rank, age_s in enumerate(ages):
        _share(tag, rank, age_s)
    (tmp_path / "latest").write_text("newest")
    os.utime(tmp_path / "latest", (time.time() - 240, time.time() - 240))
    assert (newest_complete(tmp_path).newest is not None) is is_complete


def test_a_share_that_is_missing_is_told_from_how_many_ranks_there_were(tmp_path: Path) -> None:
    test = test_a_tag_without_a_number_is_taken_though_others_wrote_late_but_not_while_it_is_written_over
    test((300, 300), True, tmp_path)
    os.unlink(tmp_path / "newest" / "zero_pp_rank_1_mp_rank_00_optim_states.pt")
    (passed,) = newest_complete(tmp_path).passed
    assert passed.why == "zero_pp_rank_1_mp_rank_00_optim_states.pt is missing"


@pytest.mark.parametrize("where", ["attempt-1", "attempt-1/step-5", f"{STORE}/job/rank-1/.incoming-ab/step-5"])
def test_what_others_write_into_a_directory_that_is_a_checkpoint_itself_says_nothing_of_it(
    where: str, tmp_path: Path
) -> None:
    own = _complete(tmp_path, 10)
    of_others = own / where / "state.pt"
    of_others.parent.mkdir(parents=True)
    of_others.write_bytes(b"PK\x03\x04half")
    search = newest_complete(own)
    assert [(item.path, item.size_bytes) for item in search.complete] == [(str(own), (own / "state.pt").stat().st_size)]
    assert search.passed == []


def test_a_torch_file_in_which_bits_have_changed_is_found_where_it_is_to_be_gone_on_from(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {"weights": torch.arange(4096.0), "step": 20, "more": [torch.ones(3)]}
    for step in (10, 20):
        (tmp_path / f"step-{step}").mkdir()
        torch.save(state, tmp_path / f"step-{step}" / "state.pt")
        (tmp_path / f"step-{step}" / "COMPLETE").touch()
    path = tmp_path / "step-20" / "state.pt"
    whole = path.read_bytes()

    def newest(verify_s: float = 30.0) -> int | None:
        found = newest_complete(tmp_path, verify_s=verify_s).newest
        return found.step if found is not None else None

    assert newest() == 20
    with zipfile.ZipFile(path) as archive:
        (data,) = (entry for entry in archive.infolist() if entry.filename.endswith("data/0"))
        places = [data.header_offset + 200 + data.file_size * part // 8 for part in range(8)]
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert newest() == 10
        assert newest(0.0) == 20  # A look for what is to be copied reads none of it.
        (passed,) = newest_complete(tmp_path, verify_s=30.0).passed
        assert passed.why == "state.pt has changed since it was written: its checksum does not hold"


def test_a_torch_file_without_checksums_is_taken_and_one_that_takes_too_long_to_read_too(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    checkpoint = _complete(tmp_path, 20)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"weights": torch.arange(4096.0)}, checkpoint / "state.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert newest_complete(tmp_path, verify_s=30.0).newest is not None
    torch.save({"weights": torch.arange(1e6)}, checkpoint / "state.pt")
    data = bytearray((checkpoint / "state.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (checkpoint / "state.pt").write_bytes(data)
    assert newest_complete(tmp_path, verify_s=1e-9).newest is not None
    assert newest_complete(tmp_path, verify_s=30.0).newest is None
