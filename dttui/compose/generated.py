"""A script and a configuration for a job: a shipped script, by what the job splits, with all it says written in.

What the scripts cannot honour is refused, or told.
"""

from __future__ import annotations

import json
import pprint
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from dttui.compose.templates import JOB_FILE, OWN_SCRIPT, Template
from dttui.errors import UsageError
from dttui.export.rendered import Rendered
from dttui.frameworks.bundle import Hole, PlannedFile
from dttui.frameworks.example_scripts import RECIPE, SCRIPTS, check_script, choose_script
from dttui.frameworks.parts.environment import CONFIG_FILE
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
_FSDP_FILE, _ARGUMENTS_FILE = "fsdp_config.json", "megatron_args.txt"
_WRITTEN = (CONFIG_FILE, _FSDP_FILE, "ds_config.json", _ARGUMENTS_FILE)
"""Files of a node that scripts read where dttui does not start them."""
_OF_START = ("--distributed-backend=",)
"""Arguments by which dttui starts it, and a person may otherwise."""
_REPLACED = ("script", "module", "command", "args", "workdir", "per")
"""Of `run`, what the script stands in for."""
_LEAST_LAYERS = 4
_RESNETS = {"50": (3, 4, 6, 3), "101": (3, 4, 23, 3), "152": (3, 8, 36, 3)}
"""Blocks of each stage (He et al. 2016, table 1), by the number in the name."""
_ARGUMENTS = {"lr": "learning_rate", "train_iters": "steps", "seed": "seed"}
"""Megatron-LM's arguments, and what settings call them."""


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
    made = made.model_copy(update=_moved(made, name))
    planned = plan(_somewhere(made), _known(made, inventory))
    wrong = next((item for item in planned.errors if item.code not in ("no-nodes", "unknown-dataset")), None)
    if wrong is not None:
        raise UsageError(wrong.message, wrong.hint)
    findings = [item for item in planned.findings if item.code != "no-nodes"]
    findings += [] if made.cluster.nodes else [no_nodes(made)]
    # The sizes that its name stands for are not the job's own words.
    findings += [*check_script(made.model_copy(update={"model": job.model}), name), *_tell_replaced(job.run)]
    planned = planned.model_copy(update={"findings": tuple(findings)})
    texts = dict(map(_by_hand, planned.nodes[0].files if planned.nodes else ()))
    texts = {path: text for path, text in texts.items() if path in _WRITTEN}
    written = replace(template, job=made, text=dump_job(made))
    return written, planned, list(_files(written, made, texts))


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


def _moved(job: Job, name: str) -> dict[str, Any]:
    """Return settings and options of a job, with settings where the framework of the script reads them."""
    settings, options = dict(job.settings), dict(job.framework_options)
    if name == "resnet" and not {"layers", "width"} & settings.keys():
        blocks = _RESNETS.get("".join(re.findall(r"\d+", (job.model.name or "") if job.model is not None else "")))
        known = {"layers": blocks, "width": 64, "image_size": 224, "classes": 1000}
        settings = known | settings if blocks is not None else settings
    if name == "megatron-lm":
        given = dict(options.get("arguments") or {})
        said = {str(key).replace("-", "_") for key in given}
        taken = {key: _taken(settings, word) for key, word in _ARGUMENTS.items() if key not in said}
        if taken := {key: value for key, value in taken.items() if value is not None}:
            options["arguments"] = {**given, **taken}
    if name == "deepspeed":
        options |= _options_of_deepspeed(settings, options)
    made = {"settings": settings, "framework_options": options}
    return {key: value for key, value in made.items() if value != getattr(job, key)}


def _options_of_deepspeed(settings: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what settings say by DeepSpeed's own options, and an optimizer; take them out of the settings."""
    made: dict[str, Any] = {}
    if options.get("optimizer") is None:
        rate, decay = _taken(settings, "learning_rate"), _taken(settings, "weight_decay")
        params = {"lr": 0.003 if rate is None else rate, "weight_decay": 0.01 if decay is None else decay}
        made["optimizer"] = {"type": "AdamW", "params": params}
        scheduled = {word for key in ("scheduler", "min_lr") for word in (key, *RECIPE[key])}
        is_open = options.get("scheduler") is None and not scheduled & settings.keys()
        if is_open and (rising := _taken(settings, "warmup_steps")):
            params = {"warmup_max_lr": params["lr"], "warmup_num_steps": rising, "warmup_type": "linear"}
            made["scheduler"] = {"type": "WarmupLR", "params": params}
    for option, name in (
        ("gradient_clipping", "gradient_clipping"),
        ("gradient_accumulation_steps", "accumulation_steps"),
    ):
        if options.get(option) is None and (value := _taken(settings, name)) is not None:
            made[option] = value
    return made


def _taken(settings: dict[str, Any], name: str) -> Any:
    """Take a setting out, by whichever of its words it is there; return `None` where it is not."""
    found = [settings.pop(word) for word in (name, *RECIPE.get(name, ())) if word in settings]
    return found[0] if found else None


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
            count = gpu.count if gpu is not None else None
            resources = Resources(gpu=GpuResources(count=count)) if count is not None else Resources()
            host = f"node-{len(lacking) + 1}"  # Its id may be no name of a host, and nothing is started here.
            lacking.append(Environment(name=node.id, host=host, resources=resources))
    return inventory.model_copy(update={"environments": (*inventory.environments, *lacking)}) if lacking else inventory


def _by_hand(file: PlannedFile) -> tuple[str, str]:
    """Return path and text of a node's file for a start by hand: arguments that dttui fills in are left out."""
    if file.path != _ARGUMENTS_FILE:
        return file.path, file.text
    lines = [line.replace(f"{Hole.DIRECTORY}/{SENT_DIRECTORY}/", "") for line in file.text.splitlines()]
    kept = [line for line in lines if not line.startswith(_OF_START) and "${" not in line]
    return file.path, "".join(f"{line}\n" for line in kept)


def _files(template: Template, job: Job, texts: Mapping[str, str]) -> Iterator[Rendered]:
    yield Rendered(path=JOB_FILE, text=template.text)
    for path, text in texts.items():
        yield Rendered(path=path, text=text)
    copies = list(template.files())
    scripts = {file.path: file.source for file in copies if file.source is not None and file.path.endswith(".py")}
    sources = {path: source.read_text(encoding="utf-8") for path, source in scripts.items()}
    if sum(source.count(_PLACE) for source in sources.values()) != 1:
        raise RuntimeError(f"the scripts of {template.name} have no place, or several, for what a job says")
    written = _literal(template, job, texts)
    for file in copies:
        source = sources.get(file.path)
        yield file if source is None else Rendered(path=file.path, text=source.replace(_PLACE, written))


def _literal(template: Template, job: Job, texts: Mapping[str, str]) -> str:
    """Return the lines of a script that say what the job says; that of FSDP reads two files, by variable."""
    told: Any = json.loads(texts.get(CONFIG_FILE, "{}"))
    if template.framework == "pytorch-fsdp":
        sharding = json.loads(texts.get(_FSDP_FILE, "{}"))
        if sharding:
            sharding["mesh"] = [*sharding["mesh"][:-1], -1]  # As many as there are, also where dttui starts nothing.
        told = {"DTTUI_CONFIG": told, "DTTUI_FSDP_CONFIG": sharding}
    return f"OF_JOB: dict[str, Any] = {pprint.pformat(told, width=110, sort_dicts=False)}\n"
