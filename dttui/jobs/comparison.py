"""Jobs side by side: how they were configured, what they ran with, and how they trained. Reads; changes nothing."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dtagent.protocol.tree import decode_tree

from dttui.errors import DttuiError
from dttui.jobs.course import Both, Course, side_by_side
from dttui.jobs.directory import JobDirectory
from dttui.jobs.event_log import read_events
from dttui.jobs.plan_file import SeenPlan, read_plan_file
from dttui.jobs.view import JobView
from dttui.spec import decode, parse_document, read_bytes
from dttui.words import listed

MOST_ROWS = 20
"""Steps that are shown side by side."""
DIGEST_CHARS = 12
MOST_NAMES = 3
"""Nodes that a version is told of; the others are counted."""


@dataclass(frozen=True)
class Difference:
    """A value that is not the same in all."""

    key: str
    """As `--set` takes it, for a key of the job file; below `plan` what was made of it for the last attempt, and below
    `files` the beginning of the SHA-256 of each file that was sent."""
    values: tuple[Any, ...]
    """Of each job; `None` where it has none."""


@dataclass(frozen=True)
class ComparedJob:
    """One of them."""

    view: JobView
    course: Course
    configuration: Mapping[str, Any]
    trouble: str = ""
    """Why the job file is not compared; empty where it is."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """What it is of → the version; where nodes differ, each with who has it."""

    @property
    def step_time_s(self) -> float | None:
        """Seconds of a step, the usual one."""
        return self.course.speed.step_time_s


@dataclass(frozen=True)
class Comparison:
    """Both, and what differs."""

    first: ComparedJob
    second: ComparedJob
    differences: tuple[Difference, ...]
    rows: tuple[Both, ...]

    @property
    def step_time_ratio(self) -> float | None:
        """How many times as long a step of the second one takes; `None` where that of one is not known."""
        first, second = self.first.step_time_s, self.second.step_time_s
        return second / first if first and second else None


@dataclass(frozen=True)
class Contrast:
    """Several, and what differs."""

    jobs: tuple[ComparedJob, ...]
    differences: tuple[Difference, ...]


def compare(first: JobDirectory, second: JobDirectory) -> Comparison:
    """Return two jobs side by side, running or over; of a directory that is torn, what there is."""
    found = contrast((first, second))
    one, two = found.jobs
    return Comparison(one, two, found.differences, tuple(side_by_side(one.course, two.course, MOST_ROWS)))


def contrast(directories: Sequence[JobDirectory]) -> Contrast:
    """Return jobs with what differs between them."""
    found = tuple(map(_read, directories))
    told = [dict(item.configuration) for item in found]
    if any(item.trouble for item in found):  # That one cannot be read does not make every key of another a difference.
        told = [{key: values[key] for key in values if _is_planned(key)} for values in told]
    keys = dict.fromkeys(key for values in told for key in values)
    sides = ((key, tuple(values.get(key) for values in told)) for key in keys)
    return Contrast(found, tuple(Difference(key, side) for key, side in sides if any(item != side[0] for item in side)))


def _read(directory: JobDirectory) -> ComparedJob:
    view = JobView(directory.job_id)
    with contextlib.suppress(OSError, ValueError):
        view.set_plan(read_plan_file(directory.plan))
    for event in read_events(directory.events):
        view.apply(event)
    plan = view.plan
    with contextlib.suppress(OSError, ValueError):
        plan = read_plan_file(directory.bound_plan(view.attempt))
    configuration, trouble = {}, ""
    try:
        name = str(directory.document)
        job = parse_document(decode(read_bytes(directory.document, name), name), name).job
        configuration = dict(_flat(view.redaction().within(job.model_dump(mode="json"))))
    except DttuiError as error:
        trouble = error.message
    if isinstance(plan, SeenPlan):
        configuration |= {f"{_PLAN}{key}": value for key, value in _planned(plan).items()}
    with contextlib.suppress(OSError, ValueError):
        sent = decode_tree(directory.files(view.attempt).read_text(encoding="utf-8"))
        configuration |= {f"{_FILES}{item.path}": item.digest[:DIGEST_CHARS] for item in sent}
    return ComparedJob(view, Course.read(directory.metrics), configuration, trouble, _versions(view))


_PLAN, _FILES = "plan.", "files."


def _is_planned(key: str) -> bool:
    return key.startswith((_PLAN, _FILES))


def _planned(plan: SeenPlan) -> dict[str, Any]:
    """Return what an attempt ran with that the job file leaves open."""
    found: dict[str, Any] = {"framework": plan.framework, "backend": plan.backend, "world_size": plan.world_size}
    for node in plan.nodes:
        found |= {f"nodes.{node.node_rank}.name": node.name, f"nodes.{node.node_rank}.ranks": len(node.ranks)}
        found[f"nodes.{node.node_rank}.python"] = node.python
    return found


def _flat(data: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the single values of plain data, each with the keys that lead there; what is not said is left out."""
    if isinstance(data, dict) and data:
        for name, inner in data.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(data, (list, tuple)) and data:
        for index, inner in enumerate(data):
            yield from _flat(inner, f"{key}.{index}")
    elif data is not None:
        yield key, data


def _versions(view: JobView) -> dict[str, str]:
    """Return each version; where nodes differ, those that there are with their nodes."""
    found: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node, versions in view.versions.items():
        for item, version in versions.items():
            found[item][version].append(node)
    return {item: _told(by_version, len(view.versions)) for item, by_version in found.items()}


def _told(by_version: Mapping[str, list[str]], count: int) -> str:
    if len(by_version) == 1 and len(next(iter(by_version.values()))) == count:
        return next(iter(by_version))
    return "; ".join(f"{version} ({listed(nodes, MOST_NAMES)})" for version, nodes in by_version.items())
