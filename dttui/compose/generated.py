"""A script and a configuration for a job: a shipped script, by what the job splits, with all it says written in.

What the scripts cannot honour is refused, not left out.
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
from dttui.frameworks.example_scripts import KNOWS_ALL, SHARDING_SAYS, choose_script
from dttui.frameworks.parts.environment import CONFIG_FILE
from dttui.i18n import _
from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.planning.roster import no_nodes
from dttui.spec import dump_job
from dttui.spec.cluster import MOST_NODES
from dttui.spec.effects import keys_for_script
from dttui.spec.findings import Finding, warning
from dttui.spec.models import Cluster, Job, Model, Run
from dttui.spec.problems import format_path

_CONFIG_READ = 'json.loads(Path(TOLD).read_text(encoding="utf-8")) if TOLD else {}'
"""How scripts read DTTUI_CONFIG."""
_FSDP_FILE = "fsdp_config.json"
_FILE_READ = 'json.loads(Path(path).read_text(encoding="utf-8")) if path else {}'
"""The same of the one for FSDP, which reads two."""
_OPTIONS_OF_GPT = {"--layers": "layers", "--heads": "heads", "--width": "hidden_size", "--block-size": "seq_length"}
_SETTINGS_OF_GPT = {"--steps": "steps", "--lr": "learning_rate", "--seed": "seed"}
_OF_STRATEGY = ("recomputation", "sequence_parallel", "compiled")
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
    run = Run(script=OWN_SCRIPT, workdir=".", python=job.run.python if job.run is not None else None)
    made = job.model_copy(update={"framework": framework, "run": run, "dataset": job.dataset or "none"})
    if name == "bert":
        made = made.model_copy(update={"model": _with_layers(job)})
    planned = plan(_somewhere(made), _known(made, inventory))
    wrong = next((item for item in planned.errors if item.code not in ("no-nodes", "unknown-dataset")), None)
    if wrong is not None:
        raise UsageError(wrong.message, wrong.hint)
    findings = [item for item in planned.findings if item.code != "no-nodes"]
    findings += [] if made.cluster.nodes else [no_nodes(made)]
    findings += _unread(made, template)
    planned = planned.model_copy(update={"findings": tuple(findings)})
    texts = {file.path: file.text for file in (planned.nodes[0].files if planned.nodes else ())}
    texts = {path: text for path, text in texts.items() if path in (CONFIG_FILE, _FSDP_FILE)}
    written = replace(template, job=made, text=dump_job(made))
    return written, planned, list(_files(written, made, texts))


def _with_layers(job: Job) -> Model:
    """Return the model with as many layers as are cut, where nobody says how many: each stage has one at least."""
    model, split = job.model or Model(), job.strategy.model_parallel
    if model.layers is not None:
        return model
    stages = job.strategy.pipeline_degree or 1
    splitting = split.model_splitting if split is not None else None
    told = (splitting.layers_per_node or 0) * len(job.cluster.nodes) if splitting is not None else 0
    return model.model_copy(update={"layers": max(stages, told, _LEAST_LAYERS)})


def _unread(job: Job, template: Template) -> Iterator[Finding]:
    """Yield a warning about what is said to the script and not read by it; of `settings` it tells itself."""
    scripts = [file.source for file in template.files() if file.source is not None and file.source.suffix == ".py"]
    text = "".join(path.read_text(encoding="utf-8") for path in scripts)
    said = [*keys_for_script(job), *(("strategy", key) for key in _OF_STRATEGY if getattr(job.strategy, key))]
    elsewhere = SHARDING_SAYS.get(template.framework, frozenset())
    said = [path for path in said if path[-1] not in elsewhere]
    unread = [path for path in said if f'"{path[-1]}"' not in text and path[0] not in ("monitoring", "recovery")]
    if unread and template.framework not in KNOWS_ALL:
        message = _("the script that was written does not act upon: {keys}")
        told = message.format(keys=", ".join(map(format_path, unread)))
        yield warning("not-in-script", format_path(unread[0]), told, _("Add it to the script by hand."), path=unread[0])


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


def _files(template: Template, job: Job, texts: Mapping[str, str]) -> Iterator[Rendered]:
    yield Rendered(path=JOB_FILE, text=template.text)
    for path, text in texts.items():
        yield Rendered(path=path, text=text)
    told = {path: json.loads(text) for path, text in texts.items()}
    if sharding := told.get(_FSDP_FILE):
        sharding["mesh"] = [*sharding["mesh"][:-1], -1]  # As many as there are, also where dttui starts nothing.
    for file in template.files():
        if file.source is None or file.source.suffix != ".py":
            yield file
            continue
        source = file.source.read_text(encoding="utf-8")
        yield Rendered(path=file.path, text=_with_defaults(_written_in(source, told, job.name), job))


def _written_in(source: str, told: Mapping[str, Any], name: str) -> str:
    """Return a script with what the job says in the place of nothing, where it is started without dttui."""
    reads_two = _FILE_READ in source
    if not reads_two and _CONFIG_READ not in source:
        return source
    config, sharding = told.get(CONFIG_FILE, {}), told.get(_FSDP_FILE, {})
    literal = {"DTTUI_CONFIG": config, "DTTUI_FSDP_CONFIG": sharding} if reads_two else config
    called = json.dumps(name, ensure_ascii=False)
    head = f"# What the job {called} says, where dttui does not start this.\n"
    head += f"OF_JOB: dict[str, Any] = {pprint.pformat(literal, width=110, sort_dicts=False)}\n"
    if reads_two:
        source = source.replace("\n\ndef read_json", f"\n{head}\n\ndef read_json", 1)
        return source.replace(_FILE_READ, _FILE_READ.removesuffix("{}") + "OF_JOB.get(variable, {})")
    source = source.replace("TOLD = ", f"{head}TOLD = ", 1)
    return source.replace(_CONFIG_READ, _CONFIG_READ.removesuffix("{}") + "OF_JOB")


def _with_defaults(source: str, job: Job) -> str:
    """Return the options of a script with the sizes and settings of the job as what they are by themselves."""
    model = job.model.model_dump(exclude_none=True) if job.model is not None else {}
    data = job.strategy.data_parallel
    values = {option: model.get(key) for option, key in _OPTIONS_OF_GPT.items()}
    values |= {option: job.settings.get(key) for option, key in _SETTINGS_OF_GPT.items()}
    values["--batch-size"] = data.batch_size if data is not None else None
    for option, value in values.items():
        if isinstance(value, (int, float)):
            source = re.sub(rf'(add\("{option}", type=\w+, default=)[^,)]+', rf"\g<1>{value!r}", source)
    return source
