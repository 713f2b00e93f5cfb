"""What `dttui ps` says of the GPUs of jobs: those that are simulated are marked."""

from __future__ import annotations

import json

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.cli import main
from dttui.i18n import set_language
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Inventory
from dttui.jobs import listing
from dttui.jobs.directory import JobDirectory
from dttui.jobs.event_log import SECRETS_AWAITED, EventLog
from dttui.locations import demo_root, shipped
from dttui.planning.planner import plan
from dttui.spec.models import Job
from tests.tui.fake_fleet import job, make_inventory


@pytest.fixture(autouse=True)
def in_english() -> None:
    set_language("en")


def made(name: str, *nodes: str, inventory: Inventory, indent: int | None = 2) -> JobDirectory:
    """Return the directory of a job that is planned and no more."""
    document: Job = job(*nodes, name=name)
    directory = jobs.create(name)
    directory.plan.write_text(plan(document, inventory).model_dump_json(indent=indent))
    return directory


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, list[str]]:
    """Return the cells of each job, by its name."""
    assert main(["ps", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {line.partition("-")[0]: line.split("\t") for line in lines}


@pytest.mark.parametrize("indent", [2, None])
def test_jobs_on_simulated_gpus_are_marked(capsys: pytest.CaptureFixture[str], indent: int | None) -> None:
    demo = demo_inventory(demo_root(), shipped("examples"), "python3")
    made("demo", "pytorch-dev-env", "llm-training-env", inventory=demo, indent=indent)
    made("real", "pytorch-dev-env", inventory=make_inventory(), indent=indent)
    found = listed(capsys)
    assert [found[name][4:6] for name in ("demo", "real")] == [["2", "6 sim"], ["1", "2"]]
    assert listed(capsys, "--lang", "zh")["demo"][5] == "6 模拟"
    assert main(["ps", "--output", "json"]) == 0
    rows = {row["name"]: (row["gpus"], row["simulated_gpus"]) for row in json.loads(capsys.readouterr().out)}
    assert rows == {"demo": (6, 6), "real": (2, 0)}


def test_a_job_of_which_some_gpus_are_simulated_is_marked_as_that(capsys: pytest.CaptureFixture[str]) -> None:
    demo = demo_inventory(demo_root(), shipped("examples"), "python3").find("llm-training-env")
    real = make_inventory().find("pytorch-dev-env")
    assert demo is not None
    assert real is not None
    made("mixed", demo.name, real.name, inventory=Inventory(environments=(demo, real)))
    assert listed(capsys)["mixed"][5] == "6, partly sim"


@pytest.mark.parametrize("comes_late", [True, False])
def test_a_reason_is_of_the_state_beside_it_whatever_is_written_while_it_is_read(
    comes_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = jobs.create("x")
    log = EventLog(directory.events)
    stopping = log.add(EventKind.JOB_STATE, "a failure ends all", attempt=0, data={"state": "STOPPING"})
    log.add(EventKind.JOB_STATE, "starting again", attempt=0, data={"state": "RESTARTING"})
    awaited = {"code": SECRETS_AWAITED, "severity": "warning", "subject": "run.secrets", "hint": ""}
    log.add(EventKind.FINDING, "waiting for TOKEN", attempt=1, data=awaited)
    monkeypatch.setattr(JobDirectory, "silence", lambda *_arguments: "")
    if comes_late:
        monkeypatch.setattr(listing, "newest_event", lambda *_arguments: stopping)
    found = jobs.summarize(directory)
    expected = ("STOPPING", "a failure ends all") if comes_late else ("RESTARTING", "waiting for TOKEN")
    assert (found.state.value, found.reason) == expected
