"""A rendered directory starts what dttui would start: the same words, variables and files, without dttui."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dttui.export.contents import Export, export_job, plan_to_export
from dttui.export.plain import plain_command
from dttui.export.run_script import run_script
from dttui.export.scripts import render_scripts
from dttui.export.writing import write
from dttui.frameworks import frameworks
from dttui.frameworks.bundle import PlannedProcess, fill
from dttui.inventory import Inventory
from dttui.inventory.models import GpuResources, Resources
from dttui.planning.models import Bindings, NodeBinding, Plan
from dttui.planning.planner import bind
from dttui.planning.submission import Submission
from dttui.spec.models import (
    Checkpoint,
    DatasetRef,
    Monitoring,
    Node,
    Recovery,
    ResourceDefaults,
    Run,
    Storage,
    StorageRequest,
)
from tests.job_strategies import TEXTS
from tests.unit.seed_cluster import SEED, environment, make_job
from tests.waiting import wait_until

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
TELL = 'env -0 >"$DTTUI_LOGS/$RANK.env"; printf "%s\\0" "$@" >"$DTTUI_LOGS/$RANK.args"'
"""A line of shell that tells what a process was started with."""
SHELLS_OWN = {"PWD", "SHLVL", "_", "OLDPWD"}
SIMULATED = Inventory(
    environments=tuple(
        environment(name, host=address, resources=Resources(gpu=GpuResources(count=count, simulated=True)))
        for name, address, count in (("a", "10.0.0.1", 1), ("b", "10.0.0.2", 2))
    )
)


def submission(tmp_path: Path, *nodes: str | Node, inventory: Inventory = SEED, **fields: Any) -> Submission:
    base = tmp_path / "job"
    base.mkdir(exist_ok=True)
    (base / "train.py").write_text("print('hello')\n")
    return Submission(make_job(*nodes, **fields), inventory, base)


def ejected(tmp_path: Path, *nodes: str | Node, inventory: Inventory = SEED, **fields: Any) -> Export:
    made = submission(tmp_path, *nodes, inventory=inventory, **fields)
    plan = plan_to_export(made)
    assert plan.errors == ()
    return export_job(made, plan, tmp_path / "out")


def rendered(tmp_path: Path, *nodes: str, inventory: Inventory = SEED, **fields: Any) -> Path:
    write(tmp_path / "out", render_scripts(ejected(tmp_path, *nodes, inventory=inventory, **fields)))
    return tmp_path / "out"


def start(directory: Path, node_rank: int = 0, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", str(directory / f"node{node_rank}" / "run.sh")],
        env={"PATH": os.environ["PATH"], **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code, and what it wrote to either stream."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out + err


def told(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\0")[:-1]


def bound(plan: Plan, directory: Path) -> Plan:
    """What dttui would start, with what run.sh fills in by default."""
    nodes = {
        node.name: NodeBinding(
            directory=str(directory / f"node{node.node_rank}"),
            payload="/payload",
            python=node.python,
            interface="lo",
            gpu_ids=tuple(range(node.cuda_slots)),
        )
        for node in plan.nodes
    }
    return bind(plan, Bindings(job_id="gpt-small", attempt=0, master_port=29500, nodes=nodes)).plan


@settings(max_examples=25)
@given(
    st.lists(TEXTS, max_size=4),
    st.dictionaries(
        st.from_regex(r"[A-Z_]{1,6}", fullmatch=True).filter(lambda n: n not in SHELLS_OWN), TEXTS, max_size=4
    ),
)
def test_a_process_gets_the_words_the_variables_and_the_files_that_dttui_would_give_it(
    tmp_path: Path, args: list[str], env: dict[str, str]
) -> None:
    env.pop("PATH", None)
    hole = "${JOB_ID} ${MASTER_PORT} ${NODE1_ADDRESS} ${NODE7_ADDRESS} ${INTERFACE}"
    command = ("sh", "-c", TELL, "sh", *args, hole)
    run = Run(command=command, env={**env, "PYTHON": "x", "HOLES": hole})
    fields: dict[str, Any] = {"framework": "command", "run": run, "settings": {"text": "".join(args)}}
    out = rendered(tmp_path, "b", "a", inventory=SIMULATED, **fields)
    code, said = finish(start(out, INTERFACE="lo", ATTEMPT=""))
    assert code == 0, said
    made = plan_to_export(submission(tmp_path, "b", "a", inventory=SIMULATED, **fields))
    node = bound(made, out).nodes[0]
    assert len(node.processes) == 2
    for process in node.processes:
        logs = out / "node0" / "logs"
        assert told(logs / f"{process.rank}.args") == list(process.argv[4:])
        found = dict(item.partition("=")[::2] for item in told(logs / f"{process.rank}.env"))
        assert {name: found.get(name) for name in process.env if name not in SHELLS_OWN} == {
            name: value for name, value in process.env.items() if name not in SHELLS_OWN
        }
    for file in node.files:
        assert (out / "node0" / file.path).read_text() == file.text


def test_torchrun_and_the_script_are_started_as_a_person_would_start_them(tmp_path: Path) -> None:
    script = run_script(
        ejected(tmp_path, A, B, run=Run(script="train.py", args=("--name", "a b"), workdir=".")), node(tmp_path)
    )
    assert script.endswith(
        """\
exec env "${environment[@]}" \\
  "${PYTHON}" -m torch.distributed.run \\
  --nnodes=2 \\
  --nproc-per-node=4 \\
  --node-rank=1 \\
  --master-addr="${NODE0_ADDRESS}" \\
  --master-port="${MASTER_PORT}" \\
  --max-restarts=0 \\
  --rdzv-conf=timeout=600 \\
  train.py \\
  --name 'a b'
"""
    )
    assert ': "${NODE0_ADDRESS:=192.168.1.10}"' in script
    assert ': "${GPU_IDS:=${CUDA_VISIBLE_DEVICES:-0,1,2,3}}"' in script


def node(tmp_path: Path) -> Any:
    return ejected(tmp_path, A, B, run=Run(script="train.py", args=("--name", "a b"), workdir=".")).plan.nodes[1]


@pytest.mark.parametrize(
    ("argv", "plain"),
    [
        (
            "nice ${PYTHON} ${PAYLOAD}/torchrun.py -n -- ${PAYLOAD}/rank.py t.py --",
            "nice ${PYTHON} -m torch.distributed.run -n t.py --",
        ),
        (
            "${PYTHON} ${PAYLOAD}/torchrun.py -- ${PAYLOAD}/rank.py -m a.b",
            "${PYTHON} -m torch.distributed.run --module a.b",
        ),
        ("${PYTHON} ${PAYLOAD}/rank.py t.py -m x", "${PYTHON} t.py -m x"),
        ("${PYTHON} ${PAYLOAD}/rank.py -m a.b", "${PYTHON} -m a.b"),
        ("${PYTHON} -m launch --a=b ${PAYLOAD}/rank.py -m a.b", "${PYTHON} -m launch --a=b --module a.b"),
        ("./simulate -- -m x", "./simulate -- -m x"),
    ],
)
def test_nothing_of_dttui_stays_in_a_command(argv: str, plain: str) -> None:
    assert " ".join(plain_command(argv.split())) == plain


@pytest.mark.parametrize("name", [item.name for item in frameworks() if item.available])
def test_what_any_framework_makes_is_a_script_that_bash_can_read_with_every_hole_filled(
    tmp_path: Path, name: str
) -> None:
    run = Run(command=("./x",)) if name == "command" else Run(script="train.py", workdir=".")
    made = ejected(tmp_path, A, Node4, framework=name, run=run, inventory=EQUAL)
    for planned in made.plan.nodes:
        script = run_script(made, planned)
        checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert checked.stderr == ""
        assert "rank.py" not in script
        assert "payload/torchrun.py" not in script
        used = set(re.findall(r"\$\{(\w+?)(?::?[-+?=].*)?\}", script)) - {"BASH_SOURCE", "CUDA_VISIBLE_DEVICES"}
        given = set(re.findall(r'^: "\$\{(\w+):=', script, re.MULTILINE)) | {"DIRECTORY", "PAYLOAD"}
        assert used <= given


Node4 = "second"
EQUAL = Inventory(environments=(environment(A, 2, address="10.0.0.1"), environment(Node4, 2, address="10.0.0.2")))


def test_brackets_stay_around_an_ipv6_address(tmp_path: Path) -> None:
    inventory = Inventory(environments=(environment("a", 1, address="fd00::1"), environment("b", 1, address="fd00::2")))
    made = ejected(tmp_path, "a", "b", inventory=inventory, run=Run(script="train.py", workdir="."))
    script = run_script(made, made.plan.nodes[1])
    assert ': "${NODE0_ADDRESS:=fd00::1}"' in script
    assert 'init_method: "tcp://[${NODE0_ADDRESS}]:${MASTER_PORT}"' in script
    assert '--master-addr="${NODE0_ADDRESS}"' in script


@pytest.mark.parametrize(
    ("known", "node_rank", "interface"),
    [
        # Debian's /etc/hosts: the master's own name is loopback's.
        ("n0=127.0.1.1/lo n1=10.0.0.2/eth1", 0, "eth1"),
        ("n0=10.0.0.1/eth0 n1=10.0.0.2/eth1", 1, "eth0"),
        # A pod that has not started has no name yet.
        ("n0=10.0.0.1/eth0", 0, "eth0"),
        ("n0=127.0.0.1/lo n1=127.0.0.1/lo", 0, ""),
        ("n0=127.0.0.1/lo n1=127.0.0.1/lo", 1, ""),
        ("", 0, ""),
    ],
)
def test_the_interface_is_the_one_that_leads_to_another_node_and_never_loopback(
    tmp_path: Path, known: str, node_rank: int, interface: str
) -> None:
    run = Run(command=("sh", "-c", 'echo "$GLOO_SOCKET_IFNAME"'))
    out = rendered(tmp_path, "a", "b", inventory=SIMULATED, framework="command", run=run)
    env = {"PATH": f"{programs_of_network(tmp_path, known)}:{os.environ['PATH']}"}
    code, said = finish(start(out, node_rank, **env, NODE0_ADDRESS="n0", NODE1_ADDRESS="n1"))
    assert (code, set(said.splitlines())) == (0, {interface})


def test_the_only_node_of_a_job_uses_loopback(tmp_path: Path) -> None:
    run = Run(command=("sh", "-c", 'echo "$GLOO_SOCKET_IFNAME"'))
    out = rendered(tmp_path, "a", inventory=SIMULATED, framework="command", run=run)
    path = f"{programs_of_network(tmp_path, '127.0.0.1=127.0.0.1/lo')}:{os.environ['PATH']}"
    assert finish(start(out, PATH=path)) == (0, "lo\n")


def programs_of_network(tmp_path: Path, known: str) -> Path:
    """Return a directory with `getent` and `ip` of a host that knows NAME=ADDRESS/INTERFACE of others."""
    programs = tmp_path / "bin"
    programs.mkdir()
    cases = {"names": "", "interfaces": ""}
    for item in known.split():
        name, _equals, place = item.partition("=")
        address, _slash, device = place.partition("/")
        cases["names"] += f"{name}) echo '{address} STREAM {name}' ;;\n"
        cases["interfaces"] += f"{address}) echo '1: {device}    inet {address}/8 scope global {device}' ;;\n"
    getent = f'#!/bin/sh\ncase "$2" in\n{cases["names"]}*) exit 2 ;;\nesac\n'
    # The source of a way is told to be its end, so that it names the interface.
    ip = (
        '#!/bin/sh\n[ -n "$4" ] || exit 1\n[ "$2" = route ] && exec echo "$4 dev x src $4 uid 0"\n'
        f'case "$5" in\n{cases["interfaces"]}*) exit 1 ;;\nesac\n'
    )
    for name, text in (("getent", getent), ("ip", ip)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return programs


def test_a_job_of_one_node_meets_on_loopback(tmp_path: Path) -> None:
    script = run_script(made := ejected(tmp_path, A, run=Run(script="train.py", workdir=".")), made.plan.nodes[0])
    assert "--master-addr=127.0.0.1" in script


def shell_job(tmp_path: Path, line: str, **run: Any) -> Path:
    """Render a job of one node with two processes that run a line of shell."""
    command = Run(command=("sh", "-c", line), **run)
    return rendered(tmp_path, "b", inventory=SIMULATED, framework="command", run=command)


def test_the_first_failure_ends_the_others_and_gives_the_exit_code(tmp_path: Path) -> None:
    out = shell_job(tmp_path, '[ "$RANK" = 1 ] && exit 3; exec sleep 100')
    code, said = finish(start(out))
    assert code == 3
    assert said == "run.sh: process 1 ended with 3\n"


def test_a_signal_to_the_script_ends_all_that_it_has_started(tmp_path: Path) -> None:
    out = shell_job(tmp_path, 'echo $$ >"$DTTUI_LOGS/$RANK.pid"; sleep 100; true')
    process = start(out)
    logs = out / "node0" / "logs"
    wait_until(
        lambda: all((logs / f"{rank}.pid").exists() and (logs / f"{rank}.pid").read_text() for rank in (0, 1)),
        "both",
        20,
    )
    process.send_signal(signal.SIGTERM)
    assert finish(process) == (143, "")
    for rank in (0, 1):
        assert not Path("/proc", (logs / f"{rank}.pid").read_text().strip()).exists()


def test_a_service_is_ended_once_the_others_have_ended_well(tmp_path: Path) -> None:
    made = ejected(tmp_path, "b", inventory=SIMULATED, framework="command", run=Run(command=("true",)))
    (planned,) = made.plan.nodes
    one = planned.processes[0]
    service = PlannedProcess(name="store", argv=("sleep", "100"), env=one.env, cwd="/", is_service=True)
    work = one.model_copy(update={"argv": ("sh", "-c", "pwd"), "name": "work"})
    script = run_script(made, planned.model_copy(update={"processes": (work, service)}))
    (tmp_path / "run.sh").write_text(script)
    done = subprocess.run(["bash", str(tmp_path / "run.sh")], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{tmp_path}\n", "")


def test_a_node_whose_processes_all_serve_runs_until_it_is_ended_and_fails_where_one_does(tmp_path: Path) -> None:
    made = ejected(tmp_path, "a", "b", inventory=SIMULATED, framework="command", run=Run(command=("x",)))
    (tmp_path / "out" / "node1").mkdir(parents=True)
    script = tmp_path / "out" / "node1" / "run.sh"

    def start_with(line: str) -> subprocess.Popen[str]:
        told = {"argv": ("sh", "-c", line), "is_service": True}
        processes = tuple(item.model_copy(update=told) for item in made.plan.nodes[1].processes)
        script.write_text(run_script(made, made.plan.nodes[1].model_copy(update={"processes": processes})))
        return start(tmp_path / "out", 1, INTERFACE="lo")

    logs = script.parent / "logs"
    process = start_with('touch "$DTTUI_LOGS/$RANK"; exec sleep 100')
    wait_until(lambda: logs.is_dir() and len(os.listdir(logs)) == 2, "both services", 20)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert finish(process) == (143, "")
    assert finish(start_with('[ "$RANK" = 1 ] && exit 4; exec sleep 100')) == (4, "run.sh: process 1 ended with 4\n")
    assert "this node only serves the others" in script.read_text()


def test_a_secret_is_asked_for_by_name_and_its_value_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cr3t")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / ".env").write_text("TOKEN=s3cr3t\n")
    run = {"command": ("sh", "-c", 'echo "$TOKEN"'), "secrets": ("TOKEN",), "workdir": "."}
    out = rendered(tmp_path, "a", inventory=SIMULATED, framework="command", run=Run(**run))
    for path in out.rglob("*"):
        assert not path.is_file() or "s3cr3t" not in path.read_text()
    code, said = finish(start(out))
    assert code != 0
    assert "TOKEN: is not set; export it first" in said
    assert finish(start(out, TOKEN="s3cr3t")) == (0, "s3cr3t\n")
    assert "`TOKEN`" in (out / "README.md").read_text()


def test_a_secret_need_not_be_known_where_it_is_rendered(tmp_path: Path) -> None:
    run = Run(command=("true",), secrets=("NOT_SET_ANYWHERE",))
    assert rendered(tmp_path, "a", inventory=SIMULATED, framework="command", run=run).is_dir()


def test_checkpoints_that_an_earlier_run_left_are_told_of(tmp_path: Path) -> None:
    run = Run(command=("sh", "-c", 'touch "$DTTUI_CHECKPOINT_DIR/step-1"'))
    out = rendered(tmp_path, "a", inventory=SIMULATED, framework="command", run=run)
    assert finish(start(out)) == (0, "")
    code, said = finish(start(out))
    assert code == 0
    assert said.startswith("run.sh: this directory has checkpoints of an earlier run")
    assert said.endswith("remove node0/checkpoints for a fresh start\n")


def test_where_the_job_names_a_place_for_checkpoints_resuming_is_no_surprise(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    recovery = Recovery(checkpoint=Checkpoint(dir=str(tmp_path / "kept")))
    run = Run(command=("sh", "-c", 'touch "$DTTUI_CHECKPOINT_DIR/step-1"'))
    out = rendered(tmp_path, "a", inventory=SIMULATED, framework="command", run=run, recovery=recovery)
    assert [finish(start(out)) for _run in range(2)] == [(0, "")] * 2


def test_a_path_that_a_host_lacks_is_named_before_anything_starts(tmp_path: Path) -> None:
    dataset = DatasetRef(id="x", path=f"{tmp_path}/a 'b'")
    run = Run(command=("echo", "started"))
    out = rendered(tmp_path, "a", inventory=SIMULATED, framework="command", run=run, dataset=dataset)
    assert finish(start(out)) == (2, f"run.sh: this host lacks {tmp_path}/a 'b'\n")
    (tmp_path / "a 'b'").mkdir()
    assert finish(start(out)) == (0, "started\n")


def test_room_that_a_host_lacks_is_named_before_anything_starts(tmp_path: Path) -> None:
    run, code = Run(command=("echo", "started")), 2
    for size, told in (
        ("4PB", f"run.sh: {tmp_path} has less room than 4PB, for which resources.storage asks\n"),
        ("1MiB", "started\n"),
    ):
        storage = StorageRequest(local=Storage(path=str(tmp_path), size=size))
        out = rendered(
            *(tmp_path, "a"),
            inventory=SIMULATED,
            framework="command",
            run=run,
            resources=ResourceDefaults(storage=storage),
        )
        assert finish(start(out)) == (code, told)
        code = 0


def test_the_working_directory_is_copied_once_and_every_node_has_a_link_to_it(tmp_path: Path) -> None:
    command = ("sh", "-c", "cat train.py; ls -d ckpt")
    recovery = Recovery(checkpoint=Checkpoint(dir="ckpt"))
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / ".gitignore").write_text("big\n")
    (tmp_path / "job" / "big").write_text("x")
    fields: dict[str, Any] = {"framework": "command", "run": Run(command=command, workdir="."), "recovery": recovery}
    out = rendered(tmp_path, "a", "b", inventory=SIMULATED, **fields)
    assert os.listdir(out / "work") == ["train.py"]
    assert os.readlink(out / "node1" / "work") == "../work"
    moved = out.rename(tmp_path / 'else "where"')
    assert finish(start(moved)) == (0, "print('hello')\nckpt\n")


def test_every_node_knows_the_port_of_every_other_where_each_needs_one(tmp_path: Path) -> None:
    made = with_ports(ejected(tmp_path, "a", "b", inventory=SIMULATED, framework="command", run=Run(command=("x",))))
    for node in made.plan.nodes:
        (tmp_path / "run.sh").write_text(run_script(made, node))
        for port, ports in (("29500", "29500 29501"), ("4711", "4711 29501")):
            env = {"PATH": os.environ["PATH"], "MASTER_PORT": port}
            done = subprocess.run(["bash", tmp_path / "run.sh"], capture_output=True, text=True, env=env, check=False)
            assert done.stdout.splitlines() == [f"{port} {ports}"] * node.slots


def with_ports(made: Export) -> Export:
    """Return the same of a framework that has every node reserve a port, and whose processes tell them all."""
    tell = {"argv": ("sh", "-c", 'echo "$@"', "sh", "${MASTER_PORT}", "${NODE0_PORT}", "${NODE1_PORT}")}
    nodes = [
        node.model_copy(
            update={
                "port_range": (29500, 29999),
                "processes": tuple(item.model_copy(update=tell) for item in node.processes),
            }
        )
        for node in made.plan.nodes
    ]
    return replace(made, plan=made.plan.model_copy(update={"nodes": tuple(nodes)}))


def test_a_path_that_would_spoil_a_generated_file_is_refused(tmp_path: Path) -> None:
    settings = {"out": "${DIRECTORY}/out"}
    run = Run(command=("cat", "dttui_config.json"))
    out = rendered(tmp_path, "a", inventory=SIMULATED, framework="command", run=run, settings=settings)
    code, said = finish(start(out))
    assert code == 0
    assert f'"out": "{out}/node0/out"' in said
    code, said = finish(start(out.rename(tmp_path / 'a"b')))
    assert code == 2
    assert "quotes and backslashes" in said


def test_a_rendered_directory_inside_the_working_directory_is_no_part_of_it(tmp_path: Path) -> None:
    made = submission(tmp_path, "a", inventory=SIMULATED, run=Run(script="train.py", workdir="."))
    out = made.base / "out"
    for _time in range(2):
        write(out, render_scripts(export_job(made, plan_to_export(made), out)))
    assert os.listdir(out / "work") == ["train.py"]


def test_holes_that_a_job_uses_itself_mean_the_same_to_dttui_and_to_a_script() -> None:
    assert fill("${NODE1_ADDRESS} ${NODE9_ADDRESS}", {"NODE1_ADDRESS": "h"}) == "h ${NODE9_ADDRESS}"


def test_what_is_left_to_agents_is_named(tmp_path: Path) -> None:
    monitoring = Monitoring.model_validate({"health": {"command": ["check"]}})
    made = submission(tmp_path, "b", inventory=SIMULATED, framework="command", run=Run(command=("true",)))
    assert "health-not-carried" not in {item.code for item in plan_to_export(made).findings}
    asked = replace(made, job=made.job.model_copy(update={"monitoring": monitoring}))
    (found,) = (item for item in plan_to_export(asked).findings if item.code == "health-not-carried")
    assert found.message == "monitoring.health is not carried over: it is the agents of dttui that run the command"
