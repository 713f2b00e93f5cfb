"""`dttui bench --show`: what was measured last, for a person and for a program, with nothing measured."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path

import pytest

from dttui import locations
from dttui.app import App, BenchReport
from dttui.cli import main
from dttui.cli.benching import show_progress
from dttui.cli.printing import Printer
from dttui.compose import bench_report
from dttui.compose.bench_report import make_report, read_report
from dttui.compose.bench_words import progress_text
from dttui.compose.kept_benches import keep_bench
from dttui.jobs import JobDirectory
from tests.unit.compose.test_kept_benches import bench, hosts
from tests.unit.compose.test_link_bench import line, pair

INVENTORY = """
environments:
  - {name: a, host: a, address: 10.0.0.1}
  - {name: b, host: b, address: 10.0.0.2}
  - {name: c, host: c, address: 10.0.0.3}
"""


@pytest.fixture(autouse=True)
def three_hosts() -> None:
    file = locations.inventory_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(INVENTORY)


def test_a_person_is_told_when_it_was_measured_and_over_what_then_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    keep_bench(bench(hosts("a", "b"), 1_700_000_000.0))
    assert main(["bench", "--show"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("measured 2023-11-1")
    assert told[0].endswith(" · between a, b alone · gloo · over eth0, ib0")
    assert sum(row.startswith(("8B\t", "64KiB\t", "1MiB\t")) for row in told) == 3
    assert main(["bench", "--show", "--envs", "b,a"]) == 0
    assert "alone" not in capsys.readouterr().out


def test_a_program_gets_the_same_document_as_of_the_bench_itself(capsys: pytest.CaptureFixture[str]) -> None:
    keep_bench(bench(hosts("a", "b"), 7.0))
    assert main(["bench", "--show", "--envs", "a,b", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["measured_at"], document["hosts"], document["backend"]) == (7.0, ["a", "b"], "gloo")
    assert document["interfaces"] == {"a": "eth0", "b": "ib0"}
    assert document["findings"] == []
    assert len(document["rows"]) == 3


def test_where_nothing_was_measured_the_remedy_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    keep_bench(bench(hosts("a", "b"), 7.0))
    assert main(["bench", "--show", "--envs", "a,c"]) == 2
    told = capsys.readouterr().err
    assert "nothing was measured yet between these hosts" in told
    assert "Measure them with `dttui bench --envs a,c`." in told


def test_the_remedy_measures_hosts_of_the_same_inventory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", "--show", "--demo"]) == 2
    assert "`dttui bench --demo --envs " in capsys.readouterr().err
    other = tmp_path / "other.yaml"
    other.write_text(INVENTORY)
    assert main(["bench", "--show", "--inventory", str(other)]) == 2
    assert f"`dttui bench --inventory {other} --envs a,b,c`" in capsys.readouterr().err


def test_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    told = " ".join(capsys.readouterr().out.split("options:")[0].split())
    assert "measure links and collectives of hosts by a job of its own" in told


class Terminal(io.StringIO):
    """A stream that moves its cursor."""

    def isatty(self) -> bool:
        """Return that it is one."""
        return True


def test_on_a_terminal_a_bar_says_how_many_rows_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    lines = [line(kind="begin", backend="gloo", total=6), *pair(0, 1, 1e9)]
    report = make_report(lines, ["a", "b"])
    Printer("human").show_share(report.share, progress_text(report))
    assert terminal.getvalue() == "\r\x1b[K[############            ] 3 of 6 rows · a ↔ b · sendrecv · 1MiB"


async def test_how_far_it_is_goes_on_being_looked_at_although_a_look_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks: list[JobDirectory] = []
    has_looked_twice = asyncio.Event()
    loop = asyncio.get_running_loop()

    def look(directory: JobDirectory) -> BenchReport:
        looks.append(directory)
        if len(looks) == 2:
            loop.call_soon_threadsafe(has_looked_twice.set)
        return read_report(directory)

    monkeypatch.setattr(bench_report, "read_report", look)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    showing = asyncio.create_task(show_progress(App(), JobDirectory(tmp_path / "gone"), Printer("human")))
    second = asyncio.create_task(has_looked_twice.wait())
    await asyncio.wait((showing, second), timeout=60, return_when=asyncio.FIRST_COMPLETED)
    assert not showing.done()
    assert second.done()
    showing.cancel()


def test_the_nodes_of_a_job_are_meant_with_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keep_bench(bench(hosts("a", "b"), 7.0))
    file = tmp_path / "job.yaml"
    file.write_text(
        "distributed_training:\n  name: x\n  cluster:\n    nodes:\n      - {id: b, role: master}\n      - {id: a}\n"
    )
    assert main(["bench", "--show", "--job", str(file), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured_at"] == 7.0
