"""A script and a configuration for a job: a shipped script, by what the job splits, with all it says written in.

What the scripts cannot honour is refused, or told.
"""

from __future__ import annotations

import pprint
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from dttui.compose.templates import JOB_FILE, OWN_SCRIPT, Template
from dttui.errors import UsageError
from dttui.export.rendered import Rendered
from dttui.frameworks.bundle import Hole
from dttui.frameworks.example_scripts import SCRIPTS, check_script, choose_script
from dttui.frameworks.scripts_by_hand import by_hand, moved, told_by
from dttui.i18n import _
from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.planning.job_sources import SENT_DIRECTORY
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.planning.roster import no_nodes
from dttui.spec import dump_job
from dttui.spec.cluster import MOST_NODES
from dttui.spec.findings import Finding, info
from dttui.spec.known_models import filled
from dttui.spec.models import Cluster, Job, Model, Run

_PLACE = "OF_JOB: dict[str, Any] = {}\n"
"""Where the scripts of a template have what the job says, once among them."""
_REPLACED = ("script", "module", "command", "args", "workdir", "per")
"""Of `run`, what the script stands in for."""
_LEAST_LAYERS = 4


def generate(job: Job, templates: Sequence[Template], inventory: Inventory) -> tuple[Template, Plan, list[Rendered]]:
    """Return the job as it runs what is written, its plan, and the files: script, configuration and job.

    Args:
        job: any valid job; what it runs itself is replaced.
        templates: the shipped ones.
        inventory: where its nodes are looked up; one that is not there counts as it is described in the job.

    Raises:
        UsageError: no script honours what the job says.
    """
    framework, name = choose_script(job)
    template = next(item for item in templates if item.name == name)
    changes = {"framework": framework, "run": _run(job.run), "dataset": job.dataset or "none"}
    made = job.model_copy(update=changes if (model := _model(job, name)) is None else {**changes, "model": model})
    made = made.model_copy(update=moved(made, name))
    planned = plan(_somewhere(made), _known(made, inventory))
    wrong = next((item for item in planned.errors if item.code not in ("no-nodes", "unknown-dataset")), None)
    if wrong is not None:
        raise UsageError(wrong.message, wrong.hint)
    findings = [item for item in planned.findings if item.code != "no-nodes"]
    findings += [] if made.cluster.nodes else [no_nodes(made)]
    # The sizes that its name stands for are not the job's own words.
    findings += [*check_script(made.model_copy(update={"model": job.model}), name), *_tell_replaced(job.run)]
    planned = planned.model_copy(update={"findings": tuple(findings)})
    files = planned.nodes[0].files if planned.nodes else ()
    texts = by_hand({file.path: file.text for file in files}, f"{Hole.DIRECTORY}/{SENT_DIRECTORY}/")
    written = replace(template, job=made, text=dump_job(made))
    return written, planned, list(_files(written, texts))


def _run(run: Run | None) -> Run:
    """Return how the script is run: as what the job runs, but for what it runs."""
    said = {} if run is None else {key: getattr(run, key) for key in run.model_fields_set if key not in _REPLACED}
    return Run(**{**said, "script": OWN_SCRIPT, "workdir": "."})


def _tell_replaced(run: Run | None) -> Iterator[Finding]:
    """Tell what of `run` the script takes the place of."""
    made = _run(run)
    said = [key for key in _REPLACED if run is not None and key in run.model_fields_set]
    lost = [f"run.{key}" for key in said if getattr(run, key) != getattr(made, key)]
    if lost:
        message = _("train.py is run in the place of: {keys}").format(keys=", ".join(lost))
        yield info("run-replaced", lost[0], message, _("What your own script does besides is not in it."))


def _model(job: Job, name: str) -> Model | None:
    """Return the model with the sizes that its name stands for, of those that the script reads.

    Where nobody says how many layers are cut into stages, each has one at least.
    """
    model = job.model
    if model is not None:
        sizes = {key: getattr(filled(model), key) for key in SCRIPTS[name].model if getattr(model, key) is None}
        model = model.model_copy(update={key: value for key, value in sizes.items() if value is not None})
    if name != "bert" or (model is not None and model.layers is not None):
        return model
    stages, split = job.strategy.pipeline_degree or 1, job.strategy.model_parallel
    splitting = split.model_splitting if split is not None else None
    told = (splitting.layers_per_node or 0) * len(job.cluster.nodes) if splitting is not None else 0
    return (model or Model()).model_copy(update={"layers": max(stages, told, _LEAST_LAYERS)})


def _somewhere(job: Job) -> Job:
    """Return a job that names no nodes as one of as many ranks as its degrees make, each on a node."""
    cluster, strategy = job.cluster, job.strategy
    if cluster.nodes or cluster.count is not None:
        return job
    degrees = (strategy.data_parallel_size, strategy.tensor_parallel_size, strategy.pipeline_degree)
    ranks = prod(degree or 1 for degree in degrees)
    return job.model_copy(update={"cluster": Cluster(count=min(ranks, MOST_NODES), gpus_per_node=1)})


def _known(job: Job, inventory: Inventory) -> Inventory:
    """Return an inventory that has the job's nodes, those that it lacks as the job describes them."""
    lacking: list[Environment] = []
    for node in job.cluster.nodes:
        if inventory.find(node.id) is None:
            gpu = node.resources.gpu if node.resources is not None else None
            count = gpu.number if gpu is not None else None
            count = 1 + max(gpu.ids) if gpu is not None and gpu.ids else count
            resources = Resources(gpu=GpuResources(count=count)) if count is not None else Resources()
            host = f"node-{len(lacking) + 1}"  # Its id may be no name of a host, and nothing is started here.
            lacking.append(Environment(name=node.id, host=host, resources=resources))
    return inventory.model_copy(update={"environments": (*inventory.environments, *lacking)}) if lacking else inventory


def _files(template: Template, texts: Mapping[str, str]) -> Iterator[Rendered]:
    yield Rendered(path=JOB_FILE, text=template.text)
    for path, text in texts.items():
        yield Rendered(path=path, text=text)
    copies = list(template.files())
    scripts = {file.path: file.source for file in copies if file.source is not None and file.path.endswith(".py")}
    sources = {path: source.read_text(encoding="utf-8") for path, source in scripts.items()}
    if sum(source.count(_PLACE) for source in sources.values()) != 1:
        raise RuntimeError(f"the scripts of {template.name} have no place, or several, for what a job says")
    told = pprint.pformat(told_by(template.name, texts), width=110, sort_dicts=False)
    written = _PLACE.replace("{}", told)
    for file in copies:
        source = sources.get(file.path)
        yield file if source is None else Rendered(path=file.path, text=source.replace(_PLACE, written))
