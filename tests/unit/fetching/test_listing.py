"""What a host says it has: where each file goes here, and what is never taken from it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.rpc import ErrorCode
from dtagent.protocol.saved import MAX_FILES, LeftOut, ListedPlace, PlaceKind

from dttui.errors import AgentError
from dttui.fetching.listing import arranged, list_host
from dttui.fetching.models import Listing
from dttui.fetching.target import PART
from tests.unit.fetching.lying_host import INODE, TIME_NS, LyingHost

KEY = AttemptKey("job", 0)


async def listing_of(host: LyingHost) -> Listing:
    return await list_host(host, KEY, ())


def targets(listing: Listing) -> dict[str, str]:
    return {file.target: file.source for file in listing.files}


async def test_files_go_where_their_host_has_them() -> None:
    host = LyingHost().lists("m.pt", "step-1/m.pt").lists("", place="/w/result.txt", called="work/result.txt")
    host.page = 2
    assert targets(await listing_of(host)) == {
        "out/m.pt": "/w/out/m.pt",
        "out/step-1/m.pt": "/w/out/step-1/m.pt",
        "work/result.txt": "/w/result.txt",
    }


@pytest.mark.parametrize(
    "name",
    [
        *("../up", "/etc/passwd", "a/../../b", ".", "..", "a//b", "a/", "a\nb", "a\x1b[2Jb", "a\0b"),
        *("x" * 300, "a/" * 100 + "b", "\u202egpj.exe", f"{PART}0123"),
    ],
)
async def test_a_name_that_leads_out_or_shows_as_another_is_not_taken(name: str) -> None:
    listing = await listing_of(LyingHost().lists(name, "good"))
    assert targets(listing) == {"out/good": "/w/out/good"}
    assert "1 file with an impossible name" in listing.notes[0]


@pytest.mark.parametrize("called", ["../up", "/etc", "..", "a\nb", "", "x" * 300])
async def test_a_place_that_would_lead_out_is_called_by_its_own_path(called: str) -> None:
    assert set(targets(await listing_of(LyingHost().lists("a", called=called)))) <= {"w/out/a", "a"}


async def test_a_place_whose_path_leads_anywhere_stays_below() -> None:
    host = LyingHost().lists("a", place="/w/../../etc", called="../x").lists("b", place="relative", called="ok")
    listing = await listing_of(host)
    assert set(targets(listing)) == {"etc/a"}


@pytest.mark.parametrize(
    "row", [(5, "a", 3, TIME_NS, INODE), (-1, "a", 3, TIME_NS, INODE), (0, "a", -1, 0, 0), (0, "a", 2**63, 0, 0)]
)
async def test_rows_that_make_no_sense_are_counted(row: tuple[int, str, int, int, int]) -> None:
    host = LyingHost().lists("good")
    host.rows.append(row)
    listing = await listing_of(host)
    assert set(targets(listing)) == {"out/good"}
    assert len(listing.notes) == 1


async def test_two_places_of_one_name_and_two_files_of_one_place_come_apart() -> None:
    host = LyingHost().lists("a").lists("a", place="/x/out").lists("a", place="/w/out", called="again")
    host.rows.append((0, "a", 99, TIME_NS, INODE))
    listing = await listing_of(host)
    assert targets(listing) == {"out/a": "/w/out/a", "x/out/a": "/x/out/a"}
    assert [file.size_bytes for file in listing.files] == [3, 3]


async def test_a_host_without_end_is_cut_off() -> None:
    host = LyingHost().lists(*(str(number) for number in range(MAX_FILES + 10)))
    host.page = 4000
    listing = await listing_of(host)
    assert len(listing.files) == MAX_FILES
    assert listing.notes == ("gpu1: there is more than can be listed at once: name a directory below",)
    endless = LyingHost().lists("a")
    endless.page = 0
    assert targets(await listing_of(endless)) == {}


async def test_what_is_left_out_is_told_with_examples_that_drive_no_terminal() -> None:
    host = LyingHost().lists("good")
    host.left_out = LeftOut(links=2, special=1, examples=["esc\x1b[2Jape"])
    listing = await listing_of(host)
    assert listing.notes == ("gpu1: left out: 2 links, 1 device or pipe (esc\\x1b[2Jape)",)


async def test_what_is_asked_for_and_not_there_is_told() -> None:
    host = LyingHost()
    host.places = [ListedPlace("/w/x", "x", PlaceKind.ASKED, "there is no /w/x here")]
    listing = await list_host(host, KEY, ("x",))
    assert listing.missing == {0: "gpu1: there is no /w/x here"}
    other = await listing_of(LyingHost(name="gpu2").lists("", place="/w/x", called="x"))
    one_has_it = arranged([listing, other], {}, are_apart=False)
    assert [item.missing for item in one_has_it] == [{}, {}]
    assert one_has_it[0].notes == ("gpu1: there is no /w/x here",)
    alone = arranged([listing, replace(other, error="gpu2: gone")], {}, are_apart=False)
    assert alone[0].missing == listing.missing


async def test_what_an_attempt_was_said_to_have_saved_is_asked_for_once_its_directory_was_cleared_away() -> None:
    cleared = LyingHost().lists("a", place="/data/out")
    cleared.refusal = AgentError("gpu1", "no attempt", code=ErrorCode.NO_SUCH_ATTEMPT)
    assert targets(await list_host(cleared, KEY, (), ["/data/out"])) == {"out/a": "/data/out/a"}
    refused = await list_host(cleared, KEY, ())
    assert (refused.files, refused.error) == ((), "no attempt")
    left = LyingHost().lists("c", place="/root/jobs/j/0/checkpoints", called="checkpoints")
    await list_host(left, KEY, (), ["/root/jobs/j/0/checkpoints/sub", "/data/out"])
    assert left.asked == [(), ("/data/out",)]


async def test_answers_that_do_not_go_together_or_name_too_many_places_are_no_whole_list() -> None:
    moving = LyingHost().lists("a", "b", "c")
    moving.page = 1
    moving.after_page = lambda host: host.places.insert(0, ListedPlace("/w/new", "new"))
    listing = await listing_of(moving)
    assert (len(listing.files), listing.is_whole) == (1, False)
    many = LyingHost()
    many.places = [ListedPlace(f"/w/{number}", str(number)) for number in range(1000)]
    assert not (await listing_of(many)).is_whole


async def test_hosts_get_a_directory_each_where_an_attempt_has_several_and_what_they_share_comes_once() -> None:
    directories = {"gpu1": "gpu1", "gpu2": "gpu2"}
    first = await listing_of(LyingHost(name="gpu1").lists("a"))
    second = await listing_of(LyingHost(name="gpu2").lists("a"))
    shared = arranged([first, second], directories, are_apart=True)
    assert [set(targets(item)) for item in shared] == [{"gpu1/out/a"}, set()]
    silent = arranged([first, Listing("gpu2", error="gone")], directories, are_apart=True)
    assert set(targets(silent[0])) == {"gpu1/out/a"}, "another fetch, when it is back, finds what this one has brought"
    assert set(targets(arranged([first], directories, are_apart=False)[0])) == {"out/a"}
    assert shared[1].notes == ("gpu2: out is the same directory as on gpu1",)
    other = replace(second, files=tuple(replace(file, inode=99) for file in second.files))
    apart = arranged([first, other], directories, are_apart=True)
    assert [set(targets(item)) for item in apart] == [{"gpu1/out/a"}, {"gpu2/out/a"}]
