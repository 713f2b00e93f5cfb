"""What verbs import that only look at jobs, the same on every machine; and the CPU that they take, which is not."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import pkgutil
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind, Metric
from dtagent.protocol.rpc import to_wire

from dttui import jobs
from dttui.cli import main
from dttui.inventory.models import Environment, Inventory
from dttui.jobs.event_log import EventLog
from dttui.jobs.launch_file import LaunchFile
from dttui.planning.planner import plan
from tests.tui.fake_fleet import job, make_inventory
from tests.unit.cli.job_listener import Listener
from tests.unit.cli.job_listener import listener as listener

PLANNER = ("dttui.planning.planner", "dttui.planning.models", "dttui.planning.cost", "dttui.frameworks.")
SSH = ("paramiko", "cryptography", "dttui.transport.ssh.")
MODELS = ("pydantic", "yaml", "dttui.spec.models", "dttui.inventory.models")
ACTS = ("textual", "dttui.engine", "dttui.export.", "dttui.preflight.", "dttui.fleet.live", "dttui.compose.")
LOOPS = ("asyncio", "ssl")
ROUNDS, MOST_ROUNDS = 4, 12
LOADED = """
import sys
from dttui.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as end:
    status = end.code
print("\\n", *sys.modules, status)
"""


def loaded(*arguments: str) -> tuple[set[str], int]:
    """Return the modules that a verb has loaded by its end, and its exit status."""
    command = [sys.executable, "-c", LOADED, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    *modules, status = done.stdout.splitlines()[-1].split()
    return set(modules), int(status)


def cpu_s(command: Sequence[str], environment: dict[str, str]) -> float:
    """Return the CPU that Python takes for a command, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], env=environment, capture_output=True, check=False, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def among(modules: set[str], unwanted: tuple[str, ...]) -> set[str]:
    """Return the modules that are one of those, or below one; below alone where it ends in a dot."""
    return {name for name in modules for item in unwanted if name == item or name.startswith(f"{item.rstrip('.')}.")}


@pytest.fixture
def ended() -> jobs.JobDirectory:
    """A job that has ended well, with all that its directory holds then."""
    made = plan(job("pytorch-dev-env"), make_inventory())
    directory = jobs.create("gpt")
    directory.plan.write_text(made.model_dump_json(indent=2))
    log = EventLog(directory.events)
    log.add(EventKind.NODE_STATE, "", node="pytorch-dev-env", data={"state": "running"})
    log.add(EventKind.JOB_STATE, "all ranks ran to their end", data={"state": "SUCCEEDED"})
    log.add(EventKind.OUTCOME, "", data={"state": "SUCCEEDED", "exit_code": 0})
    directory.metrics.write_text(json.dumps(to_wire(Metric(0, 10, loss=2.5))) + "\n")
    directory.logs(0, "pytorch-dev-env").mkdir(parents=True)
    (directory.logs(0, "pytorch-dev-env") / "0.out").write_text("hello\n")
    return directory


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["ps", "-a"],
        ["history"],
        ["events", "last"],
        ["status", "last"],
        ["logs", "last"],
        ["logs", "last", "--since", "1h"],
    ],
)
def test_verbs_that_look_at_jobs_load_no_models_planner_or_ssh(ended: jobs.JobDirectory, arguments: list[str]) -> None:
    modules, status = loaded(*arguments)
    assert status == 0
    assert among(modules, (*PLANNER, *SSH, *MODELS, *ACTS)) == set()


async def test_a_job_that_runs_is_looked_at_and_stopped_without_models_planner_ssh_or_a_loop(
    listener: Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    server = await listener.serve()
    for arguments, outcome in ((["status", "last"], 101), (["stop", "last"], 0)):
        modules, status = await asyncio.to_thread(loaded, *arguments)
        assert status == outcome
        assert among(modules, (*PLANNER, *SSH, *MODELS, *ACTS, *LOOPS)) == set()
    server.close()
    assert listener.stops == [False]
    assert main(["stop", "last"]) == 0
    assert "CANCELLED" in capsys.readouterr().err


def test_files_are_fetched_without_planner_or_screen_and_without_ssh_where_no_host_is_reached_by_it(
    ended: jobs.JobDirectory,
) -> None:
    here = {"name": "pytorch-dev-env", "host": "localhost", "local": True, "agent_root": "/proc/nowhere"}
    inventory = Inventory(environments=(Environment.model_validate(here),))
    made = LaunchFile(inventory=inventory, base=Path("/"), language="en")
    ended.launch.write_text(made.model_dump_json())
    ended.bound_plan(0).parent.mkdir(parents=True)
    ended.bound_plan(0).write_text(ended.plan.read_text())
    for arguments in (["fetch", "last", "--list"], ["keep", "last"]):
        modules, status = loaded(*arguments)
        assert status == 4
        assert among(modules, (*PLANNER, *SSH, "textual", "dttui.engine", "dttui.preflight.", "dttui.fleet")) == set()


def test_light_verbs_take_at_most_two_and_a_half_times_the_cpu_of_importing_pydantic(
    listener: Listener, tmp_path: Path
) -> None:
    """In turns, so that a busy machine makes all of them slower alike: about 1.2, 1.6, 1.8, 1.7, 1.8 and 1.4 times."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    (tmp_path / "empty.yaml").write_text("environments: []\n")
    no_hosts = ("envs", "--inventory", str(tmp_path / "empty.yaml"))
    verbs = (("--version",), ("ps",), ("logs", "last"), ("status", "last"), ("stop", "last", "--dry-run"), no_hosts)
    commands = [("-c", "import pydantic"), *(("-m", "dttui", *verb) for verb in verbs)]
    rounds: list[list[float]] = []
    slow: dict[tuple[str, ...], float] = {}
    # Whatever else runs takes the processor's caches from some of them.
    while len(rounds) < ROUNDS or (slow and len(rounds) < MOST_ROUNDS):
        rounds.append([cpu_s(command, environment) for command in commands])
        unit, *taken = map(min, zip(*rounds, strict=True))  # The first of them compiles.
        slow = {verb: cpu / unit for verb, cpu in zip(verbs, taken, strict=True) if cpu > 2.5 * unit}
    assert slow == {}


def test_stopping_a_job_that_is_over_loads_no_models_planner_or_ssh(ended: jobs.JobDirectory) -> None:
    modules, status = loaded("stop", "last")
    assert status == 0
    assert among(modules, (*PLANNER, *SSH, *MODELS, *ACTS)) == set()


@pytest.mark.parametrize("text", [None, "environments: []\n", "# None yet.\n"])
def test_environments_without_a_host_load_no_models_planner_or_ssh(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [] if text is None else ["--inventory", "empty.yaml"]
    if text is not None:
        (tmp_path / "empty.yaml").write_text(text)
    modules, status = loaded("envs", *arguments)
    assert status == (2 if text is None else 0)
    assert among(modules, (*PLANNER, *SSH, *ACTS, "pydantic", "dttui.spec.models", "dttui.inventory.models")) == set()


def test_a_job_file_is_validated_without_cost_model_or_ssh(tmp_path: Path) -> None:
    modules, status = loaded("validate", str(Path("examples/gpt/job.yaml").resolve()))
    assert status == 0
    assert among(modules, ("dttui.planning.planner", "dttui.planning.cost", "dttui.planning.models", *SSH)) == set()
    assert among(modules, ("textual", "dttui.engine", "dttui.fleet", "dttui.preflight.")) == set()


@pytest.mark.parametrize("room", ["compose", "diagnosis", "frameworks", "inventory", "jobs", "planning", "spec"])
def test_a_room_has_what_it_says_it_has(room: str) -> None:
    package = importlib.import_module(f"dttui.{room}")
    names = re.findall(r"^    from \S+ import (\w+) as", Path(str(package.__file__)).read_text(), re.MULTILINE)
    modules = {item.name for item in pkgutil.iter_modules(package.__path__)}
    assert names
    assert not modules & set(names)  # What a package has of that name is its module, once that is imported.
    assert all(getattr(package, name) is not None for name in names)
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_it'"):
        _ = package.nothing_of_it


@pytest.mark.parametrize("room", ["compose", "diagnosis", "frameworks", "inventory", "jobs", "planning", "spec"])
def test_a_room_by_itself_loads_nothing(room: str) -> None:
    code = f"import sys, dttui.{room}; print(*[name for name in sys.modules if name.startswith('dttui.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) == {f"dttui.{room}", "dttui.lazy"}
