"""Any command, once a slot with the variables that torchrun would set, or once a node for what starts its own ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dttui.frameworks.base import Framework, JobLayout, NodeLayout, NoOptions, Rank
from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess
from dttui.frameworks.option_costs import Uncounted
from dttui.frameworks.parts.config_file import config_file
from dttui.frameworks.parts.environment import node_environment, process_environment, rank_environment
from dttui.frameworks.parts.nccl import torch_environment
from dttui.frameworks.parts.warm_checks import check_not_in_any_program
from dttui.frameworks.traits import GroupForming, ProcessGroup
from dttui.i18n import _
from dttui.spec.findings import Finding, error
from dttui.spec.models import Job
from dttui.spec.section import Section


class Command(Framework):
    """Starts `run.command` once a slot on every node, or once a node."""

    name = "command"
    requires: Sequence[str] = ()
    options: type[Section] = NoOptions
    rank = Rank.SLOT
    needs_ports = False
    process_group = ProcessGroup(GroupForming.UNSEEN)
    only_starts = True
    may_share_unequally = True
    option_costs: Mapping[str, str | Uncounted] = {}
    available = True

    @property
    def label(self) -> str:
        """What a select shows."""
        return _("Command")

    @property
    def summary(self) -> str:
        """Its kind of parallelism."""
        return _("once a GPU or a node")

    @property
    def description(self) -> str:
        """What it is for."""
        return _("Programs that find their place by themselves; or, once a node, launchers that start their own ranks.")

    @property
    def features(self) -> Sequence[str]:
        """What it offers."""
        return (_("no framework needed"), _("one process a GPU or a node"), _("the variables of torchrun"))

    def check(self, job: Job) -> list[Finding]:
        """Return what in the job does not go with a plain command."""
        if job.run is not None and job.run.command is None:
            given = "run.script" if job.run.script is not None else "run.module"
            message = _("the framework command starts run.command, and the job gives {given}").format(given=given)
            hint = _("Write run.command, such as [python3, train.py], or choose the framework pytorch-ddp.")
            return [error("run-mismatch", given, message, hint)]
        return check_not_in_any_program(job.run)

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return nothing: what the command makes of its nodes is its own affair."""
        return []

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return the script's settings."""
        return (layout.shared_file(config_file),)

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return one process a slot, named by its rank; or the one of the node, which starts those itself."""
        of_torch = torch_environment(layout, node)
        if layout.run.per == "node":
            return (_once_a_node(layout, node, of_torch),)
        return tuple(
            PlannedProcess(
                name=str(rank),
                argv=(*layout.run.prefix, *(layout.run.command or ())),
                env=process_environment(layout, node, {**of_torch, **rank_environment(layout, node, local_rank, rank)}),
                cwd=layout.cwd,
                rank=rank,
                # `dttui_collectives`, which the payload gives to the ranks that it starts.
                python_path=f"{Hole.PAYLOAD}/modules",
            )
            for local_rank, rank in enumerate(node.ranks)
        )


def _once_a_node(layout: JobLayout, node: NodeLayout, of_torch: Mapping[str, str]) -> PlannedProcess:
    env = process_environment(layout, node, {**of_torch, **node_environment(layout, node)})
    path = f"{Hole.PAYLOAD}/modules"  # Of what makes ranks of the Pythons that it starts, and of `dttui_collectives`.
    if layout.run.container is not None:  # Of an engine's own environment nothing comes inside but what is named.
        env["PYTHONPATH"] = ":".join(filter(None, (env.get("PYTHONPATH"), path)))
    return PlannedProcess(
        name="launcher",
        argv=(*layout.run.prefix, *(layout.run.command or ())),
        env=env,
        cwd=layout.cwd,
        starts_ranks=True,
        python_path=path if layout.run.container is None else "",
    )
