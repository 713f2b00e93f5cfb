"""Kubeflow PyTorchJobs: what their master and workers start, each once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dttui.i18n import _
from dttui.spec.dialects.products.gpus import number
from dttui.spec.dialects.products.node_addresses import addresses
from dttui.spec.dialects.products.pod_template import Pod, find_container, job_of, note_object, note_template
from dttui.spec.dialects.products.product_kind import Outside
from dttui.spec.dialects.products.remainders import note_section
from dttui.spec.dialects.products.trainjob import count_of
from dttui.spec.dialects.translation import Leaf, Translated, Translation
from dttui.spec.problems import DocumentError, PathKey
from dttui.spec.yaml_source import YamlSource

_SPECS: PathKey = ("spec", "pytorchReplicaSpecs")
_ELASTIC: PathKey = ("spec", "elasticPolicy")


def translate(source: YamlSource, outside: Outside) -> Translated:
    """Carry a PyTorchJob over. Raises DocumentError with every problem of it."""
    translation = Translation(source)
    specs = source.value(_SPECS)
    roles = [
        role for role in ("Master", "Worker") if isinstance(specs, Mapping) and isinstance(specs.get(role), Mapping)
    ]
    if not roles:
        message = _("{kind}: it has neither a master nor workers").format(kind="PyTorchJob")
        raise DocumentError([source.problem(_SPECS, source.key_mark(_SPECS), message)])
    counts = {role: count_of(source, (*_SPECS, role, "replicas"), 1) for role in roles}
    nodes = max(sum(counts.values()), 1)
    note_object(translation, ("pytorchReplicaSpecs", "nprocPerNode", "elasticPolicy"))
    first = (*_SPECS, roles[0], "template")
    pod = find_container(translation, first, ("pytorch",), "PyTorchJob", outside)
    words = pod.words()
    values = pod.carry_variables()
    wish = pod.gpus()
    each = number(source.value(("spec", "nprocPerNode"))) or number(source.value((*_ELASTIC, "nProcPerNode")))
    wish = replace(wish, count=wish.count or 0, processes=each or wish.count)
    pod.note_rest()
    note_template(translation, first)
    _note_roles(translation, roles, pod)
    _expect_nodes(translation, counts, nodes)
    job = job_of(pod, words, {**_given(nodes, each), **values}, wish, outside)
    return _with_recovery(job, source)


def _given(nodes: int, each: int | None) -> dict[str, str]:
    """Return what the operator sets in the master."""
    return {
        "MASTER_ADDR": addresses(1),
        "MASTER_PORT": "23456",
        "WORLD_SIZE": str(nodes * (each or 1)),
        "RANK": "0",
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": "0",
        "PET_NPROC_PER_NODE": str(each) if each is not None else "auto",
        "PET_MASTER_ADDR": addresses(1),
        "PET_MASTER_PORT": "23456",
        "PET_RDZV_ENDPOINT": addresses(1) + ":23456",
        "PET_RDZV_BACKEND": "c10d",
    }


def _note_roles(translation: Translation, roles: list[str], pod: Pod) -> None:
    """Say where the workers start something else than the master, and what else is said of a role."""
    for role in roles:
        for key in translation.said((*_SPECS, role)) or ():
            if key not in ("template", "replicas"):
                note_section(translation, (*_SPECS, role, key), _("not carried over: Kubernetes' own"))
        translation.use((*_SPECS, role, "replicas"))
    if len(roles) < 2:
        return
    containers = translation.said((*_SPECS, "Worker", "template", "spec", "containers"))
    others = [item for item in containers or () if isinstance(item, Mapping)] if isinstance(containers, tuple) else []
    worker = next((item for item in others if item.get("name") == pod.said("name")), others[0] if others else {})
    differs = any(worker.get(key) != pod.said(key) for key in ("command", "args"))
    if differs:
        message = _(
            "not carried over: the workers start something else than the master, which is what every node starts here"
        )
        translation.note((*_SPECS, "Worker", "template"), message, is_warning=True)
    translation.use((*_SPECS, "Worker", "template"))


def _expect_nodes(translation: Translation, counts: Mapping[str, int], nodes: int) -> None:
    least = number(translation.said((*_ELASTIC, "minReplicas")))
    most = number(translation.said((*_ELASTIC, "maxReplicas")))
    last = (*_SPECS, list(counts)[-1], "replicas")
    if least and most and least < most:
        translation.expect_nodes((*_ELASTIC, "minReplicas"), least, most)
    elif nodes > 1:
        translation.expect_nodes(last if translation.said(last) is not None else _SPECS, nodes)
    translation.use(
        ("spec", "nprocPerNode"), *((*_ELASTIC, key) for key in ("minReplicas", "maxReplicas", "nProcPerNode"))
    )
    translation.use((*_ELASTIC, "maxRestarts"))
    message = _("not carried over: dttui gives every node its rank, and needs no rendezvous of it")
    note_section(translation, _ELASTIC, message)


def _with_recovery(job: Translated, source: YamlSource) -> Translated:
    """Return a job that goes on with fewer nodes and starts again as often as the policy says."""
    least, most = (number(source.value((*_ELASTIC, key))) for key in ("minReplicas", "maxReplicas"))
    restarts = number(source.value((*_ELASTIC, "maxRestarts")), 10_000)
    is_command = ("run", "command") in job.leaves
    is_elastic = bool(least and most and least < most)
    section: PathKey = ("framework_options", "elastic") if is_elastic and not is_command else ("recovery",)
    leaves = dict(job.leaves)
    if is_elastic and not is_command:
        leaves.setdefault((*section, "min_nodes"), Leaf(least, (*_ELASTIC, "minReplicas")))
    if restarts is not None:
        leaves.setdefault((*section, "max_restarts"), Leaf(restarts, (*_ELASTIC, "maxRestarts")))
    return replace(job, leaves=leaves)
