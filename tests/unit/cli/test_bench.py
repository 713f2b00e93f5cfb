"""`dttui bench` before anything is measured: which hosts with which settings, and that a person is asked first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dttui import jobs, locations
from dttui.app import App
from dttui.cli import main
from dttui.cli.prompting import TerminalPrompter
from dttui.errors import UsageError
from dttui.inventory.reader import load_inventory
from dttui.launch import submit as launch
from dttui.planning.submission import Submission
from dttui.spec import load_document

INVENTORY = """
environments:
  - {name: a, host: a, address: 10.0.0.1, zone: x, resources: {gpu: {count: 4}}}
  - {name: b, host: b, address: 10.0.0.2, zone: y, resources: {gpu: {count: 8}}}
  - {name: c, host: c, address: 10.0.0.3, zone: x, resources: {gpu: {count: 1}}}
"""
JOB = """
distributed_training:
  name: gpt
  framework: pytorch-fsdp
  dataset: none
  run:
    {script: train.py, args: [--lr, "1"], python: /opt/env/bin/python, env: {GLOO_SOCKET_IFNAME: ib0}, secrets: [TOKEN]}
  cluster:
    nodes: [{id: c, role: worker}, {id: b, role: master, resources: {gpu: {count: 2}}}]
"""


@pytest.fixture(autouse=True)
def three_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    file = locations.inventory_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(INVENTORY)
    monkeypatch.setattr(launch, "start_controller", lambda *_arguments, **_options: None)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_a_job_is_measured_on_its_nodes_with_its_interpreter_and_variables_and_with_nothing_else(job: Path) -> None:
    inventory = load_inventory(locations.inventory_file())
    like = Submission(load_document(job).job, inventory, job.parent)
    made = App().bench.submission(inventory, (), like, 4096)
    assert made.job.cluster == like.job.cluster
    run = made.job.run
    assert run is not None
    assert (run.python, run.env, list(run.secrets)) == ("/opt/env/bin/python", {"GLOO_SOCKET_IFNAME": "ib0"}, ["TOKEN"])
    assert (run.script, run.module) == (None, "dttui_collectives.measuring")
    # The master's zone is the first of them.
    assert run.args == ("--max", "4096", "--limit-s", run.args[3], "--zones", "0,1")
    assert made.base == job.parent


def test_what_would_be_measured_is_told_of_a_job_and_nothing_is_done(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t")
    code = main(["bench", "--job", str(job), "--max", "1MiB", "--dry-run", "--output", "json"])
    assert code == 0, capsys.readouterr().err
    told = json.loads(capsys.readouterr().out)
    assert told == {"dry_run": True, "hosts": ["b", "c"], "max_bytes": 1 << 20}
    assert main(["bench", "--job", str(job), "--envs", "a"]) == 2
    assert "--envs and --job exclude each other" in capsys.readouterr().err
    assert jobs.list_jobs() == []


@pytest.mark.parametrize("agrees", [True, False])
def test_a_person_is_asked_before_links_are_loaded_that_others_use(
    agrees: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, begun = [], []

    async def confirm(_prompter: TerminalPrompter, question: str) -> bool:
        asked.append(question)
        return agrees

    def submit(_face: App, wanted: Submission, *_plan: object, **_options: object) -> None:
        begun.append([node.id for node in wanted.job.cluster.nodes])
        raise UsageError("as far as this goes")

    monkeypatch.setattr(TerminalPrompter, "confirm", confirm)
    monkeypatch.setattr(App, "submit", submit)
    assert main(["bench", "--envs", "a,b"]) == 2
    (question,) = asked
    assert question.startswith("a, b: their links are loaded")
    assert "64MiB" in question
    assert begun == ([["a", "b"]] if agrees else [])
    assert ("as far as this goes" if agrees else "nothing was measured") in capsys.readouterr().err


def test_without_a_terminal_it_says_what_to_add(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--envs", "a,b"]) == 2
    told = capsys.readouterr().err
    assert "there is no terminal to ask at" in told
    assert "Add --yes if you mean it." in told
    assert jobs.list_jobs() == []
