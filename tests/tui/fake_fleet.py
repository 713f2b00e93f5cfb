"""An inventory with environments in every state, and what their agents would have said."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import cast

import dtagent
from dtagent.protocol.facts import GpuFacts, HostFacts, PythonFacts
from dtagent.protocol.telemetry import GpuHold, GpuSample, HostSample

from dttui.fleet.live import EnvironmentStatus
from dttui.fleet.states import EnvironmentState
from dttui.i18n import _
from dttui.inventory.models import (
    CpuResources,
    Dataset,
    DatasetVersion,
    Environment,
    GpuResources,
    Inventory,
    Resources,
)
from dttui.planning.planner import plan
from dttui.rpc.sample_rows import WholeSample
from dttui.spec.models import Cluster, Job, Node, Run
from dttui.transport.base import Connection, Prompter
from dttui.tui.app import DttuiApp, TuiOptions

__all__ = ["SilentTransport", "environment", "job", "make_app", "make_inventory", "plan", "set_states", "status"]

GB = 1000**3


class SilentTransport:
    """Hosts that never answer, so that a test decides what is known of them."""

    async def connect(self, environment: Environment, prompter: Prompter, timeout_s: float) -> Connection:
        """Wait for ever."""
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


def environment(
    name: str,
    gpus: int,
    zone: str = "北京可用区A",
    *,
    kind: str = "Jupyter",
    image: str = "pytorch",
    gpu: str = "A100",
    simulated: bool = False,
) -> Environment:
    """An environment with declared resources as the seed has them: 8 CPUs and 64 GB a GPU."""
    return Environment(
        name=name,
        host=f"{name.replace('_', '-')}.example.org" if name.isascii() else "gpu9.example.org",
        kind=kind,
        zone=zone,
        image=image,
        resources=Resources(
            gpu=GpuResources(count=gpus, type=gpu, memory=80 * GB, simulated=simulated),
            cpu=CpuResources(cores=max(gpus, 1) * 8, memory=max(gpus, 1) * 64 * GB),
        ),
    )


def make_inventory(*more: Environment, chinese: bool = False) -> Inventory:
    """The seed's three environments, and some that are busy, broken or of another kind."""
    zones = ("北京可用区A", "深圳可用区C", "上海可用区A") if chinese else ("beijing-a", "shenzhen-c", "shanghai-a")
    custom = "自定义" if chinese else "custom"
    return Inventory(
        environments=(
            environment("pytorch-dev-env", 2, zones[0]),
            environment("llm-training-env", 4, zones[1], kind=custom, image="transformers"),
            environment("nlp-research-lab", 8, zones[2], kind=custom, image="transformers"),
            environment("cv-experiment-env", 2, zones[0], gpu="V100"),
            environment("a100-17", 8, zones[1], kind=custom),
            environment("a100-18", 8, zones[1], kind=custom),
            environment("ci-runner", 0, zones[2], kind=custom, image="debian"),
            environment("视觉实验室" if chinese else "vision-lab", 4, zones[0], simulated=True),
            *more,
        ),
        datasets=(
            Dataset(
                id="imagenet",
                versions=(DatasetVersion(id="v1", path="/data/v1"), DatasetVersion(id="v2", path="/data/v2")),
            ),
        ),
    )


def job(*nodes: str, **fields: object) -> Job:
    """A job that lacks nothing."""
    parts: dict[str, object] = {
        "name": "gpt-small",
        "framework": "pytorch-ddp",
        "run": Run(script="/opt/train.py", args=("--steps", "200")),
        "dataset": "none",
        "cluster": Cluster(nodes=tuple(Node(id=name) for name in nodes)),
    }
    return Job(**{**parts, **fields})


def facts(environment: Environment, now: float, days_up: float) -> HostFacts:
    """What an agent on such a host would say."""
    gpu, cpu = environment.resources.gpu, environment.resources.cpu
    count = 0 if gpu is None or gpu.simulated else gpu.count
    return HostFacts(
        hostname=environment.name,
        user="li",
        os="Debian GNU/Linux 12",
        kernel="6.1.0",
        architecture="x86_64",
        boot_id="0",
        booted_at=now - days_up * 86400,
        cpu_model="AMD EPYC 7763",
        cpu_count=(cpu.cores if cpu else None) or 8,
        memory_total_mib=int(((cpu.memory if cpu else None) or 64 * GB) / 1024**2),
        gpus=[GpuFacts(i, f"NVIDIA {gpu.type}-SXM4-80GB" if gpu else "", None, 81920) for i in range(count)],
        driver_version="550.54.15" if count else None,
        cuda_version="12.4" if count else None,
        gpu_note=None if count else "no NVIDIA driver",
        pythons=[PythonFacts("python3", "/usr/bin/python3", "3.11.2", {"torch": "2.13.0"})],
    )


def sample(environment: Environment, load: int, seq: int = 1, holds: list[GpuHold] | None = None) -> HostSample:
    """One reading of such a host."""
    gpu = environment.resources.gpu
    count = 0 if gpu is None or gpu.simulated else gpu.count
    return HostSample(
        seq=seq,
        time=time.time(),
        cpu_percent=float(load),
        load1=load / 10,
        memory_used_mib=20_000,
        memory_total_mib=122_000,
        disk_free_mib=800_000,
        gpus=[GpuSample(i, load, load * 800, 81920, 40 + load // 3, 80.0 + load * 3) for i in range(count)],
        holds=holds,
    )


def status(environment: Environment, state: EnvironmentState, load: int = 0, **more: object) -> EnvironmentStatus:
    """An environment in a state."""
    now = time.time()
    reachable = state in (EnvironmentState.IDLE, EnvironmentState.BUSY, EnvironmentState.UNHEALTHY)
    days = 0.5 + (len(environment.name) * 7 % 11)
    known: dict[str, object] = {}
    holds = cast("list[GpuHold] | None", more.pop("holds", None))
    if reachable:
        known = {
            "facts": facts(environment, now, days),
            "reading": WholeSample(sample(environment, load, holds=holds)),
            "heard_at": now,
            "agent_version": dtagent.__version__,
            "protocol": 1,
        }
    return EnvironmentStatus(environment, state, **{"since": now - 190, **known, **more})  # type: ignore[arg-type]  # named fields


def set_states(app: DttuiApp) -> None:
    """Let the fleet be in many states at once."""
    idle, busy = EnvironmentState.IDLE, EnvironmentState.BUSY
    now = time.time()
    hold = GpuHold("li", "bert-large-7", [0, 1], since=now - 3 * 3600, until=now + 5 * 3600)
    states: list[tuple[EnvironmentState, int, dict[str, object]]] = [
        (idle, 3, {}),
        (idle, 0, {}),
        (idle, 1, {"agent_version": "0.0.9"}),
        (busy, 97, {"holds": [hold]}),
        (
            EnvironmentState.UNREACHABLE,
            0,
            {
                "heard_at": now - 190,
                "agent_version": dtagent.__version__,
                "reason": _("{host}: no answer within {seconds:g} s").format(host="a100-17", seconds=20),
                "hint": _("Check that the host is up, and that no firewall drops what goes to it."),
            },
        ),
        (
            EnvironmentState.NO_AGENT,
            0,
            {
                "reason": _("{host}: there is no agent on this host").format(host="a100-18"),
                "hint": _("Install it: dttui agents deploy {host}").format(host="a100-18"),
            },
        ),
        (idle, 12, {}),
        (idle, 34, {}),
    ]
    for (key, known), (state, load, more) in zip(list(app.fleet.statuses.items()), states, strict=False):
        app.fleet.statuses[key] = status(known.environment, state, load, **more)


def make_app(inventory: Inventory | None = None, **options: object) -> DttuiApp:
    """The app over hosts that never answer."""
    chosen: dict[str, object] = {
        "inventory": make_inventory() if inventory is None else inventory,
        "inventory_path": Path("~/.config/dttui/inventory.yaml").expanduser(),
        "transport": SilentTransport(),
        **options,
    }
    return DttuiApp(TuiOptions(**chosen))  # type: ignore[arg-type]  # named fields
