"""`dttui bench --explain`: what a person and a program are told, with nothing measured and nobody asked."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from dttui import locations
from dttui.cli import main
from dttui.fleet.known_hardware import record_links
from dttui.planning.cost.links import MeasuredLink

RING_OF_TWO = """\
ring: 2 ranks, 1MiB

round 1 of 2
  0 → 1 +·█   1 → 0 +█·

round 2 of 2
  0 → 1 =█·   1 → 0 =·█
"""


def test_each_round_is_drawn_with_the_cost_by_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--explain", "ring", "--ranks", "2", "--max", "1MiB"]) == 0
    told = capsys.readouterr().out
    assert told.startswith(RING_OF_TWO)
    assert "  = 2 × 50 µs + 1 × 1MiB ÷ 1.25 GB/s = 0.9389 ms\n" in told


def test_lines_are_as_wide_as_the_terminal_at_most(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["bench", "--explain", "butterfly", "--ranks", "64"]) == 0
    drawn = [line for line in capsys.readouterr().out.splitlines() if "→" in line]
    assert max(len(line) for line in drawn) <= 80
    assert sum(line.count("→") for line in drawn) == 12 * 64


def test_with_hosts_it_is_priced_for_the_slowest_link_that_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    locations.inventory_file().parent.mkdir(parents=True, exist_ok=True)
    locations.inventory_file().write_text("environments: [{name: a, host: a}, {name: b, host: b}, {name: c, host: c}]")
    speeds = {("a", "b"): 1e9, ("b", "c"): 1e6}
    record_links(
        MeasuredLink(kind="hosts", between=ends, bandwidth=speed, round_trip_s=2e-3, measured_at=time.time())
        for ends, speed in speeds.items()
    )
    assert main(["bench", "--explain", "tree", "--envs", "a,b,c", "--max", "8B", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["latency_s"], document["bandwidth"]) == (1e-3, 1e6)
    assert document["seconds"] == pytest.approx(4 * (1e-3 + 8 / 1e6))
    assert main(["bench", "--explain", "tree", "--envs", "a,b,c"]) == 0
    assert "b ↔ c: 2 ms there and back, 0.008 Gbit/s a node, measured " in capsys.readouterr().out


def test_with_a_job_it_is_refused_and_not_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--explain", "ring", "--job", "job.yaml"]) == 2
    assert "--explain and --job exclude each other" in capsys.readouterr().err


def test_another_name_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--explain", "rings"]) == 2
    told = capsys.readouterr().err
    assert 'there is no algorithm "rings"' in told
    assert "There are: ring, tree," in told


def test_torch_is_not_imported_for_a_drawing() -> None:
    script = "import sys\nfrom dttui.cli import main\nmain(sys.argv[1:])\nassert 'torch' not in sys.modules"
    command = [sys.executable, "-c", script, "bench", "--explain", "ring"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ring: 4 ranks")
