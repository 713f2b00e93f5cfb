"""README.md of a rendered directory: who is named in it, what is needed, and the commands for every host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dttui.export.contents import Export
from dttui.export.scripts import render_scripts
from dttui.export.slurm import render_slurm
from dttui.inventory import Inventory
from dttui.spec.models import Run
from tests.unit.export.test_render_scripts import SIMULATED, A, B, ejected, rendered
from tests.unit.seed_cluster import environment


def test_the_readme_names_the_nodes_that_end_only_when_told_to(tmp_path: Path) -> None:
    made = ejected(tmp_path, "a", "b", inventory=SIMULATED, framework="command", run=Run(command=("x",)))
    assert "that only serve" not in readme_of(made)
    master, other = made.plan.nodes
    serving = tuple(item.model_copy(update={"is_service": True}) for item in other.processes)
    nodes = (master, other.model_copy(update={"processes": serving}))
    text = readme_of(replace(made, plan=made.plan.model_copy(update={"nodes": nodes})))
    assert "Nodes that only serve the others, `node1`, never end by themselves." in text


def readme_of(made: Export) -> str:
    return next(file.text for file in render_scripts(made) if file.path == "README.md")


def test_the_readme_says_which_interpreter_has_to_have_what(tmp_path: Path) -> None:
    inventory = Inventory(environments=(environment("a", 1, python="/opt/py"), environment("b", 1)))
    made = ejected(tmp_path, "a", "b", inventory=inventory, framework="deepspeed", run=Run(script="/train.py"))
    for render in (render_scripts, render_slurm):
        text = next(file.text for file in render(made) if file.path == "README.md")
        assert "| `PYTHON` | the interpreter of a node, by default `/opt/py`, `python3` |" in text
        needs = text.partition("## What it needs")[2]
        assert "is `/opt/py`, `python3` where `PYTHON` names no other; it has to have torch, deepspeed, and" in needs
        assert "On every host there must be: `/train.py`." in needs
    text = readme_of(ejected(tmp_path, "a", inventory=inventory, framework="command", run=Run(command=("date",))))
    assert text.endswith("- Nothing but bash and what the job runs.\n")


def test_the_readme_of_a_job_of_one_node_knows_of_no_others(tmp_path: Path) -> None:
    text = readme_of(ejected(tmp_path, A, run=Run(script="/train.py", secrets=("TOKEN",))))
    assert "Then start it:" in text
    for word in ("every", "all nodes", "others", "NODE0_ADDRESS", "NCCL_IB_HCA"):
        assert word not in text, word


def test_the_readme_of_an_elastic_job_says_who_goes_on(tmp_path: Path) -> None:
    options = {"elastic": {"min_nodes": 1}}
    made = ejected(tmp_path, "a", "b", inventory=SIMULATED, run=Run(script="/x.py"), framework_options=options)
    assert "as long as the master and 1 nodes in all are left" in readme_of(made)


def test_the_readme_says_what_is_left_to_nccl_since_no_host_was_asked(tmp_path: Path) -> None:
    told = "`NCCL_IB_HCA` and `NCCL_IB_DISABLE` are not set"
    assert told in readme_of(ejected(tmp_path, A, B, run=Run(script="/train.py")))
    assert told not in readme_of(ejected(tmp_path, A, B, run=Run(script="/x.py", env={"NCCL_IB_DISABLE": "1"})))
    assert told not in readme_of(ejected(tmp_path, "a", "b", inventory=SIMULATED, run=Run(script="/train.py")))


def test_the_readme_has_a_command_for_every_host(tmp_path: Path) -> None:
    inventory = Inventory(
        environments=(
            environment("a", 1, host="gpu1", user="li", port=2222, address="10.0.0.1"),
            environment("b", 1, host="gpu2", proxy_jump="bastion"),
            environment("c", 1, host=None, exec=("docker", "exec", "-i", "train 1"), address="10.0.0.3"),
        )
    )
    nodes = ("a", "b", "c")
    text = (rendered(tmp_path, *nodes, inventory=inventory, run=Run(script="train.py")) / "README.md").read_text()
    assert "    tar -c . | ssh -p 2222 li@gpu1 'mkdir -p gpt-small && tar -x -C gpt-small'\n" in text
    assert "    ssh -t -J bastion gpu2 bash gpt-small/node1/run.sh\n" in text
    assert "| `node1` | b | gpu2 | 1 | 1 |" in text
    reach = "docker exec -i 'train 1'"
    assert f"    {reach} mkdir -p gpt-small\n    tar -c . | {reach} tar -x -C gpt-small\n" in text
    assert f"    {reach} bash gpt-small/node2/run.sh\n" in text
    assert "Ctrl-C may end no more than the command that reaches `node2`" in text
