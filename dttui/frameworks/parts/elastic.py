"""Jobs that torchrun itself keeps going where nodes are lost: what a job may ask of that, and what there is to say."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dttui.frameworks.base import JobLayout
from dttui.i18n import _
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.models import RecoveryAction
from dttui.spec.section import Section

_KEY = "framework_options.elastic"
MOST_CLOCK_SKEW_S = 10.0
"""By how much clocks of hosts may differ: c10d takes a node for dead whose last word is 15 s old, and one comes every
5 s, by the clock of the node that sends it."""


class Elastic(Section):
    """How few nodes are enough (torchrun's rendezvous by c10d)."""

    min_nodes: Annotated[int, Field(gt=0)]
    """Nodes with which the job goes on, the master's among them."""
    max_restarts: Annotated[int, Field(ge=1, le=1000)] = 3
    """How often torchrun may start a node's ranks again because some have failed; the loss of another node is such a
    failure too."""
    wait_s: Annotated[int, Field(ge=1, le=3600)] = 30
    """How long nodes that are enough wait for the others, each time that they come together."""


class ElasticOptions(Section):
    """Options of a framework that torchrun starts."""

    elastic: Elastic | None = None
    """Go on without nodes that are lost; by default a job ends with the first."""


def elastic_of(layout: JobLayout) -> Elastic | None:
    """Return what the job asks for, by itself or as `recovery` says; `None` where it needs all of its nodes."""
    if not isinstance(layout.options, ElasticOptions):
        return None
    recovery, count = layout.job.recovery, len(layout.nodes)
    if layout.options.elastic is not None or recovery.action is not RecoveryAction.CONTINUE or count == 1:
        return layout.options.elastic
    # In torchrun's count a node that is lost is a restart, too.
    return Elastic(min_nodes=min(recovery.min_nodes or 1, count), max_restarts=min(max(1, recovery.max_restarts), 1000))


def check_elastic(layout: JobLayout) -> list[Finding]:
    """Return what does not go with an elastic job, and what is different with one."""
    elastic = elastic_of(layout)
    if elastic is None:
        return []
    count = len(layout.nodes)
    if elastic.min_nodes > count:
        message = _("min_nodes is {least}, and the job has {count}").format(least=elastic.min_nodes, count=count)
        path = ("framework_options", "elastic", "min_nodes")
        hint = _("Write at most the number of nodes.")
        return [error("framework-option", f"{_KEY}.min_nodes", message, hint, path=path)]
    if layout.run.warm_start:
        message = _("an elastic job cannot have run.warm_start: its ranks are started anew, and others than at first")
        return [error("framework-option", _KEY, message, _("Leave one of them out."), path=("run", "warm_start"))]
    message = _(
        "torchrun numbers nodes and ranks by itself: rank 0 may run on another node than the master. The rendezvous is "
        "on the master, and an attempt ends with it; ranks meet on any free port of the node of rank 0"
    )
    found = [info("elastic", _KEY, message)]
    checkpoint = layout.job.recovery.checkpoint
    if count > 1 and (checkpoint is None or not checkpoint.shared):
        message = _(
            "after the loss of a node rank 0 may run on another host, which does not see the checkpoints of the first"
        )
        hint = _("Write recovery.checkpoint.dir, a directory that all hosts see, and shared: true beside it.")
        found.append(warning("elastic-checkpoint", "recovery.checkpoint", message, hint))
    return found
