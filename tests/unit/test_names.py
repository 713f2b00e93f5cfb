"""A public class has its name to itself, a module's name one meaning, and CONTRIBUTING names what is there."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import dttui

ROOT = Path(str(dttui.__file__)).parent.parent
SHARED: dict[str, str] = {}
"""Names that several classes have all the same, each with the reason."""

ONE_MEANING = {
    "agents": "the agents of hosts: what is done with them, and the verb for it",
    "base": "what every module of its room is a kind of",
    "bench": "the bench of links: asked for, and shown",
    "bundle": "the second is where plug-ins of before find the first",
    "checkpoints": "the checkpoints of a job: looked for on a host, sent, planned",
    "checks": "the checks of a preflight: made on a host, kept, shown",
    "communication": "how ranks talk: as a job says it, and what goes wrong with it",
    "container": "the container of `run.container`: its section, its commands, what hosts say of it",
    "deepspeed": "DeepSpeed: the framework, and its own form of a job",
    "errors": "the errors that a part raises on purpose",
    "estimate": "the estimate of a job: made, and shown",
    "events": "the events of a job: as they travel, and the verb",
    "figures": "estimated against measured: made, and in words",
    "following": "following a job: on a host, by its files, at a terminal",
    "greeting": "the first words between agent and client",
    "health": "the job's own command that says whether it goes well: sent, run, planned, acted upon",
    "horovod": "Horovod: the framework, and its own form of a job",
    "hosts": "what a host says of itself, judged before a job and in a check-up",
    "importing": "making a job of another tool's document, and the verb",
    "jobs": "jobs: as they travel, and the screen",
    "json_schema": "the JSON Schema of a document",
    "listing": "listing what there is of jobs: on a host, on the login node, the verb",
    "locations": "where files lie: of the agent, of dttui",
    "measuring": "the payload of `dttui bench`; the second is by which name it is started",
    "models": "the data of its room",
    "preflight": "the preflight, and the verb",
    "preparation": "preparing an attempt: as it travels, and what a host does",
    "queueing": "waiting for GPUs in a line: as it travels, and the verb",
    "recommend": "recommended layouts: made, and shown",
    "replay": "replaying a job: its moments, and the screen",
    "section": "a section of a job file: the model, and the dialog that fills it in",
    "slurm": "Slurm: as a source of environments, and as a target",
    "stacks": "where ranks stand: had in the rank, sent, asked for, and the verb",
    "summary": "what a choice adds up to: made, and shown",
    "torchrun": "torchrun: run, its commands, and its own form of a job",
    "validation": "what a framework says of a job's settings: asked for, and had in the user's interpreter",
    "warm": "torch kept imported for a start: held on the host, asked for",
}
"""Names that several modules have, as all mean one thing by it. Any other name is one module's."""


def test_modules_of_one_name_mean_one_thing() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted([*ROOT.glob("dttui/**/*.py"), *ROOT.glob("agent/**/*.py")]):
        if not path.name.startswith("_"):
            homes[path.stem].append(str(path.relative_to(ROOT)))
    shared = {name: found for name, found in homes.items() if len(found) > 1}
    assert shared.keys() == ONE_MEANING.keys(), {name: shared.get(name) for name in shared.keys() ^ ONE_MEANING.keys()}


def test_no_two_public_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted([*ROOT.glob("dttui/**/*.py"), *ROOT.glob("agent/dtagent/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(str(path.relative_to(ROOT)))
    shared = {name: found for name, found in homes.items() if len(found) > 1}
    assert len(homes) > 500
    assert shared.keys() == SHARED.keys(), {name: shared.get(name) for name in shared.keys() ^ SHARED.keys()}


def test_what_contributing_says_of_the_rooms_and_types_names_what_is_there() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = guide.partition("\n| room | ")[2].partition("- **A message**")[0]
    named = {word for code in re.findall(r"`([^`]+)`", section) for word in re.findall(r"[A-Za-z_]{4,}", code)}
    files = [*ROOT.glob("dttui/**/*.py"), *ROOT.glob("agent/dtagent/**/*.py")]
    written = {word for path in files for word in re.findall(r"[A-Za-z_]{4,}", path.read_text(encoding="utf-8"))}
    assert {"silent_since", "NodeStanding", "Completion", "node_outcome"} <= named
    assert named - written == set()


def test_each_file_that_contributing_names_is_there() -> None:
    prose = re.sub(r"```.*?```", "", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    named = set(re.findall(r"`((?:[\w-]+/)*\w+\.(?:py|yaml|md|toml))`", prose))
    there = {
        str(path.relative_to(ROOT))
        for folder in ("dttui", "agent", "tests", "docs", "bench")
        for path in (ROOT / folder).rglob("*.*")
    }
    assert "dttui/transport/base.py" in named
    assert [
        name
        for name in named
        if not (ROOT / name).exists() and not any(f"/{path}".endswith(f"/{name}") for path in there)
    ] == []
