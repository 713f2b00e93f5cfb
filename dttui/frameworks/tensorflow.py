"""TensorFlow: one process a node, which drives all of its GPUs and finds the others by TF_CONFIG."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dttui.frameworks.base import Framework, JobLayout, NodeLayout, NoOptions, Rank
from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess, port_hole
from dttui.frameworks.option_costs import Uncounted
from dttui.frameworks.parts.config_file import config_file
from dttui.frameworks.parts.environment import process_environment, rank_environment, variable_files
from dttui.frameworks.parts.run_checks import check_cold_run, check_places
from dttui.frameworks.parts.torchrun import RANK, program
from dttui.frameworks.traits import WHOLE_MODEL, GroupForming, ProcessGroup, ScriptImports, SettingReach, Spread
from dttui.i18n import N_, _, ngettext
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.models import Job
from dttui.spec.section import Section

VARIABLE = "TF_CONFIG"
"""What TensorFlow finds its cluster and its own task in."""
CONFIG_FILE = "tf_config.json"
"""The same, for a person to read; TensorFlow itself reads the variable."""
SERVER = "parameter_server"
"""The role of a node that keeps parameters; where there is one, the strategy is ParameterServerStrategy."""
CHIEF, WORKER, PS = "chief", "worker", "ps"
"""Types of tasks, as TensorFlow names them."""


class TensorFlow(Framework):
    """Starts one process a node: MultiWorkerMirroredStrategy, or ParameterServerStrategy where there are servers."""

    name = "tensorflow"
    label = "TensorFlow"
    requires: Sequence[str] = ("tensorflow",)
    options: type[Section] = NoOptions
    rank = Rank.NODE
    needs_ports = True
    verdicts: Sequence[str] = ("tensorflow",)
    timeout_call = "CommunicationOptions(timeout_seconds=…)"
    process_group = ProcessGroup(GroupForming.UNSEEN, call="tf.distribute")
    uses_torch = False
    plain_protocol = "gRPC"
    has_parameter_servers = True
    when_split = WHOLE_MODEL
    spreads: Mapping[Spread, int] = {Spread.REPLICAS: 4}
    option_costs: Mapping[str, str | Uncounted] = {}
    collective_reach: Mapping[str, SettingReach] = {
        "buffer_size": SettingReach("CommunicationOptions(bytes_per_pack=…)"),
        "compression": SettingReach(reason=N_("TensorFlow sends gradients in the type that they have")),
        "overlap": SettingReach(reason=N_("TensorFlow chooses when to send gradients itself")),
        "overlap.false": SettingReach(reason=N_("TensorFlow chooses when to send gradients itself")),
    }
    available = True

    @property
    def script_imports(self) -> ScriptImports:
        """What a script written for it imports."""
        return ScriptImports(
            ("tensorflow", "keras", "tf_keras"),
            _("TF_CONFIG is set, and nothing reads it"),
        )

    @property
    def summary(self) -> str:
        """Its kind of parallelism."""
        return _("own strategies")

    @property
    def description(self) -> str:
        """What it is for."""
        return _("TensorFlow's own distribution strategies, from TF_CONFIG.")

    @property
    def features(self) -> Sequence[str]:
        """What it offers."""
        return (_("mirrored workers"), _("parameter servers"), _("one process a node, for all of its GPUs"))

    def check(self, job: Job) -> list[Finding]:
        """Return what in `run` does not go with it."""
        return [*check_cold_run(job, self.label), *check_places(job, [VARIABLE])]

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return what TensorFlow's strategies do not take: too few workers, or workers with unequal numbers of GPUs."""
        return [*_check_servers(layout), *_check_replicas(layout)]

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return the script's settings, and who takes part."""
        _given, files = variable_files(layout, _variables(layout, node))
        return layout.shared_file(config_file), _tf_config(layout, node), *files

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return the one process of a node; beside a chief, the others serve for as long as it wants them."""
        (rank,) = node.ranks
        tasks = layout.shared(_tasks)
        kind, first = tasks[node.node_rank][0], tasks[0][0]
        own = {
            **rank_environment(layout, node, 0, rank),
            **variable_files(layout, _variables(layout, node))[0],
        }
        if kind != WORKER:
            own["CUDA_VISIBLE_DEVICES"] = ""  # It would take the memory of all GPUs, and compute on none.
        return (
            PlannedProcess(
                name=str(rank),
                argv=(*layout.run.prefix, str(Hole.PYTHON), RANK, *program(layout.run)),
                env=process_environment(layout, node, own),
                cwd=layout.cwd,
                rank=rank,
                is_service=first == CHIEF and kind != CHIEF,
            ),
        )


def _check_servers(layout: JobLayout) -> Iterator[Finding]:
    kinds = _kinds(layout)
    if CHIEF not in kinds:
        return
    master = layout.nodes[0]
    if master.role == SERVER:
        message = _("{node} cannot be both the master and a parameter server").format(node=master.name)
        hint = _("Make another node the master, which hands out the work: role: master.")
        yield error("parameter-server", "cluster.nodes", message, hint)
    if WORKER not in kinds:
        message = _("parameter servers need at least one worker besides the master, which only hands out the work")
        yield error("parameter-server", "cluster.nodes", message, _("Add a node with role: worker."))
    idle = [node.name for node, kind in zip(layout.nodes, kinds, strict=True) if node.cuda_slots and kind != WORKER]
    if idle:
        message = _("the GPUs of {nodes} stay idle: beside parameter servers, workers alone compute")
        hint = _("Write resources.gpu.count: 0 there, or choose environments without GPUs.")
        yield warning("idle-gpus", "cluster.nodes", message.format(nodes=", ".join(idle)), hint)


def _check_replicas(layout: JobLayout) -> Iterator[Finding]:
    """Say what becomes of the slots: a replica is a GPU, or a worker that has none."""
    workers = [node for node, kind in zip(layout.nodes, _kinds(layout), strict=True) if kind == WORKER]
    counts = [node.slots for node in workers]
    if len(set(counts)) > 1:
        message = _("TensorFlow needs the same number of GPUs on every worker, and they are unequal: {counts}")
        hint = _("Use {count} on each: resources.gpu.count.").format(count=min(counts))
        yield error("unequal-slots", "cluster.nodes", message.format(counts=" + ".join(map(str, counts))), hint)
    elif max(counts, default=1) > 1 and not any(node.cuda_slots for node in workers):
        message = ngettext(
            "on the CPU a worker is one replica, not {slots}: {count} replica in all",
            "on the CPU a worker is one replica, not {slots}: {count} replicas in all",
            len(workers),
        ).format(slots=counts[0], count=len(workers))
        yield info("one-replica-a-node", "cluster.nodes", message)


def _kinds(layout: JobLayout) -> tuple[str, ...]:
    """Return the type of each node's task. Without a chief TensorFlow takes worker 0 for one, which is the master."""
    if all(node.role != SERVER for node in layout.nodes):
        return (WORKER,) * len(layout.nodes)
    return (CHIEF, *(PS if node.role == SERVER else WORKER for node in layout.nodes[1:]))


def _tasks(layout: JobLayout) -> tuple[tuple[str, int], ...]:
    """Return the task of each node: its type, and its number among those of that type."""
    counts: Counter[str] = Counter()
    tasks = []
    for kind in _kinds(layout):
        tasks.append((kind, counts[kind]))
        counts[kind] += 1
    return tuple(tasks)


def _addresses(layout: JobLayout) -> tuple[str, ...]:
    """Return where the nodes reach each other; the only one of a job, itself."""
    return (layout.master_address, *(node.address for node in layout.nodes[1:]))


def _variables(layout: JobLayout, node: NodeLayout) -> dict[str, PlannedFile]:
    """Return what TensorFlow and gRPC read: who takes part, and whom no proxy of http_proxy is asked for."""
    proxies = PlannedFile(path="", shared=layout.shared(_without_proxy))
    return {VARIABLE: _tf_config(layout, node), "no_grpc_proxy": proxies}


def _tf_config(layout: JobLayout, node: NodeLayout) -> PlannedFile:
    kind, index = layout.shared(_tasks)[node.node_rank]
    task = {"type": kind, "index": index}
    own = f'{{\n  "task": {json.dumps(task)},\n'
    return PlannedFile(path=CONFIG_FILE, text=own, shared=layout.shared(_cluster))


def _cluster(layout: JobLayout) -> str:
    """Return what follows the task: the addresses of all tasks, by their type."""
    cluster: dict[str, list[str]] = {}
    for node_rank, (kind, address) in enumerate(zip(_kinds(layout), _addresses(layout), strict=True)):
        host = f"[{address}]" if ":" in address else address
        cluster.setdefault(kind, []).append(f"{host}:${{{port_hole(node_rank)}}}")
    return f'  "cluster": {json.dumps(cluster)}\n}}\n'


def _without_proxy(layout: JobLayout) -> str:
    return ",".join(_addresses(layout))
