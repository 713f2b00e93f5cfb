"""Jobs whose estimates are compared, key by key and option by option."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from dttui.planning.cost.estimate import Estimate
from dttui.planning.cost.hardware import gpu_table
from dttui.planning.costing import cost
from dttui.planning.roster import make_roster
from dttui.spec.models import Job
from tests.unit.seed_cluster import SEED, make_job

NODES = [{"id": "pytorch-dev-env"}, {"id": "llm-training-env"}, {"id": "nlp-research-lab"}]
DECODER = {"layers": 24, "hidden_size": 2048, "heads": 16}
EXPERTS = DECODER | {"experts": 8, "expert_size": 2048}


def job(**parts: Any) -> Job:
    made = make_job().model_dump(mode="json", exclude_unset=True)
    usual = {"model": {"parameters": 1.3e9}, "cluster": {"nodes": NODES}, "framework": "megatron-lm"}
    return Job.model_validate({**made, **usual, **parts})


def estimated(made: Job) -> Estimate:
    costing, findings = cost(made, make_roster(made, SEED, {}).members, gpu_table())
    assert costing is not None, findings
    return costing.estimate


def figures(made: Estimate) -> dict[str, Any]:
    """Return all that is estimated, without what it was made of."""
    return made.model_dump(exclude={"inputs", "assumes", "not_counted"})


def value_kinds(annotation: Any) -> Iterator[Any]:
    """Yield what a value may be: types, and each of the values where there are a few alone."""
    if get_origin(annotation) in (Union, UnionType, tuple, Literal):
        for item in get_args(annotation):
            yield from [item] if get_origin(annotation) is Literal else value_kinds(item)
    else:
        yield annotation
