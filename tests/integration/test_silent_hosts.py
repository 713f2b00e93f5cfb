"""`--timeout` with every verb that takes it, where a host takes connections and never says a word."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.cli.arguments import BOUNDED
from dttui.cli.conflicts import OF_FILES
from dttui.errors import ExitCode
from dttui.inventory import load_inventory
from dttui.jobs.event_log import EventLog
from dttui.jobs.launch_file import LaunchFile
from dttui.time_limits import TELLING_SHARE
from tests.integration.headless import dttui, shell_job
from tests.unit.jobs.test_follow import plan_for

LIMIT_S = 1
DEADLINE_S = 60.0
"""It closes its connections by then, on a busy machine too; that of a login alone is shorter than what waits below."""
ASKING = {
    "apply": "apply {job}",
    "again": "again over",
    "restart": "restart over",
    "stop": "stop running",
    "attach": "attach running",
    "stacks": "stacks running",
    "preflight": "preflight {job}",
    "bench": "bench --yes",
    "agents deploy": "agents deploy",
    "agents upgrade": "agents upgrade",
    "agents remove": "agents remove --yes",
    "agents status": "agents status",
    "envs": "envs",
    "envs trust": "envs trust gpu1",
    "queue": "queue",
    "fetch": "fetch over --list",
    "keep": "keep over",
    "doctor": "doctor",
}
"""Verbs that ask somebody who does not answer."""
TELLING = ("agents deploy", "agents upgrade", "agents remove", "agents status", "doctor")
"""Those that keep some of the time for telling what was done by then."""
AT_HOME = {
    "remove": "remove over --yes",
    "calibrate": "calibrate --drop --yes",
    "envs import": "envs import",
    "render": "render {job} -o {out}/rendered",
    "init": "init {out}/made --framework command",
    "fmt": "fmt {job}",
    "import": "import -o {out}/imported.yaml -- torchrun --nproc-per-node 2 train.py",
}
"""Those that ask nobody."""


class Silence:
    """Two hosts, a job that is over and one whose controller has the lock and the socket of it, and says nothing."""

    def __init__(self, directory: Path) -> None:
        self._held = contextlib.ExitStack()
        listener = self._held.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listener.getsockname()[1]
        self._held.enter_context(socket.create_server(("127.0.0.2", port)))
        self._inventory = directory / "inventory.yaml"
        hosts = [f"- {{name: gpu{number}, host: 127.0.0.{number}, port: {port}, user: li}}\n" for number in (1, 2)]
        self._inventory.write_text("environments:\n" + "".join(hosts))
        self._words = {"job": str(shell_job(directory, {"gpu1": 0, "gpu2": 0}, "true")), "out": str(directory)}
        self._make_job("over", is_over=True)
        self._make_job("running", is_over=False)

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, *_error: object) -> None:
        self._held.close()
        for summary in jobs.list_jobs():  # What was launched ends at once, as there is nobody at all any more.
            if not summary.job_id.startswith("running") and not summary.state.is_final:
                dttui("stop", summary.job_id, "--force")

    def call(self, line: str) -> tuple[int, float, str]:
        """Return the exit code of a bounded call, how long it took, and what it said."""
        words = [word.format(**self._words) for word in line.split()]
        at = words.index("--") if "--" in words else len(words)
        options = [] if words[0] in OF_FILES else ["--inventory", str(self._inventory)]
        options += ["--timeout", f"{LIMIT_S}s"]
        began = time.monotonic()
        done = dttui(*words[:at], *options, *words[at:])
        return done.returncode, time.monotonic() - began, done.stderr

    def _make_job(self, name: str, *, is_over: bool) -> None:
        directory = jobs.create(name)
        directory.document.write_bytes(Path(self._words["job"]).read_bytes())
        inventory = load_inventory(self._inventory)
        directory.launch.write_text(
            LaunchFile(inventory=inventory, base=self._inventory.parent, language="en").model_dump_json()
        )
        log = EventLog(directory.events)
        log.add(EventKind.JOB_STATE, "", attempt=0, data={"state": "RUNNING"})
        if is_over:
            directory.bound_plan(0).parent.mkdir(parents=True)
            directory.bound_plan(0).write_text(plan_for("gpu1", "gpu2").model_dump_json())
            log.add(EventKind.JOB_STATE, "ended", data={"state": "SUCCEEDED", "exit_code": 0})
            log.add(EventKind.OUTCOME, "ended", data={"state": "SUCCEEDED", "exit_code": 0})
            return
        lock = os.open(directory.lock, os.O_RDWR | os.O_CREAT, 0o600)
        self._held.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        controller = self._held.enter_context(socket.socket(socket.AF_UNIX))
        controller.bind(str(directory.socket))
        controller.listen()


@pytest.fixture
def silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Silence]:
    # Short: the path of a socket holds 107 bytes at most.
    monkeypatch.setenv("XDG_STATE_HOME", os.environ["DTTUI_DEMO_ROOT"])
    (Path.home() / ".ssh").mkdir(exist_ok=True)
    (Path.home() / ".ssh/config").write_text("Host gpu1\n  HostName gpu1.example.org\n")
    with Silence(tmp_path) as made:
        yield made


def test_every_verb_that_is_bounded_is_called_below() -> None:
    assert {name.partition(" ")[0] for name in (*ASKING, *AT_HOME)} == set(BOUNDED)


@pytest.mark.parametrize("verb", ASKING)
def test_a_bounded_verb_does_not_wait_for_who_never_answers(verb: str, silence: Silence) -> None:
    code, took_s, said = silence.call(ASKING[verb])
    assert code == ExitCode.NOT_FINISHED, said
    telling = TELLING_SHARE if verb in TELLING else 0.0
    assert LIMIT_S * (1 - telling) <= took_s < LIMIT_S + DEADLINE_S
    assert "Traceback" not in said


@pytest.mark.parametrize("verb", AT_HOME)
def test_a_bounded_verb_that_asks_nobody_ends_as_ever(verb: str, silence: Silence) -> None:
    code, _took_s, said = silence.call(AT_HOME[verb])
    assert code in (ExitCode.OK, ExitCode.NOT_FINISHED), said  # The latter where its start alone takes that long.
    assert "Traceback" not in said
