"""Ranks that a launcher of the script's own starts: told apart by their environment, and announced as dttui's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dtagent import payload
from dtagent.attempts.attempts import _copy_payload
from dtagent.locations import AttemptFiles, make_private
from dtagent.payload.own_rank import rank_of_environment

PLACE = Path(payload.__file__).parent


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    """An attempt, with the payload's copies, whose launcher writes to a log."""
    files = AttemptFiles(tmp_path / "attempt")
    for directory in (files.logs, files.ranks, files.failures, files.work, files.payload):
        make_private(directory)
    _copy_payload(files.payload)
    return files


def run(files: AttemptFiles, code: str, script: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python code, or a script, as a launcher of its own would start it as rank 5, the second of its node."""
    told = {
        "PYTHONPATH": f"{files.payload}/modules",
        "DTTUI_LOGS": str(files.logs),
        "DTTUI_OWN_RANKS": "4:2",
        **{"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "6", "MASTER_PORT": "29511"},
    }
    with (files.logs / "launcher.out").open("ab") as out, (files.logs / "launcher.err").open("ab") as err:
        command = [sys.executable, *(["-c", code] if script is None else [str(script)])]
        return subprocess.run(
            command, env={**os.environ, **told, **more}, stdout=out, stderr=err, text=True, check=False
        )


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, 5),
        # Lightning gives those that it starts no RANK.
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "8"}, 5),
        # Each node's launcher has numbered its ranks by itself, or all in another order.
        ({"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}, 5),
        ({"RANK": "5", "LOCAL_RANK": "0", "WORLD_SIZE": "12"}, 4),
        # More processes than the job has slots on the node.
        ({"RANK": "9", "LOCAL_RANK": "4", "WORLD_SIZE": "12"}, None),
        ({"RANK": "5", "WORLD_SIZE": "8"}, None),
        ({"RANK": "5", "LOCAL_RANK": "1"}, None),
        ({"RANK": "x", "LOCAL_RANK": "y", "WORLD_SIZE": "z"}, None),
        ({}, None),
    ],
)
def test_a_rank_is_told_by_its_environment(environment: dict[str, str], rank: int | None) -> None:
    assert rank_of_environment({"DTTUI_OWN_RANKS": "4:4", **environment}) == rank
    assert rank_of_environment(environment) is None
    assert rank_of_environment({**environment, "DTTUI_OWN_RANKS": "4"}) is None


def test_a_rank_is_announced_has_logs_of_its_own_and_a_good_end(files: AttemptFiles) -> None:
    done = run(files, "import os, sys; print('loss', os.getpid()); print('oh', file=sys.stderr)")
    assert done.returncode == 0
    told = read(files.ranks / "5.json")
    assert (files.logs / "5.out").read_text() == f"loss {told['pid']}\n"
    assert (files.logs / "5.err").read_text() == "oh\n"
    assert (files.logs / "launcher.out").read_text() == ""
    assert (told["local_rank"], told["port"]) == (1, 29511)
    assert read(files.ranks / "5.ended.json")["local_rank"] == 1
    assert [*files.failures.iterdir()] == []


@pytest.mark.parametrize(
    "hook", ["", "import sys; sys.excepthook = lambda *told: print('tracked', told[1])\n"], ids=["none", "its own"]
)
def test_an_exception_is_kept_also_where_the_script_has_a_hook_that_calls_no_other(
    hook: str, files: AttemptFiles
) -> None:
    assert run(files, f"{hook}raise ValueError('broken')").returncode == 1
    failure = read(files.failures / "5.json")
    assert (failure["error"], failure["exit_code"], failure["local_rank"]) == ("ValueError: broken", 1, 1)
    assert failure["traceback"].startswith("Traceback")
    told = (files.logs / f"5.{'out' if hook else 'err'}").read_text()
    assert ("tracked broken" if hook else "ValueError: broken") in told
    assert not (files.ranks / "5.ended.json").exists()


@pytest.mark.parametrize(
    "leaves", ["sys.exit(3)", "os._exit(3)", "sys.exit('no')", "exit(3)", "raise SystemExit(3)", "sys.exit(main())"]
)
def test_a_bad_exit_is_no_good_end(leaves: str, files: AttemptFiles, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import os, sys\ndef main(): return 2\n{leaves}\n")
    assert run(files, "", script=script).returncode == (2 if "main" in leaves else 1 if "no" in leaves else 3)
    assert (files.ranks / "5.json").exists()
    assert not (files.ranks / "5.ended.json").exists()


def test_of_several_processes_of_a_rank_the_last_one_counts(files: AttemptFiles) -> None:
    """As a launcher starts them one after another: it tries again, or looks at the host first."""
    run(files, "raise ValueError('the first round')")
    assert (files.failures / "5.json").exists()
    assert run(files, "print('well')").returncode == 0
    assert not (files.failures / "5.json").exists()
    assert (files.ranks / "5.ended.json").exists()
    run(files, "import os; os._exit(9)")
    assert not (files.ranks / "5.ended.json").exists()


def test_helpers_of_multiprocessing_are_no_ranks(files: AttemptFiles) -> None:
    """Lightning's own process tells its place after it has begun: whatever it starts then is none."""
    helper = "from multiprocessing.resource_tracker import main; print('tracks')"
    assert run(files, helper).returncode == 0
    assert not (files.ranks / "5.json").exists()
    assert (files.logs / "launcher.out").read_text() == "tracks\n"


def test_what_a_rank_starts_is_no_rank(files: AttemptFiles) -> None:
    inner = "import os; print('inner', os.getpid())"
    starts = f"subprocess.run([sys.executable, '-c', {inner!r}])"
    code = f"import subprocess, sys, os; print('rank', os.getpid(), flush=True); {starts}"
    assert run(files, code).returncode == 0
    lines = (files.logs / "5.out").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["rank", "inner"]
    assert read(files.ranks / "5.json")["pid"] == int(lines[0].split()[1])


def test_output_that_is_led_elsewhere_stays_there(files: AttemptFiles) -> None:
    starts = (
        "subprocess.run([sys.executable, '-c', 'print(1)'], stdout=subprocess.PIPE, "
        "env={**os.environ, 'RANK': '5', 'LOCAL_RANK': '1'})"
    )
    outer: dict[str, Any] = {"LOCAL_RANK": "", "RANK": ""}  # A launcher, which reads what its ranks print.
    inner = f"import os, subprocess, sys; sys.exit({starts}.stdout != b'1\\n')"
    assert run(files, inner, **outer).returncode == 0
    assert read(files.ranks / "5.json")["local_rank"] == 1
    assert not (files.logs / "5.out").exists()


def test_the_interpreters_own_module_of_that_name_is_read_too(files: AttemptFiles, tmp_path: Path) -> None:
    place = tmp_path / "own"
    place.mkdir()
    (place / "sitecustomize.py").write_text("print('own')\n")
    assert (
        run(
            files, "import sitecustomize; print(sitecustomize.__file__)", PYTHONPATH=f"{files.payload}/modules:{place}"
        ).returncode
        == 0
    )
    assert (files.logs / "5.out").read_text().splitlines() == ["own", str(place / "sitecustomize.py")]


def test_a_process_without_a_place_is_left_alone(files: AttemptFiles) -> None:
    assert run(files, "print(1)", LOCAL_RANK="", RANK="").returncode == 0
    assert (files.logs / "launcher.out").read_text() == "1\n"
    assert [*files.ranks.iterdir()] == []
