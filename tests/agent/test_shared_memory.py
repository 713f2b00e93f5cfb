"""What is removed of /dev/shm after a job: what nobody can have any more, and nothing else."""

from __future__ import annotations

import mmap
import os
import sys
import uuid
from collections.abc import Iterator
from multiprocessing import shared_memory
from pathlib import Path

import pytest
from dtagent.supervision import journal
from dtagent.supervision.shared_memory import DIRECTORY, private_objects, remove_leftovers

from tests.agent.conversation import Conversation


@pytest.fixture
def name() -> Iterator[str]:
    """Give a name in /dev/shm that nobody else has."""
    found = f"dttui-test-{uuid.uuid4().hex}"
    yield found
    (DIRECTORY / found).unlink(missing_ok=True)


def make(name: str, mode: int = 0o600) -> Path:
    path = DIRECTORY / name
    path.write_bytes(b"x" * 5000)
    path.chmod(mode)
    return path


def others(name: str) -> set[int]:
    """Return what is there beside an object: of other programs of this machine, which the tests leave alone."""
    return {inode for other, inode in private_objects().items() if other != name}


def test_a_leftover_is_removed_and_told(name: str) -> None:
    path = make(name)
    assert [(item.name, item.size_bytes) for item in remove_leftovers(others(name))] == [(name, 5000)]
    assert not path.exists()


def test_what_was_there_before_stays(name: str) -> None:
    path = make(name)
    assert remove_leftovers(set(private_objects().values())) == []
    assert path.exists()


def test_what_others_may_read_is_data_and_stays(name: str) -> None:
    path = make(name, 0o644)
    assert remove_leftovers(others(name)) == []
    assert path.exists()


def test_links_and_directories_stay(name: str, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("kept")
    (DIRECTORY / name).symlink_to(tmp_path / "target")
    assert remove_leftovers(others(name)) == []
    assert (DIRECTORY / name).is_symlink()


@pytest.mark.parametrize("writable", [False, True])
def test_what_a_process_has_open_stays(name: str, writable: bool) -> None:
    path = make(name)
    descriptor = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
    assert remove_leftovers(others(name)) == []
    os.close(descriptor)
    assert len(remove_leftovers(others(name))) == 1


def test_what_a_process_has_mapped_alone_stays(name: str) -> None:
    descriptor = os.open(make(name), os.O_RDONLY)
    with mmap.mmap(descriptor, 4096, prot=mmap.PROT_READ) as mapped:
        os.close(descriptor)
        assert remove_leftovers(others(name)) == []
        assert mapped[:1] == b"x"
    assert len(remove_leftovers(others(name))) == 1


def test_where_every_file_is_closed_to_others_nothing_is_removed(name: str) -> None:
    path = make(name)
    mask = os.umask(0o077)
    try:
        assert remove_leftovers(others(name)) == []
    finally:
        os.umask(mask)
    assert path.exists()


def test_a_rank_that_was_killed_leaves_no_shared_memory(tmp_path: Path, name: str) -> None:
    code = (
        "import os, signal, sys\nfrom multiprocessing import resource_tracker, shared_memory\n"
        "m = shared_memory.SharedMemory(sys.argv[1], create=True, size=1 << 20)\n"
        "resource_tracker.unregister(m._name, 'shared_memory')\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    kept = shared_memory.SharedMemory(f"{name}-kept", create=True, size=4096)
    try:
        told = []
        with Conversation(tmp_path / "root") as agent:
            for job in ("killed", "again", "once-more"):
                agent.prepare(job)
                agent.start(job, [[sys.executable, "-c", code, name]])
                assert agent.end_of(job)["state"] == "ended"
                assert not (DIRECTORY / name).exists()
                assert (DIRECTORY / kept.name).exists()
                records = journal.read(tmp_path / f"root/jobs/{job}/0/journal.jsonl")
                told = [record for record in records if record["event"] == "shared_memory_removed"]
                if told:  # The supervisor of another test, beside this one, may have found it first.
                    break
        assert [(item["names"], item["count"], item["size_bytes"]) for item in told] == [([name], 1, 1 << 20)]
    finally:
        kept.close()
        kept.unlink()
