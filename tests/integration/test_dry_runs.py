"""`--dry-run` says what would be done and does nothing; `--timeout` bounds a verb, and the same one goes on after."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from dttui import jobs
from tests.integration.headless import (
    dttui,
    dttui_here,
    result_of,
    shell_job,
    start_dttui,
    wait_for_running,
    wait_for_state,
)
from tests.lab.hosts import Lab
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

ONE = "pytorch-dev-env"
LONG = "sleep 600"
KEPT = "find /var/tmp /root/.ssh /etc/hosts -printf '%p %y %m %s\\n' 2>/dev/null | sort | sha256sum"


def tree(*roots: Path) -> str:
    """Return a hash of all names, modes and contents below directories, but for what a running job itself writes."""
    found = hashlib.sha256()
    for path in sorted(item for root in roots for item in root.rglob("*")):
        if "telemetry" in path.parts or path.name == "controller.lock" or "events" in path.name:
            continue
        found.update(f"{path} {path.lstat().st_mode}\n".encode())
        if path.is_file() and not path.is_symlink():
            found.update(path.read_bytes())
    return found.hexdigest()


def state() -> Path:
    return Path(os.environ["XDG_STATE_HOME"])


@pytest.mark.usefixtures("shared_agents")
def test_stopping_and_removing_are_told_without_being_done(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1}, LONG)
    assert dttui("--demo", "--apply", job, "--detach").returncode == 0
    job_id = wait_for_running()
    before = tree(state(), tmp_path)
    told = dttui_here("stop", "--dry-run")
    assert (told.returncode, job_id in told.stdout, ONE in told.stdout) == (0, True, True)
    document = result_of(dttui_here("stop", job_id, "--force", "--dry-run", "--output", "json"))
    assert document == {"dry_run": True, "job_id": job_id, "state": "RUNNING", "hosts": [ONE], "force": True}
    assert dttui_here("remove", job_id, "--dry-run").returncode == 2  # As without: it runs.
    assert tree(state(), tmp_path) == before
    assert jobs.summarize(jobs.find(job_id)).state.value == "RUNNING"
    assert dttui("stop", job_id).returncode == 0
    wait_until(lambda: not jobs.find(job_id).has_controller(), "its controller to go", 30)
    before = tree(state())
    told = dttui_here("remove", job_id, "--dry-run", "--output", "json")
    assert [row["job_id"] for row in json.loads(told.stdout)] == [job_id]
    assert tree(state()) == before
    assert dttui_here("stop", job_id, "--dry-run").returncode == 0


@pytest.mark.usefixtures("shared_agents")
def test_a_bounded_apply_leaves_its_job_to_go_on_and_the_same_call_takes_it_up(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1}, f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; echo gone on")
    for limit_s in (4, 20, 60):  # On a machine under load there may be no job yet when the time is up.
        began = time.monotonic()
        done = dttui("--demo", "--apply", job, "--timeout", f"{limit_s}s")
        assert time.monotonic() - began < limit_s + 30
        assert done.returncode == 101, done.stderr
        assert f"not finished within {limit_s} s" in done.stderr
        if jobs.list_jobs():
            break
        assert "nothing was started" in done.stderr
    (known,) = jobs.list_jobs()
    assert f"dttui attach {known.job_id}" in done.stderr
    wait_for_state(known.job_id, "RUNNING")
    again = start_dttui("--demo", "--apply", job)
    assert again.stderr is not None
    assert any("this job runs already" in line for line in again.stderr)  # Those after it are read below.
    (tmp_path / "go").touch()
    printed, said = again.communicate(timeout=60)
    assert (again.returncode, "gone on" in printed) == (0, True), said
    assert len(jobs.list_jobs()) == 1


@pytest.mark.usefixtures("shared_agents")
def test_a_bounded_stop_is_noted_and_done(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {ONE: 1}, "trap '' TERM; while :; do sleep 0.2; done")
    assert dttui("--demo", "--apply", job, "--detach").returncode == 0
    job_id = wait_for_running()
    done = dttui("stop", job_id, "--timeout", "3s")
    assert done.returncode == 101, done.stderr
    was_noted = f"dttui status {job_id}" in done.stderr  # Else the machine was too busy to ask so soon.
    assert was_noted or "Run the same command again" in done.stderr
    assert was_noted == jobs.find(job_id).stop_request.exists()
    assert dttui("stop", job_id, "--force").returncode == 0


def test_a_preflight_is_told_without_asking_anybody(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("environments:\n- {name: gpu1, host: 203.0.113.1}\n")
    told = result_of(
        dttui_here("preflight", "--nodes", "gpu1", "--inventory", inventory, "--dry-run", "--output", "json")
    )
    assert told["nodes"] == ["gpu1"]
    assert "clock" in told["checks"]


@pytest.mark.parametrize("how", ["2s", "1500ms", "0s", "-3s", "soon"])
def test_a_time_is_written_as_everywhere(how: str) -> None:
    done = dttui_here("stop", "no-such-job", f"--timeout={how}")
    assert done.returncode == (102 if how == "2s" else 2)


def test_files_are_named_and_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = shell_job(tmp_path, {ONE: 1}, "true")
    text = job.read_text()
    (Path.home() / ".ssh").mkdir(exist_ok=True)
    (Path.home() / ".ssh/config").write_text("Host gpu1\n  HostName gpu1.example.org\n")
    before = tree(tmp_path, Path.home())
    for words in (
        ["--demo", "render", str(job), "-o", "out"],
        ["--demo", "init", "made", "--framework", "pytorch-ddp"],
        ["import", "-o", "new.yaml", "--", "torchrun", "--nproc-per-node", "2", "train.py"],
        ["fmt", str(job)],
        ["envs", "import"],
    ):
        at = words.index("--") if "--" in words else len(words)
        done = dttui_here(*words[:at], "--dry-run", *words[at:])
        assert done.returncode in (0, 2 if words[0] == "fmt" else 0), (words, done.stderr)
        assert done.stdout + done.stderr
    assert tree(tmp_path, Path.home()) == before
    assert job.read_text() == text


def test_agents_are_brought_and_taken_away_in_words_alone(deployed: Lab, tmp_path: Path) -> None:
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    fresh = tmp_path / "fresh.yaml"
    fresh.write_text(inventory.read_text().replace("  zone:", "  agent_root: /var/tmp/other\n  zone:"))
    before = {host.name: host.run(["sh", "-c", KEPT]).stdout for host in deployed.values()}

    def rows(*words: str | Path, code: int = 0) -> dict[str, tuple[str, bool]]:
        done = dttui("agents", *words, "--dry-run", "--output", "json")
        assert done.returncode == code, done.stdout + done.stderr
        return {row["host"]: (row["outcome"], row["dry_run"]) for row in json.loads(done.stdout)}

    names = list(before)
    assert rows("deploy", "--inventory", inventory) == dict.fromkeys(names, ("up-to-date", True))
    assert rows("deploy", "--inventory", fresh) == dict.fromkeys(names, ("installed", True))
    assert rows("upgrade", "--inventory", inventory) == dict.fromkeys(names, ("up-to-date", True))
    assert rows("upgrade", "--inventory", fresh, code=4) == dict.fromkeys(names, ("failed", True)), "there is none"
    assert rows("remove", "--inventory", inventory) == dict.fromkeys(names, ("removed", True))
    assert rows("remove", "--inventory", fresh) == dict.fromkeys(names, ("none", True))
    assert {host.name: host.run(["sh", "-c", KEPT]).stdout for host in deployed.values()} == before


def test_a_deployment_that_is_out_of_time_leaves_nothing_that_the_next_cannot_take_up(
    deployed: Lab, breakable_lab3: Lab, tmp_path: Path
) -> None:
    breakable_lab3["gpu3"].limit("512kbit")
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    inventory.write_text(inventory.read_text().replace("  zone:", "  agent_root: /var/tmp/bounded\n  zone:"))
    done = dttui("agents", "deploy", "gpu2", "gpu3", "--inventory", inventory, "--timeout", "10s", "--output", "json")
    assert done.returncode == 101, done.stderr
    found = {row["host"]: row["outcome"] for row in json.loads(done.stdout)}
    assert list(found) == ["gpu2", "gpu3"]
    assert found["gpu3"] == "unfinished"
    assert set(found.values()) <= {"unfinished", "installed"}
    breakable_lab3["gpu3"].unlimit()
    whole = dttui("agents", "deploy", "gpu2", "gpu3", "--inventory", inventory, "--timeout", "2m")
    assert whole.returncode == 0, whole.stdout
    for host in (deployed["gpu2"], deployed["gpu3"]):
        left = host.run(["sh", "-c", "ls -A /var/tmp/bounded/agents"]).stdout.decode().split()
        assert len(left) == 1, left
    assert dttui("agents", "remove", "gpu2", "gpu3", "--yes", "--inventory", inventory).returncode == 0
