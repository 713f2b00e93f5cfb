"""Templates: the examples that ship with dttui, each made a job for the environments that a person chooses.

All there is to one is its directory: a job.yaml, whose comment says what it is, and what its workdir holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dttui.errors import UsageError
from dttui.export.rendered import Rendered
from dttui.frameworks import Framework, Unavailable, frameworks, get_framework, traits_of
from dttui.i18n import _, language
from dttui.inventory.models import MAX_GPUS, Environment, Inventory
from dttui.launch.script_imports import imports_of
from dttui.spec import Job, dump_job, parse_document
from dttui.spec.edit import edited_in_place
from dttui.spec.models import Cluster, GpuRequest, Node, NodeResources, Run, Strategy
from dttui.spec.problems import did_you_mean
from dttui.spec.yaml_reader import decode, read_bytes
from dttui.workdir.selection import SKIPPED

JOB_FILE = "job.yaml"
OWN_SCRIPT = "train.py"
"""What a job runs that comes without a script."""
_COMMENT = re.compile(r"((?:^|\s)# +)(?!\w+: (?:\S+|\{.*\})$)([^#\n]*[^#\s])$", re.MULTILINE)
"""The last comment of a line, and what it says; but for a key with its value that a person may put in."""


@dataclass(frozen=True)
class Template:
    """A job that trains, and the files it runs."""

    name: str
    """Its directory's."""
    job: Job
    """As it is for the embedded cluster."""
    text: str
    """Of its job file."""
    titles: Mapping[str, str]
    """What it is, in a line, by language."""
    notes: tuple[str, ...]
    """What else its comment says, in paragraphs."""
    directory: Path | None
    """Holds the files that run; `None` where they are left to the person."""

    @property
    def framework(self) -> str:
        """Name of its framework."""
        return self.job.framework or ""

    @property
    def label(self) -> str:
        """What its framework is called."""
        return get_framework(self.framework).label

    @property
    def title(self) -> str:
        """What it is, in a line."""
        return self.titles.get(language()) or self.titles["en"]

    @property
    def is_of_framework(self) -> bool:
        """Whether it is what a framework by itself stands for."""
        return self.name == (traits_of(self.framework).template or self.framework)

    def comments(self) -> Iterator[str]:
        """Yield what its job file says in English, for translators; but its title."""
        yield from map(_in_a_line, self.notes)
        yield from (match[2] for match in _COMMENT.finditer(_body(self.text)))

    def packages(self) -> list[str]:
        """Return the packages that it takes: those of its framework, and what its scripts import of other ones."""
        own = get_framework(self.framework).requires
        scripts = [] if self.directory is None else self.directory.glob("*.py")
        found = [imports_of(path, path.parent) or () for path in scripts]
        imported = {name.partition(".")[0] for names in found for name in names}
        others = {package for framework in frameworks() for package in framework.requires}
        return [*own, *sorted((others & imported).difference(own))]

    def files(self) -> Iterator[Rendered]:
        """Yield copies of what runs."""
        if self.directory is None:
            return
        for path in sorted(self.directory.rglob("*")):
            relative = path.relative_to(self.directory)
            if path.is_file() and not SKIPPED.intersection(relative.parts) and str(relative) != JOB_FILE:
                yield Rendered(path=relative.as_posix(), source=path)

    def files_for(self, job: Job) -> list[Rendered]:
        """Return a job's file and copies of what it runs."""
        return [Rendered(path=JOB_FILE, text=job_text(self, job)), *self.files()]


def read_templates(examples: Path) -> list[Template]:
    """Return all, those of a framework together and its own first. Raises DocumentError for one that cannot be read."""
    found = [_read(path) for path in sorted(examples.glob(f"*/{JOB_FILE}"))]
    order = [framework.name for framework in frameworks()]
    return sorted(found, key=lambda item: (order.index(item.framework), not item.is_of_framework))


def choose_template(templates: Sequence[Template], framework: str | None, name: str | None) -> Template:
    """Return the template of that name, or else of that framework; of one without, what follows from the framework.

    Raises:
        UsageError: there is none, it is for another framework, or the framework cannot be used.
    """
    if framework is not None:
        wanted = get_framework(framework)
        if isinstance(wanted, Unavailable):
            raise UsageError(wanted.reason, wanted.hint)
        if name is None:
            own = (item for item in templates if item.framework == framework and item.is_of_framework)
            return next(own, None) or _without_example(wanted)
    found = next((item for item in templates if item.name == name), None)
    if found is None:
        hint = did_you_mean(name or "", [item.name for item in templates]) or "dttui init --list"
        raise UsageError(_('no template "{name}"').format(name=name), hint)
    if framework not in (None, found.framework):
        message = _("the template {template} is for {framework}, not for {other}")
        raise UsageError(
            message.format(template=name, framework=found.framework, other=framework),
            _("Give --template or --framework alone."),
        )
    return found


def environments_for(template: Template, inventory: Inventory) -> list[Environment]:
    """Return the first environments of an inventory, as many as the template has nodes; at most, all.

    Raises:
        UsageError: there is none.
    """
    if not inventory.environments:
        raise UsageError(_("the inventory has no environments"), _("Add some, or try --demo."))
    return list(inventory.environments[: len(template.job.cluster.nodes)])


def made_for(template: Template, environments: Sequence[Environment], inventory: Inventory, name: str) -> Job:
    """Return the template's job on other environments: as many samples a replica, as few GPUs, and degrees that fit.

    Args:
        template: the template.
        environments: those to run on, the master first.
        inventory: where the dataset is looked up.
        name: the job's.
    """
    job = template.job
    wanted = [_gpus(node) for node in job.cluster.nodes]
    counts = _counts(wanted, environments)
    nodes = tuple(
        _node(environment, "worker" if index else "master", counts[index])
        for index, environment in enumerate(environments)
    )
    ranks = sum(count or 1 for count in counts) if any(counts) else 0
    changes: dict[str, object] = {"name": name, "cluster": Cluster(nodes=nodes)}
    if ranks and ranks != sum(wanted):
        changes |= _scaled(job, sum(wanted), ranks)
    if job.run is not None and job.run.workdir is not None:
        changes["run"] = job.run.model_copy(update={"workdir": "."})
    if job.dataset is not None and job.dataset != "none" and inventory.find_dataset(job.dataset.id) is None:
        changes["dataset"] = "none"
    return job.model_copy(update=changes)


def job_text(template: Template, job: Job) -> str:
    """Return the template's job file for another job, with the comments that are not about the examples."""
    text = edited_in_place(template.text, job)
    body = dump_job(job) if text is None else _body(text)
    notes = "".join(
        "#\n" + "".join(f"# {line}\n" for line in _translated(part).splitlines()) for part in template.notes
    )
    body = _COMMENT.sub(lambda match: match[1] + _(match[2]), body)
    return f"# {template.title}\n{notes}\n{body.lstrip()}"


def _without_example(framework: Framework) -> Template:
    """Return a job of a framework that runs a script of the person's on all GPUs of two hosts."""
    gpus = NodeResources(gpu=GpuRequest(count=MAX_GPUS))
    nodes = tuple(Node(id=str(number), resources=gpus) for number in range(2))
    job = Job(
        name=framework.name,
        framework=framework.name,
        dataset="none",
        run=Run(script=OWN_SCRIPT, workdir="."),
        cluster=Cluster(nodes=nodes),
    )
    titles = {"en": framework.label, language(): f"{framework.label}: {framework.description}"}
    return Template(framework.name, job, dump_job(job), titles, (), None)


def _read(path: Path) -> Template:
    text = decode(read_bytes(path, str(path)), str(path))
    job = parse_document(text, str(path)).job
    head = [line.removeprefix("#").strip() for line in text.splitlines()[: _head_lines(text)]]
    paragraphs = [part.splitlines() for part in "\n".join(head).split("\n\n")]
    told = [part for part in paragraphs if part and not part[0].startswith(("yaml-language-server", "dttui "))]
    first, *others = told or [[path.parent.name]]
    titles = {line[:2] if line.startswith("zh:") else "en": line.removeprefix("zh:").strip() for line in first}
    notes = tuple("\n".join(part) for part in others)
    workdir = job.run.workdir if job.run is not None else None
    return Template(path.parent.name, job, text, titles, notes, (path.parent / (workdir or ".")).resolve())


def _translated(paragraph: str) -> str:
    """Return a paragraph in the language of the person; its lines stay where it is in English."""
    whole = _in_a_line(paragraph)
    translated = _(whole)
    return paragraph if translated == whole else translated


def _in_a_line(paragraph: str) -> str:
    return " ".join(paragraph.splitlines())


def _body(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[_head_lines(text) :])


def _head_lines(text: str) -> int:
    """Return how many lines a file begins with that are comment."""
    lines = text.splitlines()
    return next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))


def _gpus(node: Node) -> int:
    gpu = node.resources.gpu if node.resources is not None else None
    return (gpu.number if gpu is not None else None) or 1


def _counts(wanted: Sequence[int], environments: Sequence[Environment]) -> list[int | None]:
    """Return how many GPUs of each environment to use: no more than it is declared with, `None` where nobody says.

    Where the template has the same number on all, they are given the same.
    """
    declared = [item.resources.gpu.count if item.resources.gpu is not None else None for item in environments]
    counts = [
        min(wanted[min(index, len(wanted) - 1)], count) if count else None for index, count in enumerate(declared)
    ]
    known = [count for count in counts if count is not None]
    if len(set(wanted)) == 1 and len(known) == len(counts):
        return [min(known)] * len(counts)
    return counts


def _node(environment: Environment, role: str, count: int | None) -> Node:
    resources = {"resources": {"gpu": {"count": count}}} if count is not None else {}
    return Node.model_validate({"id": environment.id or environment.name, "role": role, **resources})


def _scaled(job: Job, before: int, after: int) -> dict[str, object]:
    """Return what changes with the number of ranks: degrees, which divide it, layers, which stages divide, batch."""
    strategy: Strategy = job.strategy
    tensor, pipeline = strategy.tensor_parallel_size or 1, strategy.pipeline_parallel_size or 1
    new_tensor = _largest_divisor(after, tensor)
    new_pipeline = _largest_divisor(after // new_tensor, pipeline)
    replicas, new_replicas = before // (tensor * pipeline), after // (new_tensor * new_pipeline)
    updates: dict[str, object] = {}
    if new_tensor != tensor:
        updates["tensor_parallel_size"] = new_tensor
    if new_pipeline != pipeline:
        updates["pipeline_parallel_size"] = new_pipeline
    data = strategy.data_parallel
    if data is not None and data.batch_size is not None and new_replicas != replicas:
        updates["data_parallel"] = data.model_copy(update={"batch_size": data.batch_size // replicas * new_replicas})
    changes: dict[str, object] = {"strategy": strategy.model_copy(update=updates)}
    model = job.model
    if model is not None and model.layers is not None and new_pipeline != pipeline:
        changes["model"] = model.model_copy(update={"layers": model.layers // pipeline * new_pipeline})
    return changes


def _largest_divisor(number: int, most: int) -> int:
    return next(size for size in range(min(most, number), 0, -1) if number % size == 0)
