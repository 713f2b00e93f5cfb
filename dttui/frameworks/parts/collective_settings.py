"""What a job says of its collectives, and whether anything comes of it: each key has an effect, or a finding. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dttui.frameworks.base import Framework, JobLayout
from dttui.frameworks.parts.nccl import told_algorithms
from dttui.frameworks.traits import BY_THE_SCRIPT, TORCH_INIT
from dttui.i18n import _
from dttui.spec.findings import Finding, info

OF_THE_OPERATORS = {
    "allreduce": ("ring", "tree", "butterfly"),
    "broadcast": ("tree", "linear"),
    "gather": ("tree", "linear"),
    "allgather": ("ring",),
    "reduce_scatter": ("ring",),
}
"""Algorithms that `dttui_collectives` has, by what the job calls their collective."""
_LIBRARIES = {"nccl": "NCCL", "grpc": "gRPC", "mpi": "MPI"}


def check_collective_settings(layout: JobLayout, framework: Framework) -> list[Finding]:
    """Say what a script has to pass on, and of what nothing comes, and why."""
    return [
        *_check_gradients(layout, framework),
        *_check_algorithms(layout, framework),
        *_check_measuring(layout, framework),
    ]


def in_vain(key: str, reason: str) -> Finding:
    """Return that nothing comes of a key of `communication`, and why."""
    return info("collective-setting", f"communication.{key}", reason)


def _check_gradients(layout: JobLayout, framework: Framework) -> Iterator[Finding]:
    talk = layout.job.communication
    size = talk.all_reduce.buffer_size if talk.all_reduce is not None else None
    said = (
        (f"{talk.all_reduce_place}.buffer_size", "bucket_bytes", size, ("buffer_size",)),
        ("compression", "compression", talk.compression, (f"compression.{talk.compression}", "compression")),
        ("overlap", "overlap", talk.overlap, ("overlap" if talk.overlap else "overlap.false", "overlap")),
    )
    for key, name, value, kinds in said:
        if value is None or value == "none":
            continue
        if name == "bucket_bytes" and any(node.role == "parameter_server" for node in layout.nodes):
            yield in_vain(key, _("parameter servers get each gradient by itself"))
            continue
        reach = next((framework.collective_reach[kind] for kind in kinds if kind in framework.collective_reach), None)
        if reach is None and not framework.uses_torch:
            yield in_vain(key, _for_the_script(framework))
        elif reach is not None and reach.reason:
            yield in_vain(key, _(reach.reason))
        elif reach is None or reach.call:
            yield _passed_on(key, name, value, reach.call if reach is not None else BY_THE_SCRIPT.call)


def _for_the_script(framework: Framework) -> str:
    message = _(
        "{framework} reduces as it does; the script finds this in the file of DTTUI_CONFIG, for its own collectives"
    )
    return message.format(framework=framework.label)


def _passed_on(key: str, name: str, value: object, call: str) -> Finding:
    message = _(
        "the file of DTTUI_CONFIG says {value}, as distributed.{name}, and the script has to pass that on, as {call}"
    )
    told = message.format(value=json.dumps(value), name=name, call=call)
    return info("collective-setting", f"communication.{key}", told)


def _check_algorithms(layout: JobLayout, framework: Framework) -> Iterator[Finding]:
    told = told_algorithms(layout)
    library = _LIBRARIES.get(layout.backend, layout.backend)
    for place, algorithm in layout.job.communication.algorithms().items():
        collective = place.rpartition(".")[2]
        if collective in told or (layout.backend == "nccl" and collective == "allreduce"):
            continue  # Of NCCL's all-reduce it is said elsewhere.
        if framework.process_group.call != TORCH_INIT:
            message = _("{library} chooses its algorithms itself, and nothing else of this job names one")
        elif algorithm in OF_THE_OPERATORS[collective]:
            message = _(
                "{library} chooses its algorithms itself; the operators of dttui_collectives go by {algorithm}, where "
                "the script uses them"
            )
        else:
            message = _("{library} chooses its algorithms itself, and dttui_collectives has none by {algorithm}")
        yield in_vain(f"{place}.algorithm", message.format(library=library, algorithm=algorithm))


def _check_measuring(layout: JobLayout, framework: Framework) -> Iterator[Finding]:
    if layout.job.communication.measure is False:
        yield in_vain("measure", _("that is so without it"))
    elif layout.job.communication.measure and not framework.process_group.is_torchs:
        message = _("{framework} does not talk by torch, whose collectives alone are measured")
        yield in_vain("measure", message.format(framework=framework.label))
