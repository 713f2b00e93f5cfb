"""What `dttui render --target slurm` writes, real Slurm runs to its end on nodes of its own choice."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui.export.contents import Export
from dttui.export.slurm import render_slurm
from dttui.export.writing import write
from dttui.frameworks.bundle import port_hole
from dttui.inventory import Inventory
from dttui.spec.models import Run
from tests.integration.headless import dttui, example_job, shell_job
from tests.slurm.conftest import Slurm
from tests.unit.export.test_render_scripts import SIMULATED, ejected, with_ports
from tests.unit.seed_cluster import environment

UNEQUAL = Inventory(environments=(environment("a", 1), environment("b", 2)))
HERE = 'echo here >"$DTTUI_LOGS/here"; '
"""Shell by which a node tells that it has started. Slurm 22.05 may take a minute to end one that is just starting."""
THERE = 'until [ -e "$DTTUI_LOGS/../../node{}/logs/here" ]; do sleep 0.1; done; '
"""Shell that waits until another node has told so."""
NO_BINDING = "srun: cluster configuration lacks support for cpu binding\n"
"""What Slurm says here of --cpu-bind=none."""


def rendered(job: Path, **gpus: dict[str, Any]) -> Path:
    """Render a job for environments, name → GPUs, and return where it is."""
    environments = [
        {"name": name, "host": f"{name}.invalid", "python": sys.executable, "resources": {"gpu": gpu}}
        for name, gpu in gpus.items()
    ]
    inventory, out = job.parent / "inventory.yaml", job.parent / "out"
    inventory.write_text(yaml.safe_dump({"environments": environments}))
    done = dttui("render", job, "-o", out, "--target", "slurm", "--inventory", inventory)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.torch
def test_the_example_trains_on_two_nodes(slurm: Slurm, tmp_path: Path) -> None:
    job = example_job(tmp_path, {"a": 1, "b": 1}, "--steps", "30", "--log-every", "5")
    out = rendered(job, a={"count": 1, "simulated": True}, b={"count": 1, "simulated": True})
    state, said = slurm.submit(out)
    assert state == "COMPLETED", said
    assert "world size 2" in said
    losses = [float(loss) for loss in re.findall(r"^0: step \d+/30  loss ([\d.]+)", said, re.MULTILINE)]
    assert losses[-1] < losses[0] - 1
    steps = [json.loads(line)["step"] for line in (out / "node1" / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 30
    assert (out / "node0" / "checkpoints" / "step-00000030" / "COMPLETE").exists()


def test_unequal_nodes_are_one_heterogeneous_job_whose_ranks_see_their_own_gpus(slurm: Slurm, tmp_path: Path) -> None:
    where = "node $DTTUI_NODE_RANK on $SLURMD_NODENAME, GPUs $CUDA_VISIBLE_DEVICES, $MASTER_ADDR, $SLURM_JOB_PARTITION"
    tell = f'echo "rank $RANK of $WORLD_SIZE: {where}"'
    out = rendered(shell_job(tmp_path, {"a": 1, "b": 2}, tell), a={"count": 1}, b={"count": 2})
    state, said = slurm.submit(out, "--partition=second", "--time=7")
    assert state == "COMPLETED", said
    assert sorted(line for line in said.splitlines() if "rank" in line) == [
        "0: rank 0 of 3: node 0 on n1, GPUs 0, n1, second",
        "1: rank 1 of 3: node 1 on n2, GPUs 0,1, n1, second",
        "1: rank 2 of 3: node 1 on n2, GPUs 0,1, n1, second",
    ], "what is said before the script counts for all groups"


def test_a_node_that_fails_ends_the_others(slurm: Slurm, tmp_path: Path) -> None:
    line = f'[ "$RANK" = 0 ] && {{ {HERE}exec sleep 100; }}; {THERE.format(0)}exit 3'
    out = rendered(shell_job(tmp_path, {"a": 1, "b": 1}, line), a={"count": 1}, b={"count": 1})
    state, said = slurm.submit(out, deadline_s=60)
    assert state == "FAILED"
    assert "task 1: Exited with exit code 3" in said


def test_a_node_that_fails_while_the_others_are_starting_ends_them_too(slurm: Slurm, tmp_path: Path) -> None:
    out = rendered(
        shell_job(tmp_path, {"a": 1, "b": 1}, '[ "$RANK" = 1 ] && exit 3; sleep 1000'), a={"count": 1}, b={"count": 1}
    )
    state, said = slurm.submit(out, deadline_s=150)  # Slurm 22.05 itself takes up to 61 s then, once in some 50 times.
    assert state == "FAILED"
    assert "task 1: Exited with exit code 3" in said


def ejected_to(tmp_path: Path, made: Export) -> Path:
    """Write an ejection, and return where it is."""
    write(tmp_path / "out", render_slurm(made))
    return tmp_path / "out"


def serving(tmp_path: Path, inventory: Inventory, work: str, service: str) -> Path:
    """Render a job whose node 0 runs a line of shell, and node 1 another, that only serves the first."""
    made = ejected(tmp_path, "a", "b", inventory=inventory, framework="command", run=Run(command=("x",)))
    nodes = []
    for node, line in zip(made.plan.nodes, (work, service), strict=True):
        told = {"argv": ("bash", "-c", line), "is_service": node.node_rank == 1}
        processes = tuple(item.model_copy(update=told) for item in node.processes)
        nodes.append(node.model_copy(update={"processes": processes}))
    return ejected_to(tmp_path, replace(made, plan=made.plan.model_copy(update={"nodes": tuple(nodes)})))


@pytest.mark.parametrize("inventory", [SIMULATED, UNEQUAL], ids=["one group", "a group each"])
def test_nodes_that_only_serve_end_with_the_others(slurm: Slurm, tmp_path: Path, inventory: Inventory) -> None:
    out = serving(tmp_path, inventory, THERE.format(1) + "echo trained", HERE + "echo serving; exec sleep 1000")
    state, said = slurm.submit(out, deadline_s=60)
    assert state == "COMPLETED", said
    (apart,) = out.glob("*-serving.out")
    assert "0: serving\n" in apart.read_text()
    (own,) = (path for path in out.glob("gpt-small-*.out") if path != apart)
    assert own.read_text().replace(NO_BINDING, "") == "0: trained\n"


def test_a_node_that_should_serve_and_fails_fails_the_job(slurm: Slurm, tmp_path: Path) -> None:
    out = serving(tmp_path, SIMULATED, HERE + "exec sleep 1000", THERE.format(0) + "exit 5")
    state, said = slurm.submit(out, deadline_s=60)
    assert state == "FAILED"
    assert "job.sbatch: step serving ended with 5; what nodes that only serve said is in gpt-small-" in said


def test_the_processes_of_all_nodes_reach_the_service_of_each_at_its_own_port(slurm: Slurm, tmp_path: Path) -> None:
    made = with_ports(ejected(tmp_path, "a", "b", inventory=SIMULATED, framework="command", run=Run(command=("x",))))
    serve = """import socketserver, sys
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(sys.argv[2].encode())
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("", int(sys.argv[1])), Handler).serve_forever()"""
    ask = """import glob, os, socket, sys, time
def ask(host, port):
    while True:
        try:
            return socket.create_connection((host, port)).recv(99).decode()
        except OSError:
            time.sleep(0.1)
told = [ask(host, int(port)) for host, _, port in (place.rpartition(":") for place in sys.argv[1:])]
os.write(1, f"rank {os.environ['RANK']} on {os.environ['SLURMD_NODENAME']}: {told}\\n".encode())
asked = os.environ["DTTUI_LOGS"] + "/../../asked-"
open(asked + os.environ["RANK"], "w").close()
while len(glob.glob(asked + "*")) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.1)"""
    nodes = []
    for node in made.plan.nodes:
        places = [f"${{NODE{rank}_ADDRESS}}:${{NODE{rank}_PORT}}" for rank in (0, 1)]
        ranks = [item.model_copy(update={"argv": (sys.executable, "-c", ask, *places)}) for item in node.processes]
        argv = (sys.executable, "-c", serve, f"${{{port_hole(node.node_rank)}}}", f"of node {node.node_rank}")
        service = ranks[0].model_copy(update={"argv": argv, "name": "service", "rank": None, "is_service": True})
        nodes.append(node.model_copy(update={"processes": (*ranks, service)}))
    out = ejected_to(tmp_path, replace(made, plan=made.plan.model_copy(update={"nodes": tuple(nodes)})))
    state, said = slurm.submit(out, deadline_s=60)
    assert state == "COMPLETED", said
    assert sorted(said.replace(NO_BINDING, "").splitlines()) == [
        "0: rank 0 on n1: ['of node 0', 'of node 1']",
        "1: rank 1 on n2: ['of node 0', 'of node 1']",
        "1: rank 2 on n2: ['of node 0', 'of node 1']",
    ]
