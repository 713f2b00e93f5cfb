"""What each framework puts on a node: command lines, environment and files, and the list of all seven."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dttui.errors import UsageError
from dttui.frameworks import frameworks, get_framework
from dttui.inventory import Inventory
from dttui.inventory.models import GpuResources, Resources
from dttui.planning.models import PlannedNode
from dttui.planning.planner import plan
from dttui.spec.entry_points import OWN_FRAMEWORKS
from dttui.spec.findings import Severity
from dttui.spec.models import (
    Checkpoint,
    Communication,
    DataParallel,
    DatasetRef,
    DataSharding,
    Logging,
    Model,
    Monitoring,
    Recovery,
    Run,
    Strategy,
)
from dttui.spec.schema_walk import keys_of
from tests.unit.seed_cluster import SEED, environment, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"


def nodes_of(*keys: str, **fields: object) -> tuple[PlannedNode, ...]:
    made = plan(make_job(*keys, **fields), SEED)
    assert made.errors == ()
    return made.nodes


def file_of(node: PlannedNode, path: str) -> str:
    return next(file.text for file in node.files if file.path == path)


def test_all_are_listed_in_order_and_can_be_launched() -> None:
    assert [item.name for item in frameworks()] == list(OWN_FRAMEWORKS)
    assert [item.name for item in frameworks() if item.available] == list(OWN_FRAMEWORKS)


@pytest.mark.parametrize("name", OWN_FRAMEWORKS)
def test_each_says_what_it_is(name: str) -> None:
    item = get_framework(name)
    assert item.label
    assert item.summary
    assert item.description.endswith(".")
    assert all(item.features)


def test_an_unknown_framework_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match='no framework "deepsped"') as caught:
        get_framework("deepsped")
    assert caught.value.hint == 'did you mean "deepspeed"?'


def test_ddp_runs_one_torchrun_a_node_by_static_rendezvous() -> None:
    nodes = nodes_of(A, B, C, run=Run(script="train.py", args=("--steps", "3"), prefix=("numactl", "--localalloc")))
    (launcher,) = nodes[1].processes
    assert launcher.name == "launcher"
    assert launcher.rank is None
    assert launcher.argv == (
        "numactl",
        "--localalloc",
        "${PYTHON}",
        "${PAYLOAD}/torchrun.py",
        "--nnodes=3",
        "--nproc-per-node=4",
        "--node-rank=1",
        "--master-addr=192.168.1.10",
        "--master-port=${MASTER_PORT}",
        "--max-restarts=0",
        "--rdzv-conf=timeout=600",
        "--",
        "${PAYLOAD}/rank.py",
        "train.py",
        "--steps",
        "3",
    )


def test_ddp_runs_a_module_as_python_does() -> None:
    (node,) = nodes_of(A, run=Run(module="pkg.train", args=("-x",)))
    assert node.processes[0].argv[-4:] == ("${PAYLOAD}/rank.py", "-m", "pkg.train", "-x")


def test_the_environment_of_a_process_is_what_the_design_says() -> None:
    env = nodes_of(A, B, C)[2].processes[0].env
    assert env == {
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "${INTERFACE}",
        "NCCL_SOCKET_IFNAME": "=${INTERFACE}",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "480",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "${DIRECTORY}/nccl_trace_rank_",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "${GPU_IDS}",
        "DTTUI_JOB_ID": "${JOB_ID}",
        "DTTUI_ATTEMPT": "${ATTEMPT}",
        "DTTUI_NODE_RANK": "2",
        "DTTUI_NODE_COUNT": "3",
        "DTTUI_NODE_ADDRESSES": "192.168.1.10,192.168.2.20,192.168.3.30",
        "DTTUI_MASTER_ADDRESS": "192.168.1.10",
        "DTTUI_CHECKPOINT_DIR": "${DIRECTORY}/checkpoints",
        "DTTUI_METRICS": "${DIRECTORY}/metrics.jsonl",
        "DTTUI_LOGS": "${DIRECTORY}/logs",
        "DTTUI_CONFIG": "${DIRECTORY}/dttui_config.json",
        "DTTUI_BACKEND": "nccl",
    }


def test_a_rank_alone_on_its_node_may_use_all_cores_but_where_nodes_share_a_machine() -> None:
    def threads(gpus: int, *, simulated: bool) -> str | None:
        resources = Resources(gpu=GpuResources(count=gpus, type="A100", simulated=simulated))
        made = plan(make_job("a"), Inventory(environments=(environment("a", resources=resources),)))
        return made.nodes[0].processes[0].env.get("OMP_NUM_THREADS")

    assert [threads(gpus, simulated=False) for gpus in (0, 1, 2)] == [None, None, "1"]
    assert [threads(gpus, simulated=True) for gpus in (0, 1, 2)] == ["1", "1", "1"]


def test_the_jobs_own_variables_win() -> None:
    own = {"OMP_NUM_THREADS": "8", "NCCL_SOCKET_IFNAME": "=ib0", "DTTUI_CHECKPOINT_DIR": "/c"}
    for framework, run in (("pytorch-ddp", Run(script="x", env=own)), ("command", Run(command=("x",), env=own))):
        env = nodes_of(A, framework=framework, run=run)[0].processes[0].env
        assert {name: env[name] for name in own} == own


def test_checkpoints_go_where_the_job_says() -> None:
    (node,) = nodes_of(A, recovery=Recovery(checkpoint=Checkpoint(dir="/ckpt")))
    assert node.processes[0].env["DTTUI_CHECKPOINT_DIR"] == "/ckpt"


def test_slots_without_cuda_hide_no_devices() -> None:
    simulated = Resources(gpu=GpuResources(count=2, type="A100", simulated=True))
    inventory = Inventory(environments=(environment("a", resources=simulated),))
    (node,) = plan(make_job("a"), inventory).nodes
    env = node.processes[0].env
    assert "CUDA_VISIBLE_DEVICES" not in env
    assert env["DTTUI_BACKEND"] == "gloo"


def test_a_command_runs_once_a_slot_with_torchruns_variables() -> None:
    nodes = nodes_of(B, A, framework="command", run=Run(command=("./run.sh", "a b"), workdir="/srv", prefix=("nice",)))
    processes = nodes[1].processes
    assert [(item.name, item.rank) for item in processes] == [("4", 4), ("5", 5)]
    last = processes[1]
    assert last.argv == ("nice", "./run.sh", "a b")
    assert last.cwd == "/srv"
    names = (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "CUDA_VISIBLE_DEVICES",
        "DTTUI_NODE_RANK",
    )
    assert [last.env[name] for name in names] == [
        "5",
        "1",
        "6",
        "2",
        "1",
        "192.168.2.20",
        "${MASTER_PORT}",
        "${GPU_IDS}",
        "1",
    ]


def test_the_ddp_configuration_is_the_seeds_with_processes_counted() -> None:
    nodes = nodes_of(A, B, C)
    document = yaml.safe_load(file_of(nodes[1], "pytorch_ddp_config.yaml"))
    assert document == {
        "distributed": {
            "backend": "nccl",
            "init_method": "tcp://192.168.1.10:${MASTER_PORT}",
            "world_size": 14,
            "rank": 1,
            "node_count": 3,
            "node_rank": 1,
        },
        "nodes": [
            {"name": A, "rank": 0, "ip": "192.168.1.10", "gpus": [0, 1]},
            {"name": B, "rank": 1, "ip": "192.168.2.20", "gpus": [0, 1, 2, 3]},
            {"name": C, "rank": 2, "ip": "192.168.3.30", "gpus": [0, 1, 2, 3, 4, 5, 6, 7]},
        ],
    }


def test_names_of_any_kind_leave_the_ddp_configuration_valid() -> None:
    name = 'a: "b" \\ #c, 训练'
    inventory = Inventory(environments=(environment(name, 0, host="h"),))
    (node,) = plan(make_job(name), inventory).nodes
    (entry,) = yaml.safe_load(file_of(node, "pytorch_ddp_config.yaml"))["nodes"]
    assert entry == {"name": name, "rank": 0, "ip": "h", "gpus": []}


@pytest.mark.parametrize("framework", ["pytorch-ddp", "pytorch-fsdp", "deepspeed", "horovod", "megatron-lm", "command"])
def test_everything_meant_for_the_script_is_in_its_configuration(framework: str) -> None:
    nodes = nodes_of(
        A,
        B,
        framework=framework,
        run=Run(command=("x",)) if framework == "command" else Run(script="x.py"),
        dataset=DatasetRef(id="imagenet", version="v2"),
        strategy=Strategy(
            data_parallel=DataParallel(
                batch_size=252, num_workers=4, data_sharding=DataSharding(method="random", seed=42)
            )
        ),
        monitoring=Monitoring(metrics=("loss",), logging=Logging(level="DEBUG", format="json")),
        model=Model(name="gpt", parameters=7e9),
        communication=Communication(protocol="NCCL"),
    )
    documents = [json.loads(file_of(node, "dttui_config.json")) for node in nodes]
    assert documents[0] == documents[1]
    assert documents[0] == {
        "name": "gpt-small",
        "version": "1.0.0",
        "framework": framework,
        "backend": "nccl",
        "world_size": 6,
        "node_count": 2,
        "batch_size": 252,
        "num_workers": 4,
        "shares": None,
        "data_sharding": {"method": "random", "seed": 42},
        "dataset": {"id": "imagenet", "version": "v2", "path": "/data/v2"},
        "strategy": {
            "type": "data_parallel",
            "data_parallel": {
                "batch_size": 252,
                "num_workers": 4,
                "data_sharding": {"method": "random", "seed": 42},
            },
        },
        "model": {"name": "gpt", "parameters": 7e9},
        "communication": {"protocol": "NCCL"},
        "topology": None,
        "storage": None,
        "logging": {"level": "DEBUG", "format": "json"},
        "metrics": ["loss"],
        "visualization": None,
        "checkpoint": {"interval_s": None, "keep": None},
        "settings": {},
        "framework_options": get_framework(framework).options().model_dump(mode="json"),
        "training": {"batch_size": 252, "num_workers": 4},
        "distributed": {
            "backend": "nccl",
            "world_size": 6,
            "node_count": 2,
            "timeout_s": None,
            "bucket_bytes": None,
            "compression": None,
            "overlap": None,
            "ranks_per_node": [2, 4],
            "links": None,
        },
        "resources": {"gpu_count": 6},
    }


def test_what_the_job_does_not_say_is_null_in_the_scripts_configuration() -> None:
    document = json.loads(file_of(nodes_of(A)[0], "dttui_config.json"))
    assert document["batch_size"] is None
    assert document["dataset"] is None
    assert document["logging"] == {"level": "INFO", "format": "text"}


@pytest.mark.parametrize(
    ("framework", "batch", "strategy", "told", "fitting"),
    [
        ("pytorch-ddp", 28, {}, None, ""),
        ("pytorch-ddp", 32, {}, "32 samples a step cannot be shared out evenly among 14 copies", "28 or 42"),
        ("pytorch-fsdp", 10, {}, "10 samples a step cannot be shared out evenly among 14 copies", "14"),
        ("pytorch-ddp", 30, {"pipeline_parallel_size": 7}, None, ""),
        (
            "pytorch-ddp",
            30,
            {"pipeline_parallel_size": 7, "pipeline_parallel": {"micro_batch_size": 4}},
            "30 samples a step make no whole micro-batches of 4 for 2 copies",
            "24 or 32",
        ),
        ("command", 32, {}, None, ""),
    ],
)
def test_a_batch_that_makes_no_equal_shares_is_told_with_those_that_do(
    framework: str, batch: int, strategy: dict[str, object], told: str | None, fitting: str
) -> None:
    whole = Strategy.model_validate({"data_parallel": {"batch_size": batch}, **strategy})
    run = Run(command=("x",)) if framework == "command" else Run(script="x.py")
    made = plan(make_job(A, B, C, framework=framework, strategy=whole, run=run), SEED)
    found = [finding for finding in made.findings if finding.code == "batch-size"]
    assert [finding.severity for finding in found] == [Severity.WARNING] * (told is not None)
    for finding in found:
        assert finding.message == f"{told} of the model"
        assert finding.hint == f"What fits is batch_size: {fitting}."


@pytest.mark.parametrize(
    ("framework", "told"),
    [
        ("pytorch-ddp", "the script has to pass them on, as init_process_group(timeout=…)"),
        ("pytorch-fsdp", "the script has to pass them on, as init_process_group(timeout=…)"),
        ("command", "the script has to pass them on, as init_process_group(timeout=…)"),
        ("tensorflow", "the script has to pass them on, as CommunicationOptions(timeout_seconds=…)"),
        ("horovod", "one that it cannot reach as long as communication.rendezvous_timeout, 80 s"),
        ("deepspeed", "it is told 2, and rendezvous_timeout is 80 s"),
        ("megatron-lm", None),
    ],
)
def test_how_long_a_rank_waits_for_the_others_reaches_it_or_it_is_said_who_has_to_pass_it_on(
    framework: str, told: str | None
) -> None:
    run = Run(command=("x",)) if framework == "command" else Run(script="x.py")
    talk = Communication(collective_timeout="90s", rendezvous_timeout="80s")
    model = Model(layers=2, hidden_size=64, heads=4, seq_length=64)
    made = plan(make_job(A, framework=framework, run=run, communication=talk, model=model), SEED)
    document = json.loads(file_of(made.nodes[0], "dttui_config.json"))
    assert document["distributed"]["timeout_s"] == 90.0
    found = [finding for finding in made.findings if finding.code == "collective-timeout"]
    assert [told in finding.message for finding in found if told] == [True] * (told is not None)
    process = made.nodes[0].processes[0]
    assert process.env.get("DEEPSPEED_TIMEOUT") == ("2" if framework == "deepspeed" else None)
    limits = [word for word in process.argv if word.startswith("--distributed-timeout-seconds")]
    assert limits == ["--distributed-timeout-seconds-after-init=90"] * (framework == "megatron-lm")


@pytest.mark.parametrize(
    ("collective", "rendezvous", "minutes", "is_told"),
    [("30s", None, "5", True), ("20m", "1h", "60", True), ("10m", "5m", "10", False), ("601s", None, "11", True)],
)
def test_deepspeed_never_waits_shorter_than_ranks_may_come_late(
    collective: str, rendezvous: str | None, minutes: str, is_told: bool
) -> None:
    talk = Communication(collective_timeout=collective, rendezvous_timeout=rendezvous)
    made = plan(make_job(A, framework="deepspeed", run=Run(script="x.py"), communication=talk), SEED)
    assert made.nodes[0].processes[0].env["DEEPSPEED_TIMEOUT"] == minutes
    assert ("collective-timeout" in {finding.code for finding in made.findings}) is is_told


def test_torchruns_own_limit_is_longer_than_the_one_that_names_the_node() -> None:
    nodes = nodes_of(A, B, communication=Communication(rendezvous_timeout="90s"))
    assert [arg for arg in nodes[1].processes[0].argv if "timeout" in arg] == ["--rdzv-conf=timeout=180"]


def test_the_reference_has_every_option_of_every_framework() -> None:
    reference = (Path(__file__).parents[3] / "docs" / "reference.md").read_text(encoding="utf-8")
    section = reference.partition("### Options of frameworks\n")[2].partition("\n### ")[0]
    missing = {}
    for framework in frameworks():
        table = section.partition(f"\n`{framework.name}`")[2].partition("\n\n`")[0]
        keys = {word for line in table.splitlines() if line.startswith("| `") for word in line.split("|")[1].split()}
        missing[framework.name] = {f"`{key}`" for key in keys_of(framework.options)} ^ keys
    assert not any(missing.values()), missing
