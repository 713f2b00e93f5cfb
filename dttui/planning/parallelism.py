"""Degrees of parallelism: whether those a job gives agree with each other and with its world size."""

from __future__ import annotations

from math import prod

from dttui.i18n import _
from dttui.spec.findings import Finding, error, info
from dttui.spec.models import Job, Strategy

_SPLITTING = ("model_parallel", "pipeline_parallel", "hybrid")


def check_degrees(job: Job, world_size: int) -> list[Finding]:
    """Return what is wrong with the degrees a job gives.

    Where the data parallel degree is given, data × tensor × pipeline is the world size, a missing one being 1.
    Where it is not, it is whatever is left, and tensor × pipeline divides the world size.
    """
    strategy = job.strategy
    spellings = _pipeline_spellings(strategy)
    if len(set(spellings.values())) > 1:
        told = ", ".join(f"{key}: {value}" for key, value in spellings.items())
        message = _("the pipeline degree is given in several places, and they disagree: {places}").format(places=told)
        return [error("degrees-disagree", "strategy", message, _("Give it once, as pipeline_parallel_size."))]
    pipeline = pipeline_degree(strategy)
    given = {
        _("data"): strategy.data_parallel_size,
        _("tensor"): strategy.tensor_parallel_size,
        _("pipeline"): pipeline,
    }
    degrees = {name: value for name, value in given.items() if value is not None}
    if not degrees or not world_size:
        return []
    product = prod(degrees.values())
    told = " × ".join(f"{name} {value}" for name, value in degrees.items())
    if strategy.data_parallel_size is not None and product != world_size:
        message = _("{degrees} makes {product} ranks, and the chosen nodes have {world_size}")
    elif strategy.data_parallel_size is None and world_size % product:
        message = _("{degrees} takes {product} ranks, which does not divide the {world_size} of the chosen nodes")
    else:
        return []
    message = message.format(degrees=told, product=product, world_size=world_size)
    return [error("degrees", "strategy", message, _("Change the degrees, or how many GPUs the nodes use."))]


def check_splitting(job: Job) -> list[Finding]:
    """Say what is left to the script where the framework itself only starts the ranks."""
    strategy = job.strategy
    degrees = (strategy.tensor_parallel_size, *_pipeline_spellings(strategy).values(), strategy.zero_stage)
    splits = strategy.type in _SPLITTING or any(degree is not None and degree > 1 for degree in degrees)
    if job.framework not in ("pytorch-ddp", "command") or not splits:
        return []
    message = _("{framework} starts the ranks; splitting the model is left to the script").format(
        framework=job.framework
    )
    return [
        info("split-by-script", "strategy", message, _("It finds the strategy in the file that DTTUI_CONFIG names."))
    ]


def pipeline_degree(strategy: Strategy) -> int | None:
    """Return the pipeline degree, from whichever of its places has it; `None` where none has."""
    return next(iter(_pipeline_spellings(strategy).values()), None)


def _pipeline_spellings(strategy: Strategy) -> dict[str, int]:
    model, pipeline = strategy.model_parallel, strategy.pipeline_parallel
    spellings = {
        "pipeline_parallel_size": strategy.pipeline_parallel_size,
        "model_parallel.pipeline_stages": model.pipeline_stages if model else None,
        "pipeline_parallel.pipeline_stages": pipeline.pipeline_stages if pipeline else None,
    }
    return {key: value for key, value in spellings.items() if value is not None}
