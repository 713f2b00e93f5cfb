"""`dttui fetch` and `keep` at the terminal: what they refuse, print and return."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dttui import jobs
from dttui.cli import main
from dttui.cli.arguments import parse_arguments
from dttui.errors import HostUnreachableError
from dttui.fetching import fetch as fetch_module
from dttui.fetching import host_retention
from dttui.inventory.models import Environment, Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.keep_requests import KeepRequests
from dttui.jobs.launch_file import LaunchFile
from tests.unit.fetching.lying_host import LyingHost
from tests.unit.jobs.test_follow import plan_for

HOSTS = ("gpu1", "gpu2")


@pytest.fixture
def directory() -> JobDirectory:
    """A job that has run on two hosts."""
    directory = jobs.create("x")
    environments = tuple(Environment(name=name, host=name) for name in HOSTS)
    launch = LaunchFile(inventory=Inventory(environments=environments), base=Path("/"), language="en")
    directory.launch.write_text(launch.model_dump_json())
    directory.bound_plan(0).parent.mkdir(parents=True)
    directory.bound_plan(0).write_text(plan_for(*HOSTS).model_dump_json())
    return directory


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, LyingHost]:
    """Hosts that have nothing, and may be given something."""
    found = {name: LyingHost(name=name) for name in HOSTS}
    for module in (fetch_module, host_retention):
        monkeypatch.setattr(module, "HostLink", lambda environment, *_more: found[environment.name])
    return found


def test_what_hosts_have_is_brought_and_printed(
    directory: JobDirectory, hosts: dict[str, LyingHost], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts["gpu1"].lists("a").files = {"/w/out/a": b"abc"}
    target = tmp_path / "got"
    assert main(["fetch", directory.job_id, "-o", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}: 1 file, 3 B, each as it is on its host\n"
    assert (target / "gpu1/out/a").read_bytes() == b"abc"
    assert main(["fetch", directory.job_id, "-o", str(target), "--output", "jsonl"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["node"], row["path"], row["bytes"], row["outcome"]) == ("gpu1", "gpu1/out/a", 3, "here")
    assert main(["fetch", directory.job_id, "--list", "--output", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(row["source"], "outcome" in row) for row in listed["files"]] == [("/w/out/a", False)]
    assert listed["directory"] is None


def test_a_name_of_a_host_drives_no_terminal(
    directory: JobDirectory, hosts: dict[str, LyingHost], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = hosts["gpu1"].lists("a", "esc\x1b[2J", place="/w/\x1b]0;x\x07", called="out")
    host.files = {"/w/\x1b]0;x\x07/a": b"abc"}
    assert main(["fetch", directory.job_id, "--list"]) == 0
    assert main(["fetch", directory.job_id, "-o", str(tmp_path / "got")]) == 0
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "1 file with an impossible name" in printed.err


def test_where_nothing_was_saved_that_is_said(
    directory: JobDirectory, hosts: dict[str, LyingHost], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert hosts
    assert main(["fetch", directory.job_id, "-o", str(tmp_path / "got")]) == 0
    assert f"attempt 0 of job {directory.job_id} has saved nothing" in capsys.readouterr().err
    assert not (tmp_path / "got").exists()


def test_what_is_not_all_is_said_and_has_a_code(
    directory: JobDirectory, hosts: dict[str, LyingHost], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = hosts["gpu1"].lists("a")
    host.files, host.is_whole = {"/w/out/a": b"abc"}, False
    assert main(["fetch", directory.job_id, "-o", str(tmp_path / "got")]) == 101
    assert capsys.readouterr().out.endswith("each as it is on its host; there is more than was listed\n")
    assert main(["fetch", directory.job_id, "--list"]) == 101


def test_hosts_that_were_told_to_keep_are_noted_and_others_are_not(
    directory: JobDirectory, hosts: dict[str, LyingHost], capsys: pytest.CaptureFixture[str]
) -> None:
    hosts["gpu2"].refusal_of_all = HostUnreachableError("gpu2", "gpu2: gone")
    assert main(["keep", directory.job_id]) == 4
    assert directory.keep_requests() == KeepRequests(keeps=True, hosts={"gpu1": True})
    hosts["gpu2"].refusal_of_all = None
    assert main(["keep", directory.job_id]) == 0
    hosts["gpu1"].refusal_of_all = HostUnreachableError("gpu1", "gpu1: gone")
    assert main(["keep", directory.job_id, "--off"]) == 4
    assert directory.keep_requests() == KeepRequests(keeps=False, hosts={"gpu1": True, "gpu2": False})
    assert "gpu1: gone" in capsys.readouterr().err


def test_what_changed_and_what_is_in_the_way_have_their_codes(
    directory: JobDirectory, hosts: dict[str, LyingHost], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host = hosts["gpu1"].lists("a")
    host.files = {"/w/out/a": b"xy"}
    assert main(["fetch", directory.job_id, "-o", str(tmp_path)]) == 101
    assert "became shorter" in capsys.readouterr().err
    host.files = {"/w/out/a": b"abc"}
    here = tmp_path / "gpu1/out/a"
    here.write_text("my")
    assert main(["fetch", directory.job_id, "-o", str(tmp_path)]) == 2
    assert "Nothing was fetched" in capsys.readouterr().err
    here.write_text("my!")
    assert main(["fetch", directory.job_id, "-o", str(tmp_path)]) == 2
    assert here.read_text() == "my!"
    assert main(["fetch", directory.job_id, "-o", str(tmp_path), "--force"]) == 0
    assert here.read_text() == "abc"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["fetch", "JOB", "--attempt", "3"], 2),
        (["fetch", "JOB", "--node", "gpu9"], 2),
        (["fetch", "JOB", "--list", "-o", "x"], 2),
        (["fetch", "JOB", "--list", "--force"], 2),
        (["fetch", "nobody"], 102),
        (["status", "JOB", "--keep"], 2),
        (["--keep", "stop", "JOB"], 2),
    ],
)
def test_what_makes_no_sense_is_refused(
    directory: JobDirectory, hosts: dict[str, LyingHost], arguments: list[str], code: int
) -> None:
    assert hosts
    words = [directory.job_id if word == "JOB" else word for word in arguments]
    assert code_of(words) == code


def code_of(words: list[str]) -> int:
    """Return what a command line exits with; the parser ends by itself."""
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)


def test_a_job_that_has_started_nowhere_has_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    directory = jobs.create("y")
    for verb in ("fetch", "keep"):
        assert main([verb, directory.job_id]) == 2
        assert "has started nowhere" in capsys.readouterr().err


def test_keep_of_a_launch_and_of_a_removal_are_two_things() -> None:
    assert parse_arguments(["--apply", "job.yaml", "--keep"]).keeps is True
    assert parse_arguments(["again", "--keep"]).keeps is True
    assert parse_arguments(["apply", "job.yaml"]).keeps is False
    removal = parse_arguments(["remove", "--keep", "5"])
    assert (removal.keep, removal.keeps) == (5, False)
