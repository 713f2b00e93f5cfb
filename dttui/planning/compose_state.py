"""The state of the compose screen and its rules: what a tick does, who is master, what is missing. No widgets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from dtagent.protocol.facts import HostFacts
from pydantic import ValidationError

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.inventory.models import Environment, Inventory
from dttui.planning.aggregate import Choice
from dttui.spec.document import describe_error
from dttui.spec.entry_points import COMMAND, DEFAULT_FRAMEWORK
from dttui.spec.findings import Finding, error
from dttui.spec.models import (
    Cluster,
    Container,
    DatasetRef,
    FrameworkName,
    GpuRequest,
    Job,
    Node,
    NodeResources,
    ResourceDefaults,
    Run,
    Section,
)

ProgramKind = Literal["script", "module", "command"]

SectionT = TypeVar("SectionT", bound=Section)

_SHOWN_OF_RUN = ("script", "module", "command", "args", "workdir", "python", "prefix", "per", "container")
"""What the screen shows of it; the rest is taken over from the job that it began with."""

_FATAL = ("name-missing", "arguments-invalid", "prefix-invalid")
"""Codes of what no job can have."""
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
"""The word of a command that is an interpreter."""

_PYTHON_FILE = re.compile(r"\S+\.py")

_MOST_GPUS = 1024
"""Where nothing is known of a host: what the job file allows."""


@dataclass(frozen=True)
class ComposeState:
    """What a person has put together so far. Fields without a rule are changed by `dataclasses.replace`."""

    task_name: str = ""
    """Name of the job."""
    selected: tuple[str, ...] = ()
    """Keys of the ticked environments, in the order in which they were ticked."""
    master: str | None = None
    """Key of the master; the first ticked, unless another was chosen."""
    gpu_counts: tuple[tuple[str, int], ...] = ()
    """GPUs the job asks of an environment, by key; without one, what it asks of every node, or else all there are."""
    gpu_ids: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """GPUs of an environment that the job names, by key, in the place of how many."""
    framework: FrameworkName | None = DEFAULT_FRAMEWORK
    """How the job is launched."""
    dataset: DatasetRef | Literal["none"] | None = None
    """A dataset, an explicit none, or nothing chosen yet."""
    program: str = ""
    """Script, module, or the beginning of the command."""
    program_kind: ProgramKind = "script"
    """What `program` is."""
    arguments: str = ""
    """Arguments, as on a command line."""
    workdir: str = ""
    """Working directory; empty where the job gives none."""
    python: str = ""
    """Interpreter; empty where each environment's own is used."""
    prefix: str = ""
    """What is put before the command, as on a command line."""
    per: Literal["gpu", "node"] = "gpu"
    """How often a command is started; only written where the job is one, or has it already."""
    container: Container | None = None
    """The image that everything runs in."""
    options: tuple[tuple[FrameworkName, Mapping[str, Any]], ...] = ()
    """What frameworks are told, by their name: that of one that was left is there again when it is chosen again."""
    base: Job | None = None
    """The job this began with: what the screen does not show is taken over from it."""
    base_nodes: tuple[tuple[str, Node], ...] = ()
    """Nodes of that job, by the key of their environment."""
    order: tuple[str, ...] = field(default=(), compare=False)
    """Keys of all that was ever ticked, in the order of nodes: one that is ticked again gets its place back."""
    former_master: str | None = field(default=None, compare=False)
    """Master until it was unticked; it is again once it is ticked again, unless another was chosen meanwhile."""

    @classmethod
    def from_job(cls, job: Job, inventory: Inventory) -> ComposeState:
        """Return the state that shows a job; nodes the inventory lacks stay ticked, for the plan to complain of."""

        def key_of(node: Node) -> str:
            environment = inventory.find(node.id)
            return environment.name if environment is not None else node.id

        nodes = {key_of(node): node for node in reversed(job.cluster.nodes)}
        master = job.cluster.master
        kind, program, arguments = _program(job.run)
        return cls(
            task_name=job.name,
            selected=tuple(dict.fromkeys(key_of(node) for node in job.cluster.nodes)),
            master=key_of(master) if master is not None else None,
            gpu_counts=_sorted({key: count for key, node in nodes.items() if (count := _gpu_count(node)) is not None}),
            gpu_ids=tuple(sorted((key, ids) for key, node in nodes.items() if (ids := _gpu_ids(node)))),
            framework=job.framework or (COMMAND if kind == "command" else DEFAULT_FRAMEWORK),
            dataset=job.dataset,
            program=program,
            program_kind="command" if job.framework == COMMAND and not program else kind,
            arguments=arguments,
            workdir=(job.run.workdir or "") if job.run is not None else "",
            python=(job.run.python or "") if job.run is not None else "",
            prefix=shlex.join(job.run.prefix) if job.run is not None else "",
            per=job.run.per if job.run is not None else "gpu",
            container=job.run.container if job.run is not None else None,
            base=job,
            base_nodes=tuple(nodes.items()),
        ).with_options(job.framework_options)

    @property
    def framework_options(self) -> Mapping[str, Any]:
        """What the chosen framework is told."""
        return next((values for name, values in self.options if name == self.framework), {})

    @property
    def is_distributed(self) -> bool:
        """Whether more than one environment is ticked."""
        return len(self.selected) > 1

    def has_badge(self, key: str) -> bool:
        """Whether an environment is shown as the master: only where there is more than one."""
        return self.is_distributed and key == self.master

    def toggle(self, *keys: str) -> ComposeState:
        """Tick environments, or untick those that are. The first ticked is master; without it, the first that is left.

        One that is ticked again is what it was: its place, the GPUs that the job asks of it, whether it is the master.
        """
        order = tuple(dict.fromkeys((*self.order, *self.selected, *keys)))
        ticked = {*self.selected} ^ {*keys}
        selected = tuple(item for item in order if item in ticked)
        master, former = self.master, self.former_master
        if master in keys and master not in ticked:
            former = former or master
        if former in ticked:
            master, former = former, None
        master = master if master in ticked else next(iter(selected), None)
        return replace(self, selected=selected, master=master, order=order, former_master=former)

    def step_gpus(self, choice: Choice, step: int) -> ComposeState:
        """Use more GPUs of a ticked environment, or fewer: from one to all, which needs no count; any of them."""
        now = choice.gpus_used or 0
        wanted = min(now + step, _MOST_GPUS if choice.gpu_count is None else choice.gpu_count)
        if wanted < 1 or wanted == now:
            return self
        key = choice.environment.name
        counts = {**dict(self.gpu_counts), key: wanted}
        usual = choice.gpu_count if self._gpus_of_every_node is None else self._gpus_of_every_node
        if wanted == usual and not self._gpu_of_every_node.ids:
            del counts[key]
        return replace(self, gpu_counts=_sorted(counts), gpu_ids=self._gpu_ids_but(key))

    def choose_gpus(self, key: str, ids: Sequence[int]) -> ComposeState:
        """Use just these GPUs of an environment, which is ticked by that; with none, any, as many as were named."""
        state = self if key in self.selected else self.toggle(key)
        counts = {other: count for other, count in self.gpu_counts if other != key}
        others = self._gpu_ids_but(key)
        if ids:
            return replace(state, gpu_counts=_sorted(counts), gpu_ids=tuple(sorted((*others, (key, tuple(ids))))))
        if named := self._gpus_of(key).ids:
            return replace(state, gpu_counts=_sorted({**counts, key: len(named)}), gpu_ids=others)
        return state

    def _gpu_ids_but(self, key: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return tuple(pair for pair in self.gpu_ids if pair[0] != key)

    def choose_master(self, key: str) -> ComposeState:
        """Make another environment the master."""
        return replace(self, master=key, former_master=None)

    def choose_framework(self, framework: FrameworkName) -> ComposeState:
        """Choose how the job is launched; a script becomes the command that runs it, and the other way round."""
        chosen = replace(self, framework=framework)
        if framework == COMMAND and self.program_kind != "command":
            return replace(chosen, program=_command_of(self.program_kind, self.program.strip()), program_kind="command")
        if framework != COMMAND and self.program_kind == "command":
            kind, program, arguments = _python_of(self.program.strip(), self.arguments)
            return replace(chosen, program=program, program_kind=kind, arguments=arguments)
        return chosen

    def with_options(self, values: Mapping[str, Any]) -> ComposeState:
        """Tell the chosen framework something else."""
        others = tuple(pair for pair in self.options if pair[0] != self.framework)
        own = ((self.framework, values),) if values and self.framework is not None else ()
        return replace(self, options=tuple(sorted((*others, *own), key=lambda pair: pair[0])))

    def environments(self, inventory: Inventory) -> tuple[Environment, ...]:
        """Return the ticked environments that the inventory has, in the order of ticking."""
        found = (inventory.find(key) for key in self.selected)
        return tuple(environment for environment in found if environment is not None)

    def choices(self, inventory: Inventory, facts: Mapping[str, HostFacts]) -> tuple[Choice, ...]:
        """Return the ticked environments with what is known of their hosts, and the GPUs the job asks of them."""
        return tuple(self.choice(item, facts.get(item.name)) for item in self.environments(inventory))

    def choice(self, environment: Environment, facts: HostFacts | None) -> Choice:
        """Return an environment with what is known of its host, and the GPUs the job asks of it, or would."""
        asked = self._gpus_of(environment.name)
        return Choice(environment, facts, asked.number, asked.ids or ())

    def _gpus_of(self, key: str) -> GpuRequest:
        """Return which GPUs the job asks of an environment, or would."""
        ids, count = dict(self.gpu_ids).get(key), dict(self.gpu_counts).get(key)
        if ids is None and count is None:
            ids, count = self._gpu_of_every_node.ids, self._gpus_of_every_node
        return GpuRequest.model_construct(ids=ids, count=count)

    def validate(self) -> tuple[Finding, ...]:
        """Return what keeps the job from being launched, in the order in which a person is told."""
        findings: list[Finding] = []
        if not self.task_name.strip():
            findings.append(error("name-missing", "name", _("Enter a task name")))
        if self.dataset is None:
            findings.append(error("dataset-missing", "dataset", _("Choose a dataset, or none")))
        if not self.selected:
            findings.append(error("environment-missing", "cluster.nodes", _("Tick at least one environment")))
        if self.is_distributed and self.master not in self.selected:
            findings.append(error("master-invalid", "cluster.nodes", _("Choose a valid master")))
        if self.is_distributed and not self.framework:
            findings.append(error("framework-missing", "framework", _("Choose a framework")))
        if not self.program.strip():
            findings.append(error("script-missing", "run", _("Enter the script to run")))
        typed = self.arguments if self.program_kind != "command" else f"{self.program} {self.arguments}"
        if not _can_be_split(typed):
            message = _("The arguments have a quotation mark that is not closed")
            findings.append(error("arguments-invalid", "run.args", message))
        if not _can_be_split(self.prefix):
            message = _("The prefix has a quotation mark that is not closed")
            findings.append(error("prefix-invalid", "run.prefix", message))
        return tuple(findings)

    @property
    def fatal_fault(self) -> Finding | None:
        """The first of them without which there is no job to make; `None` where there is none."""
        return next((finding for finding in self.validate() if finding.code in _FATAL), None)

    def to_job(self) -> Job:
        """Return the job as composed. It may lack what `validate` asks for, but not its name.

        Raises:
            UsageError: a field holds what no job can: no name, arguments that cannot be split, a script that begins
                with a dash.
        """
        if (fault := self.fatal_fault) is not None:
            raise UsageError(fault.message)
        parts = _set_fields(self.base)
        cluster = _set_fields(self.base.cluster if self.base is not None else None)
        if self.selected:
            each = cluster.pop("gpus_per_node", None)
            cluster.pop("count", None)
            if each is not None:  # It goes with a count of nodes alone.
                parts["resources"] = _of_every_node(parts.get("resources"), each)
        shown = {
            "name": self.task_name.strip(),
            "framework": self.framework,
            "framework_options": dict(self.framework_options) or None,
            "run": self._run() if self.program.strip() else None,
            "dataset": self.dataset,
            "cluster": Cluster(**{**cluster, "nodes": self._nodes()}),
        }
        parts = {name: value for name, value in {**parts, **shown}.items() if value is not None}
        return _made(Job, parts)

    @property
    def _gpus_of_every_node(self) -> int | None:
        if self.base is None:
            return None
        number = self._gpu_of_every_node.number
        return number if number is not None else self.base.cluster.gpus_per_node

    @property
    def _gpu_of_every_node(self) -> GpuRequest:
        return (self.base.resources.gpu if self.base is not None else None) or GpuRequest()

    def _run(self) -> Run:
        run = self.base.run if self.base is not None else None
        parts = {name: value for name, value in _set_fields(run).items() if name not in _SHOWN_OF_RUN}
        arguments = tuple(shlex.split(self.arguments))
        program = self.program.strip()
        if self.program_kind == "command":
            parts["command"] = (*shlex.split(program), *arguments)
        else:
            parts[self.program_kind] = program
            if arguments:
                parts["args"] = arguments
        shown = {
            "workdir": self.workdir.strip(),
            "python": self.python.strip(),
            "prefix": tuple(shlex.split(self.prefix)),
            "container": self.container,
        }
        parts.update({name: value for name, value in shown.items() if value})
        is_as_opened = self.base is not None and self.base.framework == self.framework
        was_given = is_as_opened and run is not None and "per" in run.model_fields_set
        if was_given or (self.per == "node" and self.program_kind == "command"):
            parts["per"] = self.per
        return _made(Run, parts)

    def _nodes(self) -> tuple[Node, ...]:
        """Mark the master, but where it is the first anyway and the job began without a mark."""
        known = dict(self.base_nodes)
        marked = not known or any(node.role == "master" for node in known.values())
        marks = self.is_distributed and (marked or self.master != self.selected[0])
        return tuple(self._node(key, known.get(key), marks=marks) for key in self.selected)

    def _node(self, key: str, known: Node | None, *, marks: bool) -> Node:
        parts = _set_fields(known) or {"id": key}
        count, ids = dict(self.gpu_counts).get(key), dict(self.gpu_ids).get(key, ())
        if (count, ids) != (_gpu_count(known), _gpu_ids(known)):
            parts["resources"] = _with_gpus(parts.get("resources"), count, ids)
            parts = {name: value for name, value in parts.items() if value is not None}
        if marks and key == self.master:
            parts["role"] = "master"
        elif parts.get("role") == "master" and self.is_distributed:
            parts["role"] = "worker"
        return Node(**parts)


def _gpu_request(node: Node | None) -> GpuRequest:
    gpu = node.resources.gpu if node is not None and node.resources is not None else None
    return gpu or GpuRequest()


def _gpu_count(node: Node | None) -> int | None:
    """Return how many GPUs a node asks for without naming them."""
    gpu = _gpu_request(node)
    return gpu.count if not gpu.ids else None


def _gpu_ids(node: Node | None) -> tuple[int, ...]:
    return _gpu_request(node).ids or ()


def _with_gpus(resources: NodeResources | None, count: int | None, ids: tuple[int, ...]) -> NodeResources | None:
    """Return a node's resources with other GPUs, by count or named; `None` where nothing is left to say."""
    parts = _set_fields(resources)
    gpu = {name: value for name, value in _set_fields(parts.get("gpu")).items() if name not in ("count", "ids")}
    if ids:
        gpu["ids"] = ids
    elif count is not None:
        gpu["count"] = count
    parts["gpu"] = GpuRequest(**gpu) if gpu else None
    parts = {name: value for name, value in parts.items() if value is not None}
    return NodeResources(**parts) if parts else None


def _of_every_node(resources: ResourceDefaults | None, count: int) -> ResourceDefaults:
    """Return what is asked of every node, with a number of GPUs."""
    parts = _set_fields(resources)
    return ResourceDefaults(**{**parts, "gpu": GpuRequest(**{**_set_fields(parts.get("gpu")), "count": count})})


def _sorted(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items()))


def _program(run: Run | None) -> tuple[ProgramKind, str, str]:
    if run is None:
        return "script", "", ""
    if run.command is not None:
        return "command", shlex.quote(run.command[0]), shlex.join(run.command[1:])
    if run.module is not None:
        return "module", run.module, shlex.join(run.args)
    return "script", run.script or "", shlex.join(run.args)


def _command_of(kind: ProgramKind, program: str) -> str:
    """Return the command that runs a script or a module; what is no Python file is taken for a command already."""
    if kind == "module" and program:
        return f"python -m {shlex.quote(program)}"
    return f"python {shlex.quote(program)}" if _PYTHON_FILE.fullmatch(program) else program


def _python_of(program: str, arguments: str) -> tuple[ProgramKind, str, str]:
    """Return what the interpreter of a command runs, and its arguments; another command stays as it is."""
    typed = f"{program} {arguments}" if _PYTHON.fullmatch(program) else program
    words = shlex.split(typed) if _can_be_split(typed) else []
    kind: ProgramKind = "module" if words[1:2] == ["-m"] else "script"
    rest = words[2:] if kind == "module" else words[1:]
    if not rest or rest[0].startswith("-") or not _PYTHON.fullmatch(words[0]):
        return "script", program, arguments
    further = (shlex.join(rest[1:]), "" if typed != program else arguments.strip())
    return kind, rest[0], " ".join(text for text in further if text)


def _can_be_split(text: str) -> bool:
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True


def _made(model: type[SectionT], parts: dict[str, Any]) -> SectionT:
    try:
        return model(**parts)
    except ValidationError as fault:
        detail = fault.errors(include_url=False)[0]
        key = ".".join(str(part) for part in detail["loc"])
        said = describe_error(detail)
        raise UsageError(f"{key}: {said}" if key else said) from fault


def _set_fields(section: Section | None) -> dict[str, Any]:
    if section is None:
        return {}
    return {name: getattr(section, name) for name in type(section).model_fields if name in section.model_fields_set}
