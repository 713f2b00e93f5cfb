"""Which environments stand for the nodes that a job names, once some were replaced or are done without. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from dttui.inventory.models import Inventory
from dttui.planning.models import Plan
from dttui.spec.models import GpuRequest, Job, Node, NodeResources, Recovery, RecoveryAction


class Seat(BaseModel):
    """Who takes a node's place."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    environment: str
    """Its name."""
    gpu_count: int | None = None
    """How many GPUs the node used, so that all ranks are there again; `None` where it has none."""


class Lineup(BaseModel):
    """What is otherwise than the job's file says; by default nothing."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    seats: Mapping[str, Seat | None] = Field(default_factory=dict)
    """Environment that the job's file names → who stands for it; `None` where the job goes on without."""

    def changed(self, changes: Mapping[str, str | None], plan: Plan) -> Lineup:
        """Return who takes part after some have left.

        Args:
            changes: environment that took part → who takes its place, `None` where nobody does.
            plan: in which they took part.
        """
        seats = dict(self.seats)
        stood_for = {seat.environment: name for name, seat in seats.items() if seat is not None}
        for node in plan.nodes:
            if node.name in changes:
                count = node.slots if node.simulated or node.cuda_slots else None
                replacement = changes[node.name]
                seat = Seat(environment=replacement, gpu_count=count) if replacement is not None else None
                seats[stood_for.get(node.name, node.name)] = seat
        return Lineup(seats=seats)

    @classmethod
    def chosen(cls, choice: Mapping[str, str], plan: Plan) -> Lineup:
        """Return who takes part where others do as well as the nodes that a plan names.

        Args:
            choice: node of the plan → environment that stands for it.
            plan: as the job's file has it.
        """
        return cls().changed(choice, plan)

    def apply(self, job: Job, inventory: Inventory) -> Job:
        """Return the job with who takes part now; without a master the first node is it."""
        nodes = []
        for node in job.cluster.nodes:
            environment = inventory.find(node.id)
            name = environment.name if environment is not None else node.id
            if name not in self.seats:
                nodes.append(node)
            elif (seat := self.seats[name]) is not None:
                nodes.append(_seated(node, seat))
        cluster = job.cluster.model_copy(update={"nodes": tuple(nodes), "candidates": (), "topology": None})
        changed = {"cluster": cluster, "recovery": _settled(job.recovery, len(nodes))}
        return job.model_copy(update=changed) if self.seats else job


def _settled(recovery: Recovery, count: int) -> Recovery:
    """Return what is said of recovery without what a plan of so many nodes would refuse: a spare that takes part."""
    is_replacing = recovery.action is RecoveryAction.REPLACE
    least = min(recovery.min_nodes, count) if recovery.min_nodes is not None else None
    action = RecoveryAction.RESTART if is_replacing else recovery.action
    return recovery.model_copy(update={"spares": (), "min_nodes": least, "on_node_failure": action.value})


def _seated(node: Node, seat: Seat) -> Node:
    resources = node.resources or NodeResources()
    gpu = resources.gpu or GpuRequest()
    if seat.gpu_count is not None and (gpu.count is None or gpu.ids):
        # As many GPUs; which of another host's, is not for the job's file to know.
        gpu = gpu.model_copy(update={"count": seat.gpu_count, "ids": None})
        resources = resources.model_copy(update={"gpu": gpu})
        node = node.model_copy(update={"resources": resources})
    return node.model_copy(update={"id": seat.environment})
