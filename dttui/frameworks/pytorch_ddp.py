"""PyTorch DDP: one torchrun a node, on static rendezvous, so that the chosen master is rank 0."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from dttui.frameworks.base import JobLayout, NodeLayout
from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess
from dttui.frameworks.config_file import config_file
from dttui.frameworks.environment import process_environment
from dttui.i18n import _
from dttui.spec.findings import Finding, error, info
from dttui.spec.models import Job

WARM_MINUTES = 30
"""How long the agent keeps a process for warm starts that no job asks for, `dtagent.warming.IDLE_S`."""
CONFIG_FILE = "pytorch_ddp_config.yaml"
"""Who takes part, for a person or script to read; torchrun itself gets all by its arguments."""


class PytorchDdp:
    """Launches `torchrun` on every node."""

    name = "pytorch-ddp"
    label = "PyTorch DDP"
    requires: Sequence[str] = ("torch",)
    available = True

    @property
    def summary(self) -> str:
        """Its kind of parallelism."""
        return _("data parallel")

    @property
    def description(self) -> str:
        """What it is for."""
        return _("Small and medium models: each rank holds the whole model and gradients are averaged.")

    @property
    def features(self) -> Sequence[str]:
        """What it offers."""
        return (
            _("easy to use"),
            _("one process a GPU"),
            _("gradients synchronised automatically"),
            _("many hosts, many GPUs"),
        )

    def check(self, job: Job) -> list[Finding]:
        """Return what in the job does not go with torchrun."""
        if job.run is not None and job.run.command is not None:
            message = _("{framework} starts a script or a module, not a command").format(framework=self.label)
            hint = _("Give run.script or run.module, or choose the framework command.")
            return [error("run-mismatch", "run.command", message, hint)]
        if job.run is None or not job.run.warm_start:
            return []
        if job.run.prefix:
            message = _(
                "run.warm_start cannot be had together with run.prefix: what is forked runs under no other program"
            )
            return [error("warm-start-prefix", "run.warm_start", message, _("Leave one of them out."))]
        message = _(
            "torchrun and the ranks are forked on each host from a process that keeps torch imported; it stays "
            "{minutes} minutes after the last launch and holds about 220 MB"
        ).format(minutes=WARM_MINUTES)
        return [info("warm-start", "run.warm_start", message)]

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return the script's settings, and who takes part."""
        return layout.shared_file(config_file), PlannedFile(path=CONFIG_FILE, text=_participants(layout, node))

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return the one torchrun of a node."""
        run = layout.run
        target = (run.script,) if run.script is not None else ("-m", run.module or "")
        argv = (
            *run.prefix,
            str(Hole.PYTHON),
            f"{Hole.PAYLOAD}/torchrun.py",
            f"--nnodes={len(layout.nodes)}",
            f"--nproc-per-node={node.slots}",
            f"--node-rank={node.node_rank}",
            f"--master-addr={layout.master_address}",
            f"--master-port={Hole.MASTER_PORT}",
            "--max-restarts=0",
            f"--rdzv-conf=timeout={math.ceil(2 * layout.job.communication.rendezvous_timeout_s)}",
            "--",
            f"{Hole.PAYLOAD}/rank.py",
            *target,
            *run.args,
        )
        environment = process_environment(layout, node)
        return (PlannedProcess(name="launcher", argv=argv, env=environment, cwd=layout.cwd, warm_start=run.warm_start),)


def _participants(layout: JobLayout, node: NodeLayout) -> str:
    """Return the configuration of the seed's DDP chapter; its world size here counts processes, and nodes are apart."""
    host = f"[{layout.master_address}]" if ":" in layout.master_address else layout.master_address
    lines = [
        "distributed:",
        f"  backend: {layout.backend}",
        f"  init_method: {_quoted(f'tcp://{host}:{Hole.MASTER_PORT}')}",
        f"  world_size: {layout.world_size}",
        f"  node_count: {len(layout.nodes)}",
        f"  node_rank: {node.node_rank}",
        "nodes:",
    ]
    return "\n".join([*lines, *layout.table(_entry)]) + "\n"


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
