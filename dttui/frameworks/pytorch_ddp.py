"""PyTorch DDP: one torchrun a node, and a file that tells who takes part."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dttui.frameworks.base import Framework, JobLayout, NodeLayout, Rank
from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess
from dttui.frameworks.option_costs import ALL_PRESENT, Uncounted
from dttui.frameworks.parts.batches import check_shares
from dttui.frameworks.parts.config_file import config_file
from dttui.frameworks.parts.elastic import ElasticOptions, check_elastic, elastic_of
from dttui.frameworks.parts.torchrun import check_run, torchrun
from dttui.frameworks.traits import (
    BY_THE_SCRIPT,
    WHOLE_MODEL,
    GroupForming,
    ProcessGroup,
    SettingReach,
    SizeGuide,
    Spread,
)
from dttui.i18n import N_, _
from dttui.spec.findings import Finding
from dttui.spec.models import Job
from dttui.spec.section import Section

CONFIG_FILE = "pytorch_ddp_config.yaml"
"""Who takes part, for a person or script to read; torchrun itself gets all by its arguments."""


class PytorchDdp(Framework):
    """Launches `torchrun` on every node."""

    name = "pytorch-ddp"
    label = "PyTorch DDP"
    requires: Sequence[str] = ("torch",)
    options: type[Section] = ElasticOptions
    rank = Rank.SLOT
    needs_ports = False
    verdicts: Sequence[str] = ("torchrun",)
    process_group = ProcessGroup(GroupForming.EXPECTED)
    when_split = WHOLE_MODEL
    only_starts = True
    may_share_unequally = True
    spreads: Mapping[Spread, int] = {Spread.REPLICAS: 0}
    option_costs: Mapping[str, str | Uncounted] = {"elastic": ALL_PRESENT}
    collective_reach: Mapping[str, SettingReach] = {
        "buffer_size": BY_THE_SCRIPT,
        "compression": BY_THE_SCRIPT,
        "overlap": SettingReach(
            reason=N_("DistributedDataParallel reduces buckets while the backward pass goes on by itself")
        ),
        "overlap.false": BY_THE_SCRIPT,
    }
    template = "gpt"
    available = True

    def usual_layout(self, job: Job) -> Mapping[str, Any]:
        """Return that its programs are of torch's own operators, and that DDP copies gradients into buckets.

        That is its gradient_as_bucket_view=False (torch.nn.parallel.DistributedDataParallel).
        """
        return {"fused": False, "bucketed": True}

    @property
    def size_guide(self) -> SizeGuide:
        """For which sizes of models it is the usual one (seed 004's guide)."""
        return SizeGuide(1e9, _("below 1 B parameters a replica fits on each GPU"))

    @property
    def summary(self) -> str:
        """Its kind of parallelism."""
        return _("data parallel")

    @property
    def description(self) -> str:
        """What it is for."""
        return _("Below 1 B parameters: each rank holds the whole model, gradients are averaged.")

    @property
    def features(self) -> Sequence[str]:
        """What it offers."""
        return (
            _("easy to use"),
            _("one process a GPU"),
            _("automatic gradient sync"),
            _("many hosts, many GPUs"),
        )

    def check(self, job: Job) -> list[Finding]:
        """Return what in the job does not go with torchrun."""
        return check_run(job, self.label)

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return what there is to an elastic job, and whether a batch makes equal shares."""
        return [*check_elastic(layout), *check_shares(layout.job.strategy, layout.world_size)]

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return the script's settings, and who takes part."""
        return layout.shared_file(config_file), _participants(layout, node)

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return the one torchrun of a node."""
        return (torchrun(layout, node),)


def _participants(layout: JobLayout, node: NodeLayout) -> PlannedFile:
    """Return the configuration of the seed's DDP chapter: ranks are of nodes, and the world size counts processes."""
    host = f"[{layout.master_address}]" if ":" in layout.master_address else layout.master_address
    elastic = elastic_of(layout)
    # Where torchrun numbers by itself, only the environment of a rank says who it is, and where ranks meet.
    method = f"tcp://{host}:{Hole.MASTER_PORT}" if elastic is None else "env://"
    lines = [
        "distributed:",
        f"  backend: {layout.backend}",
        f"  init_method: {_quoted(method)}",
        f"  world_size: {layout.world_size}",
        *([f"  rank: {node.node_rank}"] if elastic is None else []),
        f"  node_count: {len(layout.nodes)}",
        f"  node_rank: {node.node_rank}" if elastic is None else f"  min_nodes: {elastic.min_nodes}",
        "nodes:",
    ]
    return PlannedFile(path=CONFIG_FILE, text="\n".join(lines) + "\n", shared=layout.shared(_entries))


def _entries(layout: JobLayout) -> str:
    return "".join(f"{_entry(node)}\n" for node in layout.nodes)


def _entry(node: NodeLayout) -> str:
    gpus = range(node.slots) if node.cuda_slots or node.simulated else ()
    lines = [
        f"  - name: {_quoted(node.name)}",
        f"    rank: {node.node_rank}",
        f"    ip: {_quoted(node.address)}",
        f"    gpus: [{', '.join(str(index) for index in gpus)}]",
    ]
    return "\n".join([*lines, "    simulated: true"] if node.simulated else lines)


def _quoted(text: str) -> str:
    """Return a YAML scalar; every JSON string is one."""
    return json.dumps(text, ensure_ascii=False)
