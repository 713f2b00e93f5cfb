"""Kubeflow TrainJobs (`trainer.kubeflow.org`): what their trainer starts on each node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dttui.i18n import _
from dttui.spec.dialects.products.gpus import COUNT, MOST_NODES, has_launcher, number
from dttui.spec.dialects.products.node_addresses import addresses
from dttui.spec.dialects.products.pod_template import Pod, job_of, note_object
from dttui.spec.dialects.products.product_kind import Outside
from dttui.spec.dialects.translation import Translated, Translation, in_order, make_note
from dttui.spec.problems import DocumentError, PathKey, shown
from dttui.spec.yaml_source import YamlSource

_TRAINER: PathKey = ("spec", "trainer")
_RUNTIME: PathKey = ("spec", "runtimeRef", "name")


def translate(source: YamlSource, outside: Outside) -> Translated:
    """Carry a TrainJob over. Raises DocumentError with every problem of it."""
    translation = Translation(source)
    if not isinstance(source.value(_TRAINER), Mapping):
        message = _("what it starts is said by its runtime, and not here: it has no trainer")
        hint = _("Import the command: dttui import -- COMMAND.")
        raise DocumentError([source.problem(_TRAINER, source.key_mark(_TRAINER), message, hint)])
    pod = Pod(translation, _TRAINER, "TrainJob", outside.variables)
    nodes = count_of(source, (*_TRAINER, "numNodes"), 1)
    note_object(translation, ("trainer", "runtimeRef"))
    words = pod.words()
    given = {**pod.carry_variables(), **_given(nodes)}
    wish = pod.gpus("resourcesPerNode")
    each = source.value((*_TRAINER, "numProcPerNode"))
    wish = replace(wish, processes=number(each) or wish.count)
    if nodes > 1:
        translation.expect_nodes((*_TRAINER, "numNodes"), nodes)
    translation.use((*_TRAINER, "numNodes"), (*_TRAINER, "numProcPerNode"))
    pod.note_rest()
    translation.use(("spec", "runtimeRef"))
    job = job_of(pod, words, given, wish, outside)
    is_launched = has_launcher(" ".join(word for word, _origin in words))
    return _of_runtime(job) if is_launched and wish.count is None else job


def count_of(source: YamlSource, origin: PathKey, default: int) -> int:
    """Return a number of nodes or replicas. Raises DocumentError where it is none."""
    said = source.value(origin)
    count = number(said, MOST_NODES) if said is not None else default
    if count is None:
        message = _("expected a number of nodes, found {value}").format(value=shown(said))
        raise DocumentError([source.problem(origin, source.mark(origin), message)])
    return count


def _given(nodes: int) -> dict[str, str]:
    """Return what the runtimes of Kubeflow set on the first node."""
    return {
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": addresses(1),
        "PET_MASTER_PORT": "29400",
        "JOB_COMPLETION_INDEX": "0",
    }


def _of_runtime(job: Translated) -> Translated:
    """Return a job whose number of processes, where nothing says it, is that of the GPUs of a node."""
    leaf = job.leaves.get(COUNT)
    if leaf is None or not leaf.is_implied:
        return job
    leaves = {target: item for target, item in job.leaves.items() if target != COUNT}
    message = _("how many processes a node has is said by the runtime {name}: here it has one for each GPU")
    message = message.format(name=shown(job.source.value(_RUNTIME)))
    note = make_note(job.source, _RUNTIME, message, _("Write resources.gpu.count."))
    return replace(job, leaves=leaves, notes=in_order((*job.notes, note)))
