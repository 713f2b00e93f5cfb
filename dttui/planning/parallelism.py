"""Degrees of parallelism: whether those a job gives agree with each other and with its world size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dttui.frameworks.registry import context_degree, traits_of
from dttui.i18n import _
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.models import Job, Strategy
from dttui.spec.problems import PathKey, format_path

_SPLITTING = ("model_parallel", "pipeline_parallel", "hybrid")
_DATA: PathKey = ("strategy", "data_parallel_size")


def check_degrees(job: Job, world_size: int) -> list[Finding]:
    """Return what is wrong with the degrees a job gives.

    Where the data parallel degree is given, data × tensor × pipeline is the world size, a missing one being 1; the
    context degree multiplies them, where the framework has one. Where it is not, it is whatever is left, and the
    others' product divides the world size.
    """
    strategy = job.strategy
    spellings = strategy.pipeline_spellings
    if len(set(spellings.values())) > 1:
        told = ", ".join(f"{format_path(key)}: {value}" for key, value in spellings.items())
        message = _("the pipeline degree is given in several places, and they disagree: {places}").format(places=told)
        first, *others = spellings.items()
        path = next(key for key, value in others if value != first[1])
        hint = _("Give it once, as pipeline_parallel_size.")
        return [error("degrees-disagree", "strategy", message, hint, path=("strategy", *path))]
    degrees = _degrees(job)
    if not degrees or not world_size:
        return []
    product = prod(degree.value for degree in degrees)
    told = " × ".join(f"{degree.name} {degree.value}" for degree in degrees)
    if strategy.data_parallel_size is not None and product != world_size:
        message = _("{degrees} makes {product} ranks, and the chosen nodes have {world_size}")
    elif strategy.data_parallel_size is None and world_size % product:
        message = _("{degrees} takes {product} ranks, which does not divide the {world_size} of the chosen nodes")
    else:
        return []
    message = message.format(degrees=told, product=product, world_size=world_size)
    hint = _("Change the degrees, or how many GPUs the nodes use.")
    culprit = _culprit(degrees, world_size)
    return [error("degrees", "strategy", message, hint, path=culprit.path)]


@dataclass(frozen=True)
class _Degree:
    """A degree that a job gives."""

    name: str
    value: int
    path: PathKey
    """Its key, from the job's top."""


def _degrees(job: Job) -> list[_Degree]:
    """Return the degrees that are given, the outermost first."""
    strategy = job.strategy
    context, option = context_degree(job), traits_of(job.framework).context_option or ""
    given: tuple[tuple[str, int | None, PathKey], ...] = (
        (_("data"), strategy.data_parallel_size, _DATA),
        (_("tensor"), strategy.tensor_parallel_size, ("strategy", "tensor_parallel_size")),
        (
            _("context"),
            context if context > 1 else None,
            ("framework_options", option),
        ),
        (_("pipeline"), pipeline_degree(strategy), strategy.pipeline_path),
    )
    return [_Degree(name, value, path) for name, value, path in given if value is not None]


def _culprit(degrees: Sequence[_Degree], world_size: int) -> _Degree:
    """Return the degree to look at first: the first that the ranks cannot be divided by, from the inside outwards.

    Tensor parallel ranks are innermost. Where all degrees divide, it is the data parallel one that is wrong.
    """
    product = 1
    for degree in (*degrees[1:], degrees[0]) if degrees[0].path == _DATA else degrees:
        product *= degree.value
        if world_size % product:
            return degree
    return degrees[0]


def check_splitting(job: Job) -> list[Finding]:
    """Say what is left to the script where the framework itself only starts the ranks.

    Of a framework that splits neither tensors nor stages itself it is a warning where the job does.
    """
    strategy = job.strategy
    degrees = (strategy.tensor_parallel_size, *strategy.pipeline_spellings.values())
    splits = any(degree is not None and degree > 1 for degree in degrees)
    traits = traits_of(job.framework)
    if splits and traits.when_split is not None:
        message = _(traits.when_split).format(framework=job.framework)
        hint = _("Run a script that splits the model itself, by what DTTUI_CONFIG says; or set the degrees to 1.")
        return [warning("split-by-script", "strategy", message, hint)]
    splits = splits or strategy.type in _SPLITTING or (strategy.zero_stage or 0) > 1
    if not (traits.only_starts and splits):
        return []
    message = _("{framework} starts the ranks; splitting the model is left to the script").format(
        framework=job.framework
    )
    return [
        info("split-by-script", "strategy", message, _("It finds the strategy in the file that DTTUI_CONFIG names."))
    ]


def pipeline_degree(strategy: Strategy) -> int | None:
    """Return the pipeline degree, from whichever of its places has it; `None` where none has."""
    return strategy.pipeline_degree
