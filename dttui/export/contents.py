"""What a job comes to that is to run without dttui: its plan with holes for addresses too, and the files it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import dtagent

from dttui.errors import UsageError
from dttui.export.plain import plain_command
from dttui.export.shell import IPV6_MARK, RENDERED
from dttui.frameworks.bundle import Hole, PlannedProcess, address_hole
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.jobs import slug
from dttui.launch.local_plan import make_local_plan
from dttui.planning.models import Plan, PlannedNode
from dttui.planning.submission import Submission
from dttui.spec.findings import Finding, errors_first, info
from dttui.spec.key_places import with_places
from dttui.spec.models import Job
from dttui.workdir.selection import UploadFile, survey

_OF_LAUNCH = {"secret-missing"}
"""Errors that only a launch from here has: the script asks for secrets where it runs."""
_SEEN = f"{Hole.DIRECTORY}:{Hole.DIRECTORY}"
"""By which a container sees the directory of its node; here `work` and `payload` lie beside it."""
_OF_TORCHRUN = {"listening.py", "sealed_rendezvous"}
"""What dttui's torchrun finds beside it: a module, and a package."""
_NAMED = re.compile(re.escape(str(Hole.PAYLOAD)) + r"/([\w.-]+)")
PAYLOAD = Path(dtagent.__file__).parent / "payload"


@dataclass(frozen=True)
class Export:
    """All that a target writes its files of."""

    job: Job
    """As written."""
    plan: Plan
    """With a hole, `${NODE<k>_ADDRESS}`, wherever the address of a node stands; on a job of one node, loopback."""
    environments: tuple[Environment, ...]
    """Of the inventory, by node rank; their addresses are the defaults of the holes."""
    name: str
    """Of the job, as a directory or job id may be called."""
    work: tuple[UploadFile, ...] | None
    """What is sent of the working directory; `None` where nothing is."""
    payload: tuple[PurePosixPath, ...]
    """Scripts of dttui's own that the processes cannot do without, in `PAYLOAD`; standard library and torch alone."""
    image: str | None = None
    """What a person wants the job to run in, where the target runs images."""

    def default_port(self, node: PlannedNode) -> int | None:
        """Return the port that a node listens on where nothing else is said; `None` where it needs none of its own.

        They differ, so that several nodes can be tried on one host.
        """
        if node.port_range is None:
            return None
        first, last = self.plan.port_range if node.node_rank == 0 else node.port_range
        return min(first + node.node_rank, last)

    def asked_of(self, node: PlannedNode) -> tuple[int | None, int | None]:
        """Return the cores and the bytes of memory that the job asks of a node, for it alone or for all."""
        environment = self.environments[node.node_rank]
        asked = next(item for item in self.job.cluster.nodes if item.id in (environment.name, environment.id))
        places = (asked.resources.cpu if asked.resources is not None else None, self.job.resources.cpu)
        cores = next((item.cores for item in places if item is not None and item.cores is not None), None)
        return cores, next((item.memory for item in places if item is not None and item.memory is not None), None)

    def declared_for(self, node: PlannedNode) -> tuple[int | None, int | None]:
        """Return the cores and the bytes of memory that the inventory says a node has: the least of all nodes alike.

        Those are alike that use as many GPUs; so what is asked for where the job says nothing does not set them apart.
        """
        alike = [item for item in self.plan.nodes if item.cuda_slots == node.cuda_slots]
        found = [cpu for cpu in (self.environments[item.node_rank].resources.cpu for item in alike) if cpu is not None]
        cores = min((cpu.cores for cpu in found if cpu.cores is not None), default=None)
        return cores, min((cpu.memory for cpu in found if cpu.memory is not None), default=None)


def plan_to_export(submission: Submission) -> Plan:
    """Return the plan of a job with what there is to say about it; to be ejected, it must have no errors."""
    plan = make_local_plan(submission)
    findings = [item for item in plan.findings if item.code not in _OF_LAUNCH]
    if plan.health is not None:
        message = _("monitoring.health is not carried over: it is the agents of dttui that run the command")
        hint = _("In Kubernetes a livenessProbe of the containers does the like.")
        findings.append(info("health-not-carried", "monitoring.health", message, hint, path=("monitoring", "health")))
    return plan.model_copy(update={"findings": tuple(findings)})


def told_of(submission: Submission, plan: Plan, findings: Sequence[Finding]) -> Plan:
    """Return a plan with what a target has to say of it, at its place in the job's file."""
    if submission.text is not None and submission.file is not None:
        findings = with_places(findings, submission.text, submission.file, submission.source)
    return plan.model_copy(update={"findings": errors_first([*plan.findings, *findings])})


def export_job(submission: Submission, plan: Plan, target: Path, image: str | None = None) -> Export:
    """Return what to write for a plan without errors.

    Args:
        submission: the job.
        plan: its plan.
        target: where it will be written, which is no part of the working directory even where it lies in it.
        image: what to run it in, where the job's own is not wanted or it has none.

    Raises:
        UsageError: the working directory cannot be taken along.
    """
    holed = make_local_plan(_with_address_holes(submission, plan))
    nodes = tuple(node.model_copy(update={"processes": tuple(map(_plain, node.processes))}) for node in holed.nodes)
    found = [submission.inventory.find(node.name) for node in plan.nodes]
    texts = [text for node in nodes for item in node.processes for text in (*item.argv, *item.env.values())]
    scripts = {match[1] for text in texts for match in _NAMED.finditer(text)}
    if "torchrun.py" in scripts:
        scripts |= _OF_TORCHRUN
    return Export(
        job=submission.job,
        plan=holed.model_copy(update={"nodes": nodes, "findings": plan.findings}),
        environments=tuple(item for item in found if item is not None),
        name=slug(plan.job_name),
        work=_work(submission.base / plan.upload, target) if plan.upload is not None else None,
        payload=tuple(file for name in sorted(scripts) for file in _payload_files(name)),
        image=image,
    )


def _payload_files(name: str) -> list[PurePosixPath]:
    """Return what is to be written of a script or a package: none of what only exists once an agent has prepared it."""
    place = PAYLOAD / name
    found = sorted(place.glob("*.py")) if place.is_dir() else [place] * place.is_file()
    return [PurePosixPath(file.relative_to(PAYLOAD)) for file in found]


def _with_address_holes(submission: Submission, plan: Plan) -> Submission:
    if len(plan.nodes) < 2:
        return submission
    ranks = {node.name: node.node_rank for node in plan.nodes}
    environments = tuple(
        item.model_copy(update={"address": _hole(item, ranks[item.name])}) if item.name in ranks else item
        for item in submission.inventory.environments
    )
    return replace(submission, inventory=submission.inventory.model_copy(update={"environments": environments}))


def _hole(environment: Environment, node_rank: int) -> str:
    mark = IPV6_MARK if ":" in environment.training_address else ""
    return f"${{{address_hole(node_rank)}{mark}}}"


def _plain(process: PlannedProcess) -> PlannedProcess:
    engine, command = process.argv[: process.engine_words], process.argv[process.engine_words :]
    engine = tuple(item.replace(_SEEN, _SEEN.replace(str(Hole.DIRECTORY), f"${{{RENDERED}}}")) for item in engine)
    return process.model_copy(update={"argv": (*engine, *plain_command(command))})


def _work(directory: Path, target: Path) -> tuple[UploadFile, ...]:
    """Return what would be sent, but for what was rendered into it before."""
    root, own = os.path.realpath(directory), os.path.realpath(target)
    if own == root:
        message = _("{path} is the working directory itself").format(path=target)
        raise UsageError(message, _("Give -o a directory of its own."))
    inside = os.path.relpath(own, root) + "/"
    return tuple(file for file in survey(directory).files if not file.relative.startswith(inside))
