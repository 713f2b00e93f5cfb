"""Jobs of the embedded cluster that lose a rank, then their master's host: how a framework trains on after each."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import yaml
from dtagent.locations import AttemptFiles
from dtagent.protocol.events import Event, EventKind

from dttui import jobs
from dttui.jobs import JobDirectory
from dttui.jobs.view import NODE_OUT
from dttui.spec.failure_causes import kind_of
from tests.agent.conversation import processes_with
from tests.integration.gangs import ONE, THREE, TWO
from tests.integration.headless import dttui, result_of
from tests.integration.slow_steps import slow_down
from tests.processes import processes_like
from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_S = 300.0
KEPT_EVERY = 10
STEPS_BETWEEN = 15
"""From the first step of an attempt to its loss, so that a checkpoint is there."""
REPLACE = {"on_node_failure": "replace", "spares": [THREE], "heartbeat_s": 5}
CONTINUE = {"on_node_failure": "continue", "min_nodes": 2, "heartbeat_s": 5}


def trains_on_after_a_lost_rank_and_a_lost_master(
    directory: Path,
    name: str,
    job: dict[str, Any],
    python: Path,
    steps: int,
    *,
    env: Mapping[str, str] | None = None,
    told_by: int = 0,
    state: str,
) -> dict[int, float]:
    """Train an example on two hosts of three, and take away a rank, then the master's host; return the losses.

    Each step's loss, which is of the parameters and the samples then, and the state in the end are those of a run that
    nothing is taken away from.

    Args:
        directory: an empty one, for the job file, the script and the checkpoints.
        name: the example's.
        job: what stands below `distributed_training`; a checkpoint every `KEPT_EVERY` steps.
        python: interpreter of the ranks.
        steps: how many it makes.
        env: variables of the ranks.
        told_by: rank that tells the losses.
        state: files of the last checkpoint that hold the state of the training, as `Path.glob` takes them.
    """
    for place in ("whole", "broken"):
        (directory / place).mkdir()
    running = _start(directory / "broken", name, job, python, env or {}, slow_attempts=2)
    _wait_for_steps(running, _steps_of(running), STEPS_BETWEEN)
    _kill_rank(running, TWO)
    wait_until(lambda: len(_comebacks(running)) == 1, "the second attempt to make steps", DEADLINE_S)
    _wait_for_steps(running, _steps_of(running), STEPS_BETWEEN)
    with _frozen(running, ONE, attempt=1):
        wait_until(lambda: len(_comebacks(running)) == 2, "the third attempt to make steps", DEADLINE_S)
    wait_until(running.is_over, "the job to end", DEADLINE_S)
    events = running.read_events()
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    restarts = [event for event in events if event.data.get("state") == "RESTARTING"]
    killed, lost = (event.data["cause"] for event in restarts)
    # Whose peer went away may fail, and end all, before a busy launcher has told how its own rank ended.
    assert kind_of(killed).is_retried
    assert lost == "node-lost"
    nodes = [[node.name for node in running.read_bound_plan(attempt).plan.nodes] for attempt in range(3)]
    assert nodes == [[ONE, TWO], [ONE, TWO], [THREE, TWO]]
    for event in _comebacks(running):
        # At most what was made since the last checkpoint, and while the one after it was being written.
        assert 0 <= event.data["lost_steps"] <= 2 * KEPT_EVERY, event.message
    left = f"DTTUI_JOB_ID={running.job_id}"
    wait_until(lambda: not processes_with(left), "what was left on the lost host to end", DEADLINE_S)
    whole = _start(directory / "whole", name, job, python, env or {})
    losses = _losses(running, told_by)
    assert sorted(losses) == list(range(1, steps + 1))
    wait_until(whole.is_over, "the whole run to end", DEADLINE_S)
    assert whole.read_events()[-1].data["state"] == "SUCCEEDED"
    expected = _losses(whole, told_by)
    others = {step: (loss, expected.get(step)) for step, loss in losses.items() if loss != expected.get(step)}
    assert not others, f"step: loss, that of the whole run: {others}"
    found, kept = (_state(directory / place / "kept", state) for place in ("broken", "whole"))
    assert found == kept, f"other tensors than those of the whole run: {found.keys()}, {kept.keys()}"
    return losses


def _state(kept: Path, pattern: str) -> dict[str, set[str]]:
    """Return file → hashes of what is in it, of a checkpoint; of what torch has saved that of each tensor's bytes."""
    (directory,) = {path.parent for path in kept.glob(pattern)}
    return {path.name: _hashes(path) for path in kept.glob(pattern) if path.parent == directory}


def _hashes(path: Path) -> set[str]:
    if not is_zipfile(path):
        return {hashlib.sha256(path.read_bytes()).hexdigest()}
    with ZipFile(path) as archive:  # Bytes that tensors share may lie there once or twice.
        names = (name for name in archive.namelist() if "/data/" in name)
        return {hashlib.sha256(archive.read(name)).hexdigest() for name in names}


def trains_on_from_parts_on_own_disks(
    directory: Path, name: str, job: dict[str, Any], python: Path, steps: int, env: Mapping[str, str] | None = None
) -> tuple[dict[int, float], list[Path]]:
    """Train an example on two hosts that keep a part each on disks of their own, and take away a rank.

    Args:
        directory: an empty one, for the job file and the script.
        name: the example's.
        job: what stands below `distributed_training`; a checkpoint every `KEPT_EVERY` steps.
        python: interpreter of the ranks.
        steps: how many it makes.
        env: variables of the ranks.

    Returns:
        The losses, and what each host went on from.
    """
    recovery = {"on_node_failure": "restart", "checkpoint": None}
    running = _start(directory, name, job, python, env or {}, recovery, slow_attempts=1)
    _wait_for_steps(running, 0, STEPS_BETWEEN)
    _kill_rank(running, TWO)
    wait_until(running.is_over, "the job to end", DEADLINE_S)
    events = running.read_events()
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    (comeback,) = _comebacks(running)
    assert 0 <= comeback.data["lost_steps"] <= 2 * KEPT_EVERY, comeback.message
    resume = running.read_bound_plan(1).bindings.resume
    assert resume is not None
    places = [Path(resume.checkpoint), *map(Path, resume.elsewhere.values())]
    assert len({place.name for place in places}) == 1
    assert len(places) == 2
    losses = _losses(running, 0)
    assert sorted(losses) == list(range(1, steps + 1))
    return losses, places


def continues_after_a_lost_host(
    directory: Path, name: str, job: dict[str, Any], python: Path, steps: int, lost: str = ONE
) -> tuple[dict[int, float], dict[int, float]]:
    """Train an elastic example on three hosts, and take away one; return the losses, and those of a whole run.

    Args:
        directory: an empty one, for the job files, the scripts and the checkpoints.
        name: the example's.
        job: what stands below `distributed_training`; a checkpoint every `KEPT_EVERY` steps.
        python: interpreter of the ranks.
        steps: how many it makes.
        lost: whose host; without the master's, which has the rendezvous, another attempt follows.
    """
    for place in ("whole", "broken"):
        (directory / place).mkdir()
    whole = _start(directory / "whole", name, job, python, {}, CONTINUE)
    wait_until(whole.is_over, "the whole run to end", DEADLINE_S)
    running = _start(directory / "broken", name, job, python, {}, CONTINUE, slow_attempts=1)
    _wait_for_steps(running, 0, STEPS_BETWEEN)
    with _frozen(running, lost, attempt=0):
        wait_until(lambda: _goes_on(running, lost), "the others to make steps", DEADLINE_S)
    wait_until(running.is_over, "the job to end", DEADLINE_S)
    events = running.read_events()
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    if lost == ONE:
        _check_second_attempt(running, events)
    else:
        assert {event.attempt or 0 for event in events} == {0}
    left = f"DTTUI_JOB_ID={running.job_id}"
    wait_until(lambda: not processes_with(left), "what was left on the lost host to end", DEADLINE_S)
    found, expected = _losses(running, 0), _losses(whole, 0)
    assert sorted(found) == sorted(expected) == list(range(1, steps + 1))
    return found, expected


def _goes_on(running: JobDirectory, lost: str) -> bool:
    """Whether steps were made without a host: in another attempt without the master's, else after it was given up."""
    if lost == ONE:
        return len(_comebacks(running)) == 1
    out = [event for event in running.read_events(EventKind.FINDING) if event.data["code"] == NODE_OUT]
    return bool(out) and out[0].node in (None, lost) and _metrics(running)[-1]["time"] > out[0].time


def _check_second_attempt(running: JobDirectory, events: Sequence[Event]) -> None:
    """Look at how a job went on that has lost its master's host."""
    (restart,) = (event for event in events if event.data.get("state") == "RESTARTING")
    assert restart.data["cause"] == "node-lost"
    assert [node.name for node in running.read_bound_plan(1).plan.nodes] == [TWO, THREE]
    (resumed,) = (event for event in events if event.data.get("resume_from"))
    (comeback,) = _comebacks(running)
    assert f" at step {resumed.data['step'] + 1}, " in comeback.message


def _start(
    directory: Path,
    name: str,
    job: dict[str, Any],
    python: Path,
    env: Mapping[str, str],
    recovery: Mapping[str, Any] = REPLACE,
    *,
    slow_attempts: int = 0,
) -> JobDirectory:
    work = directory / "work"
    shutil.copytree(EXAMPLES / name, work, ignore=shutil.ignore_patterns("__pycache__"))
    slow_down(work / "train.py", slow_attempts)  # Else it may be over before anything is taken away from it.
    job["run"] = {**job["run"], "workdir": "work", "python": str(python), "env": dict(env)}
    job["recovery"] = {"checkpoint": {"dir": str(directory / "kept"), "shared": True}, **recovery}
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump({"distributed_training": job}, sort_keys=False))
    started = dttui("--demo", "--apply", path, "--detach", "--output", "json")
    assert started.returncode == 0, started.stdout + started.stderr
    return jobs.find(result_of(started)["job_id"])


def _metrics(running: JobDirectory) -> list[dict[str, Any]]:
    text = running.metrics.read_text() if running.metrics.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _steps_of(running: JobDirectory) -> int:
    """Return how many lines of metrics there are."""
    return len(_metrics(running))


def _wait_for_steps(running: JobDirectory, before: int, count: int) -> None:
    """Wait until the newest attempt has told of so many steps since there were so many lines."""

    def made() -> bool:
        assert not running.is_over(), running.read_events()[-1].message
        return len({line["step"] for line in _metrics(running)[before:] if "step" in line}) >= count

    wait_until(made, f"{count} steps", DEADLINE_S)


def _losses(running: JobDirectory, rank: int) -> dict[int, float]:
    """Return the losses by step that a rank has told, of each step the last."""
    return {line["step"]: line["loss"] for line in _metrics(running) if line["rank"] == rank and "loss" in line}


def _comebacks(running: JobDirectory) -> list[Event]:
    return running.read_events(EventKind.RESTARTED)


def _files(running: JobDirectory, node: str, attempt: int) -> AttemptFiles:
    return AttemptFiles.of(Path(os.environ["DTTUI_DEMO_ROOT"], node), running.job_id, attempt)


def _kill_rank(running: JobDirectory, node: str) -> None:
    """End a rank of the first attempt."""
    ranks = _files(running, node, 0).ranks
    record = min(path for path in ranks.glob("*.json") if path.stem.isdigit())
    os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)


@contextlib.contextmanager
def _frozen(running: JobDirectory, node: str, *, attempt: int) -> Iterator[None]:
    """Halt all that runs on a host of the embedded cluster, as if it were off; after that it goes on where it was."""
    files = _files(running, node, attempt)
    halted: set[int] = set()

    def halt(pids: list[int]) -> bool:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        new = set(pids) - halted
        halted.update(pids)
        return not new

    nodes = running.read_bound_plan(attempt).plan.nodes
    place = f"DTTUI_NODE_RANK={next(item.node_rank for item in nodes if item.name == node)}"
    supervisor = json.loads(files.supervisor.read_text())["pid"]
    halt([supervisor, *processes_like("daemon", str(files.directory.parents[2]))])
    try:
        of_job = f"DTTUI_JOB_ID={running.job_id}"
        wait_until(
            lambda: halt(sorted({*processes_with(of_job)} & {*processes_with(place)})), "the whole host to be halted"
        )
        yield
    finally:
        for pid in halted:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
