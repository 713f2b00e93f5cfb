"""The batch script for Slurm: what it asks for, and what it tells every node; real Slurm is in tests/slurm."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from dttui.export.slurm import render_slurm
from dttui.export.writing import write
from dttui.inventory import Inventory
from dttui.inventory.models import CpuResources, Environment, GpuResources, Resources
from dttui.spec.models import CpuRequest, Node, NodeResources, ResourceDefaults, Run
from tests.unit.export.test_render_scripts import SIMULATED, ejected, with_ports
from tests.unit.seed_cluster import GB, SEED, environment

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
PROGRAMS = {
    "scontrol": '#!/bin/sh\necho "$3" | tr , "\\n"\n',
    "srun": '#!/bin/sh\necho "$@" >srun.args\nenv | grep -E "^(NODE|MASTER|JOB_ID|ATTEMPT)" | sort\n',
}
RUN = Run(script="train.py", workdir=".")


def script_of(tmp_path: Path, *nodes: Any, inventory: Inventory = SEED, **fields: Any) -> str:
    files = render_slurm(ejected(tmp_path, *nodes, inventory=inventory, **{"run": RUN, **fields}))
    write(tmp_path / "out", files)
    return next(file.text for file in files if file.path == "job.sbatch")


def start(tmp_path: Path, **variables: str) -> str:
    """Run the script as sbatch would, with programs of Slurm that only tell what they were given."""
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for name, text in PROGRAMS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    directory = tmp_path / "out"
    env = {"PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_ID": "1234", "SLURM_SUBMIT_DIR": str(directory), **variables}
    done = subprocess.run(["bash", directory / "job.sbatch"], env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


def requests(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]


def test_nodes_that_are_alike_are_one_request_and_learn_who_they_are(tmp_path: Path) -> None:
    inventory = Inventory(environments=tuple(environment(name, 4) for name in ("a", "b")))
    script = script_of(
        tmp_path,
        "a",
        "b",
        inventory=inventory,
        resources=ResourceDefaults(cpu=CpuRequest(cores=8, memory=64 * GB)),
    )
    assert requests(script) == [
        "--job-name=gpt-small --output=%x-%j.out",
        "--nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=8 --mem=61036M",
    ]
    assert start(tmp_path, SLURM_JOB_NODELIST="n7,n9").splitlines() == [
        "ATTEMPT=0",
        "JOB_ID=gpt-small-1234",
        "MASTER_PORT=29734",
        "NODE0_ADDRESS=n7",
        "NODE1_ADDRESS=n9",
    ]
    told = (tmp_path / "out" / "srun.args").read_text()
    assert told == '--kill-on-bad-exit=1 --cpu-bind=none --label bash -c exec bash "node$SLURM_PROCID/run.sh"\n'


def test_unequal_nodes_are_a_heterogeneous_job_in_order_of_rank(tmp_path: Path) -> None:
    own = Node(id=C, resources=NodeResources(cpu=CpuRequest(cores=3)))
    script = script_of(tmp_path, B, A, own)
    assert requests(script)[1:] == [
        "--nodes=1 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=32",
        "hetjob",
        "--nodes=1 --ntasks-per-node=1 --gpus-per-node=2 --cpus-per-task=16",
        "hetjob",
        "--nodes=1 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-task=3",
    ]
    groups = {f"SLURM_JOB_NODELIST_HET_GROUP_{index}": f"h{index}" for index in range(3)}
    found = start(tmp_path, SLURM_HET_SIZE="3", **groups).splitlines()
    assert found[3:] == ["NODE0_ADDRESS=h0", "NODE1_ADDRESS=h1", "NODE2_ADDRESS=h2"]
    assert (tmp_path / "out" / "srun.args").read_text().split()[2:4] == ["--het-group=0-2", "--label"]


def test_simulated_gpus_are_not_asked_for_so_that_unequal_counts_need_no_groups(tmp_path: Path) -> None:
    script = script_of(tmp_path, "b", "a", inventory=SIMULATED)
    assert requests(script)[1:] == ["--nodes=2 --ntasks-per-node=1 --cpus-per-task=2"]


def test_cpus_that_nobody_asks_for_are_those_that_all_nodes_with_so_many_gpus_have_or_one_a_rank(
    tmp_path: Path,
) -> None:
    def node(name: str, cores: int | None) -> Environment:
        cpu = CpuResources(cores=cores) if cores is not None else None
        return environment(name, resources=Resources(gpu=GpuResources(count=4, type="A100", memory=80 * GB), cpu=cpu))

    for cores, cpus in (((48, 32), 32), ((None, 32), 32), ((None, None), 4)):
        inventory = Inventory(environments=(node("a", cores[0]), node("b", cores[1])))
        script = script_of(tmp_path, "a", "b", inventory=inventory)
        assert requests(script)[1:] == [f"--nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task={cpus}"]
    assert "# CPUs: what the job asks for, else" in script


def test_a_restart_by_slurm_is_another_attempt_and_what_is_set_outside_wins(tmp_path: Path) -> None:
    script_of(tmp_path, "a", inventory=SIMULATED)
    found = start(tmp_path, SLURM_JOB_NODELIST="n1", SLURM_RESTART_COUNT="2", MASTER_PORT="4711", SLURM_JOB_ID="9")
    assert found.splitlines() == ["ATTEMPT=2", "JOB_ID=gpt-small-9", "MASTER_PORT=4711"]


def test_jobs_that_follow_each_other_have_ports_of_their_own_where_every_node_needs_one(tmp_path: Path) -> None:
    made = ejected(tmp_path, "a", "b", inventory=SIMULATED, run=RUN)
    write(tmp_path / "out", render_slurm(with_ports(made)))
    ports = []
    for job in ("1000", "1001"):
        found = start(tmp_path, SLURM_JOB_NODELIST="n1,n2", SLURM_JOB_ID=job).splitlines()
        ports += [line.partition("=")[2] for line in found if "PORT" in line]
    assert ports == ["29504", "29505", "29506", "29507"]


def test_nodes_that_only_serve_are_a_step_of_their_own_which_is_ended_with_the_other(tmp_path: Path) -> None:
    made = ejected(tmp_path, "a", "b", inventory=SIMULATED, run=RUN)
    server, master = (
        node.model_copy(update={"processes": tuple(item.model_copy(update=told) for item in node.processes)})
        for node, told in zip(made.plan.nodes, ({"is_service": True}, {}), strict=True)
    )
    files = render_slurm(replace(made, plan=made.plan.model_copy(update={"nodes": (server, master)})))
    script, readme = (next(item.text for item in files if item.path == path) for path in ("job.sbatch", "README.md"))
    assert 'start serving srun --kill-on-bad-exit=1 --cpu-bind=none --nodelist="${hosts[0]}" --nodes=1' in script
    assert 'start training srun --kill-on-bad-exit=1 --cpu-bind=none --nodelist="${hosts[1]}" --nodes=1' in script
    assert "case $name in serving) ;; *) left=$((left - 1)) ;; esac" in script
    assert "Nodes that only serve the others, `node0`, are ended" in readme
    assert "`gpt-small-<id>-serving.out`" in readme


def test_what_a_cluster_asks_for_besides_is_said_once_for_all_groups(tmp_path: Path) -> None:
    files = render_slurm(ejected(tmp_path, A, B, run=RUN))
    readme = next(item.text for item in files if item.path == "README.md")
    assert "`sbatch --partition=NAME --time=1:00:00 job.sbatch`. That holds for all groups" in readme
    assert "by default those that Slurm gives" in readme


def test_the_step_of_a_job_of_one_node_has_no_labels(tmp_path: Path) -> None:
    script = script_of(tmp_path, "a", inventory=SIMULATED)
    assert script.endswith("srun --kill-on-bad-exit=1 --cpu-bind=none bash node0/run.sh\n")
    assert "mapfile" not in script


def test_it_says_so_where_it_is_submitted_from_elsewhere(tmp_path: Path) -> None:
    script_of(tmp_path, "a", inventory=SIMULATED)
    env = {"PATH": "/usr/bin:/bin", "SLURM_SUBMIT_DIR": "/"}
    script = tmp_path / "out" / "job.sbatch"
    done = subprocess.run(["bash", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "job.sbatch: submit it from the directory in which it lies\n"
