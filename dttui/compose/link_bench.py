"""`dttui bench` as a job: made for environments or as another job's; and a collective drawn round by round."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dttui.errors import UsageError
from dttui.fleet.known_hardware import links_of
from dttui.i18n import _
from dttui.inventory.models import Environment, Inventory
from dttui.launch.same_job import find_on_hosts
from dttui.planning.cost.hardware import Interconnect
from dttui.planning.cost.links import describe_link, slowest_link
from dttui.planning.cost.round_by_round import USUAL_LINK, RoundByRound, explain
from dttui.planning.submission import Submission
from dttui.spec.cluster import Cluster, GpuRequest, Node, NodeResources
from dttui.spec.entry_points import DEFAULT_FRAMEWORK
from dttui.spec.models import Job, Run
from dttui.words import listed

PROGRAM = "dttui_collectives.measuring"
LIMIT_S = 240.0
"""After how long the ranks begin no size any more."""
MOST_NAMES = 3
"""Hosts that an error names; the others are counted."""
SIMULATED_RANKS = 2
"""A host of simulated GPUs: enough to measure inside of it."""


def bench_submission(
    inventory: Inventory, environments: Sequence[Environment], like: Submission | None, largest: int
) -> Submission:
    """Return the job that measures: on environments, or on the nodes of another job with its interpreter and variables.

    Raises:
        UsageError: there are fewer than two hosts.
    """
    job = like.job if like is not None else None
    nodes = tuple(_node(item) for item in environments)
    cluster = job.cluster if job is not None else Cluster(nodes=nodes)
    if len(cluster.nodes) < 2:
        raise UsageError(
            _("a bench measures what is between hosts, and needs two of them"), "dttui bench --envs gpu1,gpu2"
        )
    kept = {"python", "env", "secrets", "prefix", "container"}
    own = job.run.model_dump(include=kept, exclude_unset=True) if job is not None and job.run is not None else {}
    args = ("--max", str(largest), "--limit-s", str(LIMIT_S), *_zones(cluster, inventory))
    run = Run.model_validate({**own, "module": PROGRAM, "args": args})
    made = Job(name="bench", framework=DEFAULT_FRAMEWORK, run=run, dataset="none", cluster=cluster)
    return Submission(made, inventory, like.base if like is not None else Path())


def refuse_second_bench(submission: Submission) -> None:
    """Let a job that measures start only where none that this user has begun measures one of its hosts.

    Raises:
        UsageError: there is one; names it.
    """
    job = submission.job
    if job.run is None or job.run.module != PROGRAM:
        return
    hosts = [submission.inventory.find(node.id) for node in job.cluster.nodes]
    found = find_on_hosts(PROGRAM, {item.training_address for item in hosts if item is not None})
    if found is None:
        return
    directory, names = found
    message = _("{id} measures {hosts} right now, and what two measure at once is true of neither")
    hint = _("Measure once it is over: `dttui attach {id}` follows it, `dttui stop {id}` ends it.")
    raise UsageError(
        message.format(id=directory.job_id, hosts=listed(names, MOST_NAMES)), hint.format(id=directory.job_id)
    )


def _zones(cluster: Cluster, inventory: Inventory) -> tuple[str, ...]:
    """Return what tells the ranks which hosts are in one zone, by node rank: the master first; nothing for one zone."""
    known = {item.name: item.zone for item in inventory.environments}
    known |= {item.id: item.zone for item in inventory.environments if item.id is not None}
    nodes = sorted(cluster.nodes, key=lambda node: node is not cluster.master)
    zones = [known.get(node.id) or "" for node in nodes]
    numbers = {zone: str(number) for number, zone in enumerate(dict.fromkeys(zones))}
    return ("--zones", ",".join(numbers[zone] for zone in zones)) if len(numbers) > 1 else ()


def explain_collective(
    algorithm: str, ranks: int, size: int, environments: Sequence[Environment], now: float
) -> tuple[RoundByRound, str]:
    """Return who sends what to whom, priced for the slowest link between environments; and which link that is.

    Args:
        algorithm: its name.
        ranks: how many there are.
        size: bytes.
        environments: with none, or where none of their links is known, a usual link is taken, which has no name.
        now: seconds since the epoch.

    Raises:
        UsageError: there is no such algorithm, or it is not drawn for so many ranks.
    """
    known = slowest_link([(item.name, item.zone) for item in environments], links_of(environments))
    link = Interconnect(known.bandwidth, known.latency_s) if known is not None else USUAL_LINK
    explained = explain(algorithm, ranks, size, link)
    return explained, describe_link(known, now) if known is not None else ""


def _node(environment: Environment) -> Node:
    gpu = environment.resources.gpu
    if gpu is None or not gpu.simulated:
        return Node(id=environment.name)
    count = min(gpu.count or 1, SIMULATED_RANKS)
    return Node(id=environment.name, resources=NodeResources(gpu=GpuRequest(count=count)))
