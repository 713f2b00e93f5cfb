"""Kubeflow MPIJobs: the `mpirun` of their launcher, on as many nodes as there are workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dttui.i18n import _
from dttui.spec.dialects.products.embedded import check_program
from dttui.spec.dialects.products.gpus import COUNT, number
from dttui.spec.dialects.products.pod_template import (
    Pod,
    Words,
    find_container,
    first_count,
    job_of,
    note_object,
    note_template,
)
from dttui.spec.dialects.products.product_kind import Outside
from dttui.spec.dialects.products.remainders import note_section
from dttui.spec.dialects.products.trainjob import count_of
from dttui.spec.dialects.translation import Leaf, Translated, Translation, in_order, make_note
from dttui.spec.problems import DocumentError, PathKey
from dttui.spec.yaml_source import YamlSource

_SPECS: PathKey = ("spec", "mpiReplicaSpecs")
_SLOTS: PathKey = ("spec", "slotsPerWorker")
_WORKER: PathKey = (*_SPECS, "Worker")
_LAUNCHER: PathKey = (*_SPECS, "Launcher")


def translate(source: YamlSource, outside: Outside) -> Translated:
    """Carry an MPIJob over. Raises DocumentError with every problem of it."""
    translation = Translation(source)
    for section in (_LAUNCHER, _WORKER):
        if not isinstance(source.value(section), Mapping):
            message = _("{kind}: it has no {role}").format(kind="MPIJob", role=str(section[-1]))
            raise DocumentError([source.problem(_SPECS, source.key_mark(_SPECS), message)])
    nodes = count_of(source, (*_WORKER, "replicas"), 1) or 1
    note_object(translation, ("mpiReplicaSpecs", "slotsPerWorker"))
    launcher = find_container(translation, (*_LAUNCHER, "template"), ("mpi-launcher", "launcher"), "MPIJob", outside)
    worker = find_container(translation, (*_WORKER, "template"), ("mpi-worker", "worker"), "MPIJob", outside)
    words = launcher.words()
    values = launcher.carry_variables()
    wish = worker.gpus()
    slots = number(source.value(_SLOTS))
    _use_rest(translation, launcher, worker)
    if nodes > 1:
        origin = (*_WORKER, "replicas")
        translation.expect_nodes(origin if source.has(origin) else _WORKER, nodes)
    job = job_of(launcher, words, values, replace(wish, count=None), outside)
    check_program(job, "MPIJob", "mpirun")
    job = _of_horovod(job, launcher, words)
    return _shared_out(job, nodes, slots, wish.count)


def _use_rest(translation: Translation, launcher: Pod, worker: Pod) -> None:
    launcher.note_rest()
    note_template(translation, (*_LAUNCHER, "template"))
    translation.use(_SLOTS, (*launcher.path, "resources"))
    for section in (_LAUNCHER, _WORKER):
        for key in translation.said(section) or ():
            if key not in ("template", "replicas"):
                note_section(translation, (*section, key), _("not carried over: Kubernetes' own"))
        translation.use((*section, "replicas"))
    translation.use((*_WORKER, "template"))
    worker.carry_variables()


def _of_horovod(job: Translated, launcher: Pod, words: Words) -> Translated:
    """Return a job of the framework horovod where its image or command names that: MPI is how its ranks are started."""
    target: PathKey = ("framework",)
    own = job.leaves.get(target)
    told = [str(launcher.said("image")), *(word for word, _place in words)]
    if own is None or not own.is_implied or not any("horovod" in text.casefold() for text in told):
        return job
    return replace(job, leaves={**job.leaves, target: replace(own, data="horovod")})


def _shared_out(job: Translated, nodes: int, slots: int | None, gpus: int | None) -> Translated:
    """Return a job whose processes are shared out among the workers, as their slots say."""
    own = job.leaves.get(COUNT)
    count = first_count(job)
    if own is not None and own.is_implied:
        count = None
    listed = any(target[:2] == ("cluster", "nodes") for target in job.leaves)
    if listed:
        return job
    leaves, notes = dict(job.leaves), list(job.notes)
    each = slots or gpus or 1
    if count is not None and count % nodes == 0:
        each = count // nodes
    elif count is not None:
        message = _("{processes} processes cannot be shared out evenly among {machines} machines")
        message = message.format(processes=count, machines=nodes)
        notes.append(make_note(job.source, own.origin if own else _SLOTS, message, is_warning=True))
    if not gpus:
        message = _("no GPUs are asked for; processes of a node, on its CPUs: {count}")
        notes.append(make_note(job.source, _WORKER, message.format(count=each), is_warning=each > 1))
    leaves[COUNT] = Leaf(
        each if gpus or each > 1 else 0, own.origin if own is not None and count is not None else _SLOTS
    )
    return replace(job, leaves=leaves, notes=in_order(notes))
