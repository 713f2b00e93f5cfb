"""Job files saved and opened from the screen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dttui import locations
from dttui.compose import documents
from dttui.compose.documents import (
    JobPlaces,
    format_file,
    full_path,
    has_comments,
    hosts_of,
    import_hosts,
    importable_hosts,
    is_directory,
    keeps_comments,
    load_demo,
    open_job,
    places_for,
    recent_files,
    remember,
    save_job,
)
from dttui.errors import UsageError
from dttui.inventory.models import Environment, Inventory
from dttui.launch.local_plan import make_local_plan
from dttui.planning.submission import Submission
from dttui.spec import DocumentError, Job, dump_job
from dttui.spec.models import Run

EMPTY = Inventory()


def submission(base: Path, **run: str) -> Submission:
    return Submission(Job(name="mini", run=Run(**run)), EMPTY, base)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ({"script": "train.py"}, "../project"),
        ({"script": "train.py", "workdir": "src"}, "../project/src"),
        ({"script": "train.py", "workdir": "/srv"}, "/srv"),
        ({"script": "/srv/train.py"}, None),
        ({"module": "train"}, None),
    ],
)
def test_a_directory_that_is_sent_is_named_from_where_the_file_lies(
    tmp_path: Path, run: dict[str, str], expected: str | None
) -> None:
    base = tmp_path / "project"
    base.mkdir()
    saved = save_job(tmp_path / "jobs" / "job.yaml", submission(base, **run))
    again = open_job(tmp_path / "jobs" / "job.yaml", EMPTY)
    assert saved == again
    assert again.job.run is not None
    assert again.job.run.workdir == expected
    assert again.base == tmp_path / "jobs"


def test_beside_its_own_directory_nothing_changes(tmp_path: Path) -> None:
    assert (
        save_job(tmp_path / "job.yaml", submission(tmp_path, script="a.py")).job
        == submission(tmp_path, script="a.py").job
    )


def test_a_whole_number_is_written_back_as_one(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    numbers = "  model:\n    parameters: 253824\n  recovery:\n    heartbeat_s: 2.5\n    self_fence_s: 30\n"
    path.write_text(f"distributed_training:\n  name: mini\n{numbers}")
    save_job(path, open_job(path, EMPTY))
    assert numbers in path.read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("# why\n", True), ("a: 1  # why\n", True), ("a: 1#2\n", False), ("", False), (b"\xff", False)],
)
def test_comments_of_a_file_are_seen(tmp_path: Path, text: str | bytes, expected: bool) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert has_comments(path) is expected


OWN = "# mine\ndistributed_training:\n  name:   mini  # its name\n  run: {script: train.py}\n"


def renamed(opened: Submission) -> Submission:
    return Submission(opened.job.model_copy(update={"name": "other"}), EMPTY, opened.base)


def test_saved_where_it_was_opened_a_file_changes_only_where_the_job_did(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(OWN.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    new = renamed(open_job(path, EMPTY))
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    assert keeps_comments(link, new, opened=path)
    save_job(link, new, opened=path)
    assert path.read_bytes().decode() == OWN.replace("mini", "other").replace("\n", "\r\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()


def test_saved_over_another_file_nothing_of_that_stays(tmp_path: Path) -> None:
    path, other = tmp_path / "job.yaml", tmp_path / "other.yaml"
    path.write_text(OWN)
    other.write_text("# another\ndistributed_training: {name: x}\n")
    new = renamed(open_job(path, EMPTY))
    for opened in (path, None):
        assert not keeps_comments(other, new, opened=opened)
        save_job(other, new, opened=opened)
        assert other.read_text() == dump_job(new.job)
        other.write_text("# another\n")
    path.write_text("# no job\n")
    assert not keeps_comments(path, new, opened=path)
    assert keeps_comments(tmp_path / "new.yaml", new)


def test_a_file_is_formatted_once(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(OWN)
    assert format_file(path, write=False)
    assert path.read_text() == OWN
    assert format_file(path, write=True)
    assert path.read_text() == OWN.replace("name:   mini", "name: mini  ")
    assert not format_file(path, write=True)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        save_job(tmp_path / "file" / "job.yaml", submission(tmp_path, script="a.py"))


def test_the_demo_is_ready_to_launch() -> None:
    inventory, demo = load_demo()
    assert make_local_plan(demo).errors == ()
    assert all(item.simulated for item in inventory.environments)


def test_hosts_that_the_inventory_has_already_are_not_offered(tmp_path: Path) -> None:
    ssh = Path(os.environ["HOME"]) / ".ssh"
    ssh.mkdir()
    (ssh / "config").write_text("Host a b\n")
    known = Inventory(environments=(Environment(name="a", host="a"),))
    hosts = importable_hosts(known).new
    assert [host.name for host in hosts] == ["b"]
    assert import_hosts(tmp_path / "inventory.yaml", hosts).environments == tuple(hosts)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config", "Host a b github.com\n  User li\n"),
        ("hostfile", "a slots=2\nb slots=4\n"),
        ("hosts.ini", "[gpu]\na ansible_host=10.0.0.1\nb ansible_host=10.0.0.2\n"),
        ("inventory.yaml", "environments:\n- {name: a, host: a}\n- {name: b, host: b}\n"),
    ],
)
def test_hosts_are_read_of_each_kind_of_file_that_lists_some(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = hosts_of(str(tmp_path / name), Inventory(environments=(Environment(name="a", host="a"),)))
    assert [item.name for item in found.new] == ["b"]
    assert found.known == ["a"]
    assert found.left_out == (["github.com"] if name == "config" else [])


def test_the_own_ssh_configuration_is_one_however_it_begins() -> None:
    ssh = Path(os.environ["HOME"]) / ".ssh"
    ssh.mkdir()
    (ssh / "config").write_text("ServerAliveInterval 60\nHost a\n")
    assert [item.name for item in hosts_of("~/.ssh/config", EMPTY).new] == ["a"]


def test_a_file_that_lists_no_hosts_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: x\n")
    with pytest.raises(DocumentError, match=r"job\.yaml"):
        hosts_of(str(tmp_path / "job.yaml"), EMPTY)


def test_what_is_typed_is_gone_on_with_by_job_files_and_directories_and_by_recent_files(tmp_path: Path) -> None:
    for name in ("gpt.yaml", "bert.YML", "notes.txt", ".hidden.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "graphs").mkdir()
    elsewhere = tmp_path / "graphs" / "old-gpt.yaml"
    elsewhere.touch()
    remember(elsewhere)
    found = places_for(f"{tmp_path}/")
    assert [path.name for path in found.files] == ["bert.YML", "gpt.yaml"]
    assert [path.name for path in found.directories] == ["graphs"]
    assert found.recent == (elsewhere,)
    found = places_for(f"{tmp_path}/GP")
    assert ([path.name for path in found.files], found.directories, found.recent) == (["gpt.yaml"], (), (elsewhere,))
    assert places_for(f"{tmp_path}/none/b").files == ()


def test_a_home_of_nobody_and_a_path_that_is_none_lead_nowhere() -> None:
    for typed in ("~nobody-of-that-name/", "~nobody-of-that-name/gpt", "a\0b/", "x" * 5000 + "/"):
        assert places_for(typed) == JobPlaces((), (), ())
    assert not is_directory(Path("~nobody-of-that-name/x"))
    assert full_path("~nobody-of-that-name/x").name == "x"


def test_of_a_huge_directory_only_so_much_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_LOOKED_AT", 3)
    for number in range(10):
        (tmp_path / f"{number}.yaml").touch()
    assert len(places_for(f"{tmp_path}/").files) == 3


def test_recent_files_are_the_last_first_each_once_and_only_those_that_are_there(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.yaml" for number in range(3)]
    for path in paths:
        path.touch()
        remember(path)
    remember(paths[0])
    paths[1].unlink()
    assert recent_files() == [paths[0], paths[2]]
    locations.recent_files().write_text("{")
    assert recent_files() == []
