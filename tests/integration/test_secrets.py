"""A secret that a job prints in every way is in nothing that dttui shows or writes but the logs themselves."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from textual.widgets import TabbedContent, TabPane

from dttui import jobs
from dttui.cli.arguments import make_parser
from dttui.jobs import JobDirectory
from tests.argument_parsers import arguments_of, verbs_of
from tests.integration.headless import dttui, dttui_here, write_job
from tests.processes import controller_of
from tests.tui.fake_fleet import make_app
from tests.tui.looking import log_of, look, screen_text, until
from tests.waiting import wait_until

ONE = "pytorch-dev-env"
CANARY = "Kanarienvögel+/'(x)$&.*\\7"
KEY = "-----BEGIN KEY-----\nMIIBVwIBADANBgkqhkiG9w0BAQEFAASC\nu7Yx/+0a9sKdhQ8bWmZ2PpLc41nVtRfE\n-----END KEY-----\n"
SCRIPT = r"""
import base64, json, os, sys, time, urllib.parse
value, key = os.environ["CANARY"], os.environ["KEY"]
print("begun", value, "done", flush=True)
print(key, end="", flush=True)
for stream in (sys.stdout, sys.stderr):
    print(json.dumps({"token": value}), repr(value), "x" + value + value + "y", file=stream)
    print(json.dumps([value], ensure_ascii=False), repr(value.encode()), file=stream)
    print("https://me:" + urllib.parse.quote(value, safe="") + "@host/", urllib.parse.quote_plus(value), file=stream)
    for before in ("", "u", "me:"):
        print("Basic", base64.b64encode((before + value + ":z").encode()).decode(), file=stream)
    print(value.encode().hex(), "\x1b[31m" + value + "\x1b[0m", file=stream)
    stream.flush()
for half in (value[:9].encode()[:-1], value.encode()[len(value[:9].encode()) - 1:] + b"\n"):
    os.write(1, half)
    time.sleep(0.4)
with open(os.environ["DTTUI_METRICS"], "a") as metrics:
    metrics.write(json.dumps({"step": 1, "loss": 2.0, value: 3.0}) + "\n")
print("alarm: " + "." * 150 + value, flush=True)
time.sleep(float(sys.argv[1]))
raise RuntimeError("refused: " + value)
"""


def traces_in(text: str) -> list[str]:
    """Return what tells of one of the values in a text, once a terminal's colours are gone."""
    parts = [CANARY, json.dumps(CANARY)[1:-1], repr(CANARY)[1:-1], quote(CANARY, safe=""), CANARY.encode().hex()]
    parts += [base64.b64encode(before + CANARY.encode()).decode()[4:-4] for before in (b"", b"u", b"me:")]
    parts += KEY.split("\n")[1:3]
    return [part for part in parts if part in text]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.setenv("KEY", KEY)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "tell.py").write_text(SCRIPT)
    hook = tmp_path / "hook.sh"
    hook.write_text(f"#!/bin/sh\ncat >> {tmp_path}/heard\n")
    hook.chmod(0o700)
    kinds = ["alert", "rank_failed", "job_state", "finding", "node_state"]
    return write_job(
        tmp_path,
        {ONE: 1},
        framework="command",
        run={"command": [sys.executable, "tell.py", "0.3"], "workdir": "work", "secrets": ["CANARY", "KEY"]},
        monitoring={"alerts": [{"log": "alarm"}], "on_event": [str(hook)], "on_event_kinds": kinds},
    )


COMMANDS: dict[str, list[list[str]]] = {
    "tui": [],  # The screens have a test of their own.
    "apply": [["apply", "JOB", "--new"], ["apply", "JOB", "--new", "--output", "jsonl"]],
    "preflight": [["preflight", "JOB"]],
    "bench": [["bench", "--job", "JOB", "--dry-run"]],
    "plan": [["plan", "JOB"], ["plan", "JOB", "--output", "json"]],
    "validate": [["validate", "JOB"]],
    "render": [["render", "JOB", "-o", "DIR/rendered"], ["render", "JOB", "-o", "DIR/slurm", "--target", "slurm"]],
    "init": [["init", "--list"]],
    "schema": [["schema"]],
    "fmt": [["fmt", "--check", "JOB"]],
    "import": [["import", "DIR/hostfile"]],
    "envs": [["envs"], ["envs", "--output", "json"]],
    "queue": [["queue"], ["queue", "--output", "json"]],
    "agents": [["agents", "status"]],
    "doctor": [["doctor"], ["doctor", "--output", "json"]],
    "estimate": [["estimate", "JOB"]],
    "recommend": [["recommend", "JOB"]],
    "ps": [["ps", "--all"], ["ps", "--all", "--output", "json"]],
    "status": [["status", "ID"], ["status", "ID", "--output", "json"]],
    "diagnose": [["diagnose", "ID"], ["diagnose", "ID", "--output", "json"], ["diagnose", "ID", "--lang", "zh"]],
    "stacks": [["stacks", "ID"]],
    "logs": [
        ["logs", "ID"],
        ["logs", "ID", "-n", "3"],
        ["logs", "ID", "-f", "--since", "1h"],
        ["logs", "ID", "--output", "json"],
        ["logs", "ID", "--output", "jsonl", "--stderr"],
    ],
    "history": [["history"], ["history", "--output", "json"]],
    "compare": [["compare", "ID", "last"], ["compare", "ID", "ID", "--output", "json"]],
    "events": [["events", "ID"], ["events", "ID", "--output", "jsonl"]],
    "replay": [
        ["replay", "ID", "--speed", "max", "--logs", "all"],
        ["replay", "ID", "--speed", "max", "--logs", "all", "--output", "jsonl"],
    ],
    "again": [["again", "ID", "--dry-run"], ["again", "ID", "--dry-run", "--set", "run.env.A=b"]],
    "restart": [["restart", "ID", "--dry-run"]],
    "attach": [["attach", "ID"], ["attach", "ID", "--output", "jsonl"]],
    "stop": [["stop", "ID"]],
    "remove": [["remove", "ID", "--yes"]],
}


PLACES = {"job": "ID", "file": "JOB"}
"""What a verb is given that is not among them, by the name of its argument."""


def commands_of_verbs() -> dict[str, list[list[str]]]:
    """Return the commands by which each verb is tried."""
    verbs = verbs_of(make_parser())
    assert COMMANDS.keys() <= verbs.keys()
    usual = {
        verb: [verb, *(PLACES[name] for name in arguments_of(parser) if name in PLACES)]
        for verb, parser in verbs.items()
    }
    return {verb: COMMANDS.get(verb, [command]) for verb, command in usual.items()}


def test_a_verb_that_is_added_is_tried_too() -> None:
    assert {"status": [["status", "ID"]], "plan": [["plan", "JOB"]]}.items() <= {
        verb: commands[:1] for verb, commands in commands_of_verbs().items()
    }.items()


OF_A_JOB = {"ID", "ps", "history", "preflight"}
"""Of such a command's words one is that it asks what became of a job, or its hosts: the others tell of files alone."""


def test_a_canary_is_in_the_output_of_no_verb_and_in_no_file_but_the_logs(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [command for found in commands_of_verbs().values() for command in found]
    (tmp_path / "hostfile").write_text("gpu1 slots=2\n")
    done = dttui("--demo", "--apply", job, "-vv")
    assert done.returncode == 100, done.stderr
    assert "RuntimeError" in done.stderr + done.stdout
    assert traces_in(done.stdout + done.stderr) == []
    (directory,) = (JobDirectory(item.path) for item in jobs_here())
    wait_until(lambda: not directory.has_controller(), "the controller and its hooks to end")
    held = [path for path in directory.path.rglob("*") if path.is_file() and "logs" not in path.parts[-4:-1]]
    assert directory.metrics in held
    assert [(path, found) for path in held if (found := traces_in(path.read_text(errors="replace")))] == []
    assert "alert" in (tmp_path / "heard").read_text()
    assert traces_in((tmp_path / "heard").read_text()) == []
    # Copies keep every byte: it is who shows them that leaves the values out, and he need not know them.
    printed = (directory.logs(0, ONE) / "0.out").read_bytes()
    assert printed.count(CANARY.encode()) >= 6
    for is_known in (True, False):
        if not is_known:
            monkeypatch.delenv("CANARY")
            monkeypatch.delenv("KEY")
        for command in commands:
            if command[0] in ("stop", "remove") or (not is_known and not OF_A_JOB.intersection(command)):
                continue
            names = {"JOB": str(job), "ID": directory.job_id, "DIR": f"{tmp_path}/{is_known}"}
            words = [_filled(word, names) for word in command]
            (tmp_path / str(is_known)).mkdir(exist_ok=True)
            (tmp_path / str(is_known) / "hostfile").write_text("gpu1 slots=2\n")
            run = dttui if command[0] in ("apply", "preflight", "agents", "envs", "queue", "doctor") else dttui_here
            told = run("--demo", *words)
            assert told.stdout + told.stderr, words
            assert traces_in(told.stdout + told.stderr) == [], words
        for path in (tmp_path / str(is_known)).rglob("*"):
            assert not path.is_file() or traces_in(path.read_text()) == [], path
    lines = dttui_here("logs", directory.job_id, "--rank", "0").stdout.splitlines()
    assert "begun ••• done" in lines
    assert len(lines) == (printed + (directory.logs(0, ONE) / "0.err").read_bytes()).count(b"\n")
    raw = dttui_here("logs", directory.job_id, "--rank", "0", "--raw").stdout
    assert f"begun {CANARY} done" in raw.splitlines()
    assert set(traces_in(raw)) >= {CANARY, *KEY.split("\n")[1:3]}
    told = dttui_here("remove", directory.job_id, "--yes")
    assert traces_in(told.stdout + told.stderr) == []


async def test_a_canary_is_on_no_part_of_the_screen(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = dttui("--demo", "--apply", job)
    assert done.returncode == 100, done.stderr
    for name in ("CANARY", "KEY"):
        monkeypatch.delenv(name)
    (directory,) = jobs_here()
    app = make_app(attach=directory)
    async with app.run_test(size=(200, 60)) as pilot:
        await look(app, pilot)
        tabs = app.screen.query_one(TabbedContent)
        for pane in tabs.query(TabPane):
            tabs.active = str(pane.id)
            await look(app, pilot)
            shown = screen_text(app)
            assert shown
            assert traces_in(shown.replace("\n", "")) == [], pane.id
        await until(pilot, lambda: any("•••" in line for line in log_of(app)), "the log is shown")
        assert traces_in("\n".join(log_of(app))) == []


def test_a_controller_that_knows_no_value_says_so_and_what_was_found_before_stays_hidden(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write_text(job.read_text().replace("'0.3'", "'60'"))
    done = dttui("--demo", "--apply", job, "--detach")
    assert done.returncode == 0, done.stderr
    (directory,) = jobs_here()
    log = directory.logs(0, ONE) / "0.out"
    wait_until(lambda: log.exists() and b"alarm" in log.read_bytes(), "the secret to have been printed")
    os.kill(controller_of(directory.path), signal.SIGKILL)
    wait_until(lambda: not directory.has_controller(), "the controller to be gone")
    for name in ("CANARY", "KEY"):
        monkeypatch.delenv(name)
    told = dttui("--demo", "status", directory.job_id)
    assert told.returncode == 101, told.stderr
    (finding,) = (event for event in directory.read_events() if event.data.get("code") == "secret-unknown")
    assert "CANARY, KEY" in finding.message
    told = dttui("--demo", "logs", directory.job_id)
    assert "begun ••• done" in told.stdout
    assert traces_in(told.stdout + told.stderr) == []
    assert dttui("stop", directory.job_id).returncode == 0


def jobs_here() -> list[JobDirectory]:
    return [jobs.find(item.job_id) for item in jobs.list_jobs()]


def _filled(word: str, names: dict[str, str]) -> str:
    return names.get(word) or word.replace("DIR", names["DIR"])
