"""`on_event` with real programs: what they get, and that nothing they do disturbs the job."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dtagent.protocol.events import Event, EventKind

from dttui import jobs
from dttui.engine.alerts.event_hook import CONCURRENCY, MAX_WAITING, EventHook
from dttui.launch.local_plan import find_program
from tests.agent.conversation import processes_with
from tests.integration.headless import DEADLINE_S, dttui_here, result_of, shell_job
from tests.processes import controller_of
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

ALERT = Event(3, 1.5, EventKind.ALERT, "hot", 0, "gpu1", data={"line": "sesame-opens now", "told": ["sesame-opens"]})


class Hooked:
    """A hook that runs a line of Python, and what it tells."""

    def __init__(self, directory: Path, code: str, **options: Any) -> None:
        self.told: list[str] = []
        argv = options.pop("argv", [sys.executable, "-c", code])
        job = {"job_id": "x-1", "job_name": "x"}
        self.hook = EventHook(argv, ["alert"], directory, job, self._add, ["sesame-opens"], **options)

    def _add(self, kind: EventKind, message: str, **_fields: object) -> None:
        assert kind is EventKind.FINDING
        self.told.append(message)

    async def run(self, *events: Event) -> list[str]:
        for event in events:
            self.hook.see_event(event)
        await self.hook.close()
        return self.told


async def test_the_program_reads_the_event_and_sees_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "sesame-opens")
    monkeypatch.setenv("http_proxy", "http://me:secret@proxy")
    code = "import os, sys; open('got', 'w').write(sys.stdin.read() + repr(sorted(os.environ)))"
    assert await Hooked(tmp_path, code).run(ALERT) == []
    line, names = (tmp_path / "got").read_text().splitlines()
    assert json.loads(line) == {
        "job_id": "x-1", "job_name": "x", "seq": 3, "time": 1.5, "kind": "alert", "message": "hot", "attempt": 0,
        "node": "gpu1", "data": {"line": "••• now", "told": ["•••"]},
    }  # fmt: skip
    assert "PATH" in names
    assert "DTTUI_JOB_ID" in names
    assert "HF_TOKEN" not in names
    assert "proxy" not in names


async def test_it_is_run_for_the_kinds_that_were_asked_for_alone(tmp_path: Path) -> None:
    hooked = Hooked(tmp_path, "import sys; open('got', 'a').write(sys.stdin.read())")
    other = Event(1, 0.0, EventKind.NODE_STATE, "running")
    await hooked.run(other, ALERT, other)
    assert [json.loads(line)["kind"] for line in (tmp_path / "got").read_text().splitlines()] == ["alert"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.exit('no network')", "exit status 1: no network"),
        ("import os; os.kill(os.getpid(), 9)", "exit status -9"),
        ("import sys; sys.stderr.write('x' * 10_000_000 + chr(10) + 'last'); sys.exit(3)", "exit status 3: last"),
    ],
)
async def test_its_failure_is_told_once(tmp_path: Path, code: str, words: str) -> None:
    (told,) = await Hooked(tmp_path, code).run(ALERT, ALERT, ALERT)
    assert words in told
    assert "later failures are not told" in told


async def test_a_program_that_does_not_read_or_is_not_there_or_lacks_its_directory(tmp_path: Path) -> None:
    large = Event(1, 0.0, EventKind.ALERT, "x" * 1_000_000)
    assert await Hooked(tmp_path, "pass").run(large) == []
    (absent,) = await Hooked(tmp_path, "", argv=["/no/such/program"]).run(ALERT)
    assert "it cannot be run: No such file or directory" in absent
    (homeless,) = await Hooked(tmp_path / "gone", "pass").run(ALERT)
    assert "it cannot be run" in homeless


async def test_one_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    mark = f"DTTUI_TEST={tmp_path.name}"
    code = (
        f"import os, subprocess, time; os.environ['DTTUI_TEST'] = {tmp_path.name!r}; "
        "subprocess.Popen(['sleep', '600']); open('up', 'w'); time.sleep(600)"
    )
    for limit_s in (2.0, 10.0, 30.0):  # On a machine under load it may not be up when the time is.
        (told,) = await Hooked(tmp_path, code, timeout_s=limit_s).run(ALERT)  # Itself it takes ten minutes.
        assert f"not done within {limit_s:g} s" in told
        if is_there(tmp_path / "up"):
            break
    assert is_there(tmp_path / "up")
    wait_until(lambda: processes_with(mark) == [], "its processes to be gone")


async def test_few_run_at_a_time_and_too_many_are_left_out(tmp_path: Path) -> None:
    code = (
        "import os, time; open(f'{os.getpid()}.in', 'w').close(); "
        "most = len([n for n in os.listdir() if n.endswith('.in')]); open('most', 'a').write(f'{most} '); "
        "time.sleep(0.05); os.unlink(f'{os.getpid()}.in')"
    )
    hooked = Hooked(tmp_path, code)
    await hooked.run(*[ALERT] * 3 * CONCURRENCY)
    counts = [int(word) for word in (tmp_path / "most").read_text().split()]
    assert len(counts) == 3 * CONCURRENCY
    assert max(counts) <= CONCURRENCY
    flooded = Hooked(tmp_path, "import time; time.sleep(60)", timeout_s=0.3)
    await flooded.run(*[ALERT] * (MAX_WAITING + 10))
    assert len(flooded.told) == 1


def test_a_program_is_found_beside_the_job_file_or_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "notify").write_text("#!/bin/sh\n")
    assert find_program("./notify", tmp_path) is None
    (tmp_path / "notify").chmod(0o755)
    assert find_program("./notify", tmp_path) == str(tmp_path / "notify")
    assert find_program("notify", tmp_path) is None
    assert find_program("sh", tmp_path)


def is_there(path: Path) -> bool:
    return path.exists()


def test_a_job_raises_its_alerts_and_tells_its_program(tmp_path: Path) -> None:
    notify = tmp_path / "notify"
    notify.write_text("#!/bin/sh\ncat >> events.txt\n")
    notify.chmod(0o755)
    command = (
        'echo starting; echo "CUDA error: out of luck" >&2; '
        'echo \'{"step": 7, "loss": 42.5}\' >> "$DTTUI_METRICS"; '
        # Until a reading of the host has come, and led to an alert.
        f'for n in $(seq 300); do grep -qs \'"alert": "memory"\' {tmp_path}/events.txt && break; sleep 0.2; done'
    )
    monitoring = {
        "alerts": [
            {"log": "CUDA error", "name": "cuda"},
            {"metric": "loss > 10"},
            {"state": "job succeeded"},
            {"metric": "host.memory > 0", "name": "memory"},
            {"log": "never"},
        ],
        "on_event": ["./notify"],
    }
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, command)
    document = _read(job)
    document["distributed_training"]["monitoring"] = monitoring
    job.write_text(json.dumps(document))

    planned = dttui_here("--demo", "plan", job)
    done = dttui_here("--demo", "--apply", job, "--output", "json")

    assert f"events start {notify} on this machine" in planned.stdout
    assert done.returncode == 0, done.stderr
    assert "⚠ cuda: rank 0 on pytorch-dev-env printed: CUDA error: out of luck" in done.stderr
    assert "⚠ loss > 10: 42.5, rank 0 on pytorch-dev-env" in done.stderr
    assert "· job succeeded: finished in" in done.stderr
    directory = jobs.find(result_of(done)["job_id"])
    wait_until(lambda: not directory.has_controller(), "the controller to be gone", DEADLINE_S)
    told = [json.loads(line) for line in (tmp_path / "events.txt").read_text().splitlines()]
    assert sorted(event["data"]["alert"] for event in told if event["kind"] == "alert") == [
        "cuda", "job succeeded", "loss > 10", "memory",
    ]  # fmt: skip
    assert [event["kind"] for event in told].count("outcome") == 1
    assert {event["job_id"] for event in told} == {directory.job_id}
    before = (tmp_path / "events.txt").read_bytes()
    assert dttui_here("status", directory.job_id).returncode == 0
    assert dttui_here("logs", directory.job_id).returncode == 0
    assert (tmp_path / "events.txt").read_bytes() == before
    assert directory.read_events()[-1].kind is EventKind.OUTCOME


def test_a_program_that_is_not_there_is_an_error_with_its_place(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, "true")
    document = _read(job)
    document["distributed_training"]["monitoring"] = {"on_event": ["./nobody"]}
    job.write_text(json.dumps(document, indent=1))
    done = dttui_here("--demo", "--apply", job)
    assert done.returncode == 2, done.stderr
    assert "./nobody" in done.stderr


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


def test_a_new_controller_tells_the_program_of_nothing_that_was_before(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, "echo a bad line; exec sleep 600")
    document = _read(job)
    document["distributed_training"]["monitoring"] = {
        "alerts": [{"log": "bad line"}],
        "on_event": ["sh", "-c", "cat >> events.txt"],
        "on_event_kinds": ["job_state", "alert", "outcome"],
    }
    job.write_text(json.dumps(document))
    started = dttui_here("--demo", "--apply", job, "--detach")
    assert started.returncode == 0, started.stderr
    directory = jobs.find(started.stdout.strip())

    def told() -> list[dict[str, Any]]:
        path = tmp_path / "events.txt"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    wait_until(lambda: any(event["kind"] == "alert" for event in told()), "the alert", DEADLINE_S)
    written = len([event for event in directory.read_events() if event.kind.value in ("job_state", "alert")])
    wait_until(lambda: len(told()) >= written, "the program to be done", DEADLINE_S)
    controller = controller_of(directory.path)
    os.kill(controller, signal.SIGKILL)
    wait_until(lambda: not directory.has_controller(), "the controller to be gone")
    before = {event["seq"] for event in told()}
    stopped = dttui_here("stop", directory.job_id, "--force")
    assert stopped.returncode == 0, stopped.stderr
    wait_until(lambda: any(event["kind"] == "outcome" for event in told()), "the outcome", DEADLINE_S)
    seqs = [event["seq"] for event in told()]
    assert len(seqs) == len(set(seqs))
    assert min(set(seqs) - before) > max(before)
    assert [event["kind"] for event in told()].count("alert") == 1
