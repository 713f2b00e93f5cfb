"""One file from a host: whole and verified, gone on with, and never over what is another's."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from dttui.errors import HostUnreachableError
from dttui.fetching import file_transfer as transfer_module
from dttui.fetching.file_transfer import FileTransfer
from dttui.fetching.models import FileOutcome, RemoteFile
from dttui.fetching.target import NoRoomError, Target
from tests.unit.fetching.lying_host import TIME_NS, LyingHost, remote

AS_IT_BECAME = "it was written to since it was listed, and is here as it became"
CONTENT = os.urandom(10_500)


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_module, "DIGEST_BYTES", 4000)


class Fetched:
    """Fetches one file at a time to a directory, and counts its bytes."""

    def __init__(self, directory: Path, host: LyingHost, *, replaces: bool = False) -> None:
        self.directory = directory
        self.host = host
        self.bytes = 0
        self._transfer = FileTransfer(host, Target(directory), replaces=replaces, on_bytes=self._count)

    def _count(self, _file: RemoteFile, count: int) -> None:
        self.bytes += count

    async def of(self, file: RemoteFile) -> tuple[FileOutcome, str]:
        done = await self._transfer.fetch(file)
        return done.outcome, done.reason

    @property
    def names(self) -> set[str]:
        return {str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if not path.is_dir()}


async def test_a_file_comes_whole_with_its_time_for_its_person_alone(tmp_path: Path) -> None:
    fetched = Fetched(tmp_path, LyingHost({"/w/out/a": CONTENT}))
    assert await fetched.of(remote(CONTENT)) == (FileOutcome.FETCHED, "")
    assert (tmp_path / "out/a").read_bytes() == CONTENT
    info = (tmp_path / "out/a").stat()
    assert (info.st_mtime_ns, stat.S_IMODE(info.st_mode), info.st_nlink) == (TIME_NS, 0o600, 1)
    assert fetched.names == {"out/a"}, "no part is left"
    assert fetched.bytes == len(CONTENT)


async def test_an_empty_file_comes_also_where_it_grew(tmp_path: Path) -> None:
    fetched = Fetched(tmp_path, LyingHost({"/w/out/a": b"", "/w/out/b": b"more"}))
    assert await fetched.of(remote(b"")) == (FileOutcome.FETCHED, "")
    outcome, reason = await fetched.of(remote(b"", "out/b", "/w/out/b"))
    assert (outcome, reason) == (FileOutcome.FETCHED, AS_IT_BECAME)
    assert ((tmp_path / "out/a").read_bytes(), (tmp_path / "out/b").read_bytes()) == (b"", b"more")


async def test_a_file_that_was_written_anew_comes_whole_as_it_is_now(tmp_path: Path) -> None:
    """Its beginning alone would be half a document, and its own hash would not tell."""
    written = b"{" + b"n" * 11_000 + b"}"
    host = LyingHost({"/w/out/a": written})
    host.time_ns += 5
    fetched = Fetched(tmp_path, host)
    assert await fetched.of(remote(CONTENT)) == (FileOutcome.FETCHED, AS_IT_BECAME)
    assert (tmp_path / "out/a").read_bytes() == written
    assert (tmp_path / "out/a").stat().st_mtime_ns == host.time_ns
    assert fetched.bytes == len(written)


async def test_a_file_that_is_written_between_the_looks_at_its_parts_is_never_half_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_module, "DIGEST_BYTES", 4000)
    host = LyingHost({"/w/out/a": CONTENT})
    looks = []

    def write(host: LyingHost) -> None:
        looks.append(0)
        if len(looks) == 2:
            host.files["/w/out/a"] = bytes(reversed(CONTENT))
            host.time_ns += 5

    host.before_digest = write
    assert await Fetched(tmp_path, host).of(remote(CONTENT)) == (FileOutcome.FETCHED, AS_IT_BECAME)
    assert (tmp_path / "out/a").read_bytes() == bytes(reversed(CONTENT))


async def test_of_a_log_that_grows_all_the_time_comes_its_beginning_and_of_what_is_written_anew_nothing(
    tmp_path: Path,
) -> None:
    def grow(host: LyingHost) -> None:
        host.files["/w/out/a"] += b"line\n"
        host.time_ns += 5

    host = LyingHost({"/w/out/a": CONTENT})
    host.before_digest = grow
    outcome, reason = await Fetched(tmp_path, host).of(remote(CONTENT))
    assert (outcome, "here is its beginning" in reason) == (FileOutcome.FETCHED, True)
    got = (tmp_path / "out/a").read_bytes()
    assert got.startswith(CONTENT)
    assert host.files["/w/out/a"].startswith(got)

    def write(host: LyingHost) -> None:
        host.files["/w/out/a"] = os.urandom(len(CONTENT))
        host.time_ns += 5

    host.before_digest = write
    outcome, _reason = await Fetched(tmp_path, host).of(remote(CONTENT, "out/b"))
    assert outcome is FileOutcome.CHANGED
    assert not (tmp_path / "out/b").exists()


async def test_a_host_whose_file_grows_without_end_fills_no_disk(tmp_path: Path) -> None:
    host = LyingHost({"/w/out/a": CONTENT})
    host.sizes = lambda size: 2**40
    host.time_ns += 5
    outcome, reason = await Fetched(tmp_path, host).of(remote(CONTENT))
    assert (outcome, "here is its beginning" in reason) == (FileOutcome.FETCHED, True)
    assert (tmp_path / "out/a").read_bytes() == CONTENT


async def test_what_is_no_file_is_never_taken_for_an_empty_one_of_the_host(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    host = LyingHost({"/w/a": b""})
    assert (await Fetched(tmp_path, host).of(remote(b"", "a", "/w/a")))[0] is FileOutcome.IN_THE_WAY
    assert (await Fetched(tmp_path, host, replaces=True).of(remote(b"", "a", "/w/a")))[0] is FileOutcome.FETCHED
    assert stat.S_ISREG((tmp_path / "a").lstat().st_mode)


def test_a_part_that_another_fetch_has_given_its_name_meanwhile_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target(tmp_path)
    lock = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        os.pwrite(descriptor, b"of the other", 0)
        Target(tmp_path).put_in_place("out/a", replaces=False)  # Between the opening and the lock of this one.
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with target.part("out/a") as part:
        os.pwrite(part, b"mine", 0)
    assert (tmp_path / "out/a").read_bytes() == b"of the other"


async def test_what_came_before_the_link_broke_is_not_brought_again(tmp_path: Path) -> None:
    host = LyingHost({"/w/out/a": CONTENT})

    def broken(_path: str, start: int, data: bytes) -> bytes:
        if start >= 6000:
            raise HostUnreachableError("gpu1", "gone")
        return data

    host.spoil = broken
    fetched = Fetched(tmp_path, host)
    with pytest.raises(HostUnreachableError):
        await fetched.of(remote(CONTENT))
    (part,) = (tmp_path / "out").iterdir()
    assert part.read_bytes() == CONTENT[:6000]
    again = LyingHost({"/w/out/a": CONTENT})
    fetched = Fetched(tmp_path, again)
    assert await fetched.of(remote(CONTENT)) == (FileOutcome.FETCHED, "")
    assert min(start for _path, start in again.reads) == 6000
    assert (tmp_path / "out/a").read_bytes() == CONTENT
    assert fetched.names == {"out/a"}


async def test_of_a_part_that_is_spoilt_only_the_stretch_is_brought_again(tmp_path: Path) -> None:
    fetched = Fetched(tmp_path, host := LyingHost({"/w/out/a": CONTENT}))
    with Target(tmp_path).part("out/a") as part:
        os.pwrite(part, CONTENT[:5000] + b"x" * 5500, 0)
    assert await fetched.of(remote(CONTENT)) == (FileOutcome.FETCHED, "")
    assert (tmp_path / "out/a").read_bytes() == CONTENT
    assert min(start for _path, start in host.reads) == 4000


async def test_a_part_that_is_longer_than_the_file_is_cut(tmp_path: Path) -> None:
    fetched = Fetched(tmp_path, host := LyingHost({"/w/out/a": CONTENT}))
    with Target(tmp_path).part("out/a") as part:
        os.pwrite(part, CONTENT + b"more than there is", 0)
    assert await fetched.of(remote(CONTENT)) == (FileOutcome.FETCHED, "")
    assert (tmp_path / "out/a").read_bytes() == CONTENT
    assert host.reads == []


async def test_what_is_here_already_is_compared_and_not_brought_again(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").write_bytes(CONTENT)
    fetched = Fetched(tmp_path, host := LyingHost({"/w/out/a": CONTENT}))
    assert await fetched.of(remote(CONTENT)) == (FileOutcome.HERE, "")
    assert host.reads == []


@pytest.mark.parametrize("other", [b"another file", b"y" * len(CONTENT)])
async def test_another_file_is_left_alone_unless_it_is_to_be_replaced(tmp_path: Path, other: bytes) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").write_bytes(other)
    host = LyingHost({"/w/out/a": CONTENT})
    assert (await Fetched(tmp_path, host).of(remote(CONTENT)))[0] is FileOutcome.IN_THE_WAY
    assert (tmp_path / "out/a").read_bytes() == other
    assert await Fetched(tmp_path, host, replaces=True).of(remote(CONTENT)) == (FileOutcome.FETCHED, "")
    assert (tmp_path / "out/a").read_bytes() == CONTENT


@pytest.mark.parametrize("replaces", [False, True])
async def test_nothing_is_written_along_a_link_or_in_place_of_a_directory(tmp_path: Path, *, replaces: bool) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    target = tmp_path / "target"
    (target / "dir/a").mkdir(parents=True)
    (target / "out").symlink_to(outside)
    (target / "link").symlink_to(outside / "mine")
    (target / "file").write_text("no directory")
    fetched = Fetched(target, LyingHost({"/w/out/a": CONTENT}), replaces=replaces)
    for name in ("out/a", "dir/a", "file/a"):
        assert (await fetched.of(remote(CONTENT, name)))[0] is FileOutcome.IN_THE_WAY, name
    outcome, _reason = await fetched.of(remote(CONTENT, "link"))
    assert outcome is (FileOutcome.FETCHED if replaces else FileOutcome.IN_THE_WAY)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"mine": "mine"}
    assert (target / "link").is_symlink() is not replaces, "it is the link that makes way, and not what it leads to"


async def test_a_file_that_is_shorter_or_another_one_by_now_gets_no_name_here(tmp_path: Path) -> None:
    shorter = LyingHost({"/w/out/a": CONTENT[:7000]})
    outcome, reason = await Fetched(tmp_path, shorter).of(remote(CONTENT))
    assert (outcome, "became shorter" in reason) == (FileOutcome.CHANGED, True)
    replaced = LyingHost({"/w/out/a": os.urandom(len(CONTENT))})
    replaced.inode += 1
    outcome, reason = await Fetched(tmp_path, replaced).of(remote(CONTENT))
    assert (outcome, "another file" in reason) == (FileOutcome.CHANGED, True)
    assert not (tmp_path / "out/a").exists()


async def test_bytes_that_do_not_have_the_hash_of_the_file_are_brought_again_and_never_taken(tmp_path: Path) -> None:
    host = LyingHost({"/w/out/a": CONTENT})
    host.spoil = lambda _path, start, data: b"z" * len(data) if start == 2000 else data
    outcome, reason = await Fetched(tmp_path, host).of(remote(CONTENT))
    assert (outcome, "not what the host has" in reason) == (FileOutcome.CHANGED, True)
    assert not (tmp_path / "out/a").exists()
    seen: list[int] = []

    def once(_path: str, start: int, data: bytes) -> bytes:
        seen.append(start)
        return b"z" * len(data) if start == 2000 and seen.count(2000) == 1 else data

    mended = LyingHost({"/w/b": CONTENT})
    mended.spoil = once
    assert await Fetched(tmp_path, mended).of(remote(CONTENT, "b", "/w/b")) == (FileOutcome.FETCHED, "")
    assert (tmp_path / "b").read_bytes() == CONTENT


async def test_more_bytes_than_were_asked_for_are_nonsense(tmp_path: Path) -> None:
    host = LyingHost({"/w/out/a": CONTENT})
    host.spoil = lambda _path, _start, data: data + b"more"
    outcome, reason = await Fetched(tmp_path, host).of(remote(CONTENT))
    assert (outcome, reason) == (FileOutcome.FAILED, "gpu1: the agent's answer to read_file makes no sense")
    assert not (tmp_path / "out/a").exists()


async def test_a_full_disk_is_said_and_what_came_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes, offset: int) -> None:
        if offset >= 3000:
            raise OSError(28, "No space left on device")
        os.pwrite(descriptor, data, offset)

    monkeypatch.setattr(transfer_module, "_write", full)
    with pytest.raises(NoRoomError, match="no room left in") as caught:
        await Fetched(tmp_path, LyingHost({"/w/out/a": CONTENT})).of(remote(CONTENT))
    assert "goes on" in caught.value.hint
    (part,) = (tmp_path / "out").iterdir()
    assert part.read_bytes() == CONTENT[:3000]


async def test_two_fetches_do_not_write_one_file(tmp_path: Path) -> None:
    with Target(tmp_path).part("out/a"):
        outcome, reason = await Fetched(tmp_path, LyingHost({"/w/out/a": CONTENT})).of(remote(CONTENT))
    assert (outcome, reason) == (FileOutcome.IN_THE_WAY, "another fetch writes it")


async def test_a_link_or_a_pipe_that_has_the_place_of_a_part_is_not_written_to(tmp_path: Path) -> None:
    with Target(tmp_path).part("out/a"):
        (part,) = (tmp_path / "out").iterdir()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for make, expected in (
        (part.symlink_to, FileOutcome.FAILED),
        (lambda _victim: os.mkfifo(part), FileOutcome.IN_THE_WAY),
        (part.hardlink_to, FileOutcome.FETCHED),
    ):
        part.unlink()
        make(victim)
        outcome, _reason = await Fetched(tmp_path, LyingHost({"/w/out/a": CONTENT})).of(remote(CONTENT))
        assert outcome is expected
        assert victim.read_text() == "mine"
    assert (tmp_path / "out/a").read_bytes() == CONTENT
