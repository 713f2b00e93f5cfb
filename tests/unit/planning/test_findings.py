"""Everything a plan has to say: what forbids a launch, what a person should weigh, and what is only told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dttui.frameworks import get_framework
from dttui.inventory import Environment, Inventory
from dttui.inventory.models import CpuResources, GpuResources, Resources
from dttui.planning.models import Finding, Severity
from dttui.planning.planner import plan
from dttui.spec.models import (
    Checkpoint,
    Cluster,
    Communication,
    CpuRequest,
    DataParallel,
    DatasetRef,
    GpuRequest,
    Job,
    Model,
    NetworkRequest,
    Node,
    Recovery,
    ResourceDefaults,
    Run,
    Storage,
    StorageRequest,
    Strategy,
    Topology,
)
from tests.unit.seed_cluster import GB, SEED, environment, host_facts, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
SIMULATED = Resources(gpu=GpuResources(count=2, type="A100", simulated=True))


def test_words_that_no_shell_fills_in_are_told_and_those_of_dttui_or_a_shell_are_not() -> None:
    job = make_job()
    told = {
        "a.py": findings(job.model_copy(update={"run": Run(script="a.py", args=("--x=${DATA}", "$1"))})),
        "ours": findings(job.model_copy(update={"run": Run(script="a.py", args=("${DIRECTORY}/x", "^a$", "5$"))})),
        "bash": findings(
            job.model_copy(update={"framework": "command", "run": Run(command=("bash", "-c", "echo $X"))})
        ),
    }
    assert "${DATA}, $1" in told["a.py"]["not-filled-in"].message
    assert not any("not-filled-in" in told[name] for name in ("ours", "bash"))


def findings(job: Job, inventory: Inventory = SEED, facts: Any = None) -> dict[str, Finding]:
    return {item.code: item for item in plan(job, inventory, facts).findings}


def of_environments(*environments: Environment) -> dict[str, Finding]:
    inventory = Inventory(environments=environments)
    return findings(make_job(*(item.name for item in environments)), inventory)


def only(code: str, found: dict[str, Finding], severity: Severity) -> Finding:
    assert list(found) == [code]
    assert found[code].severity is severity
    return found[code]


def test_a_good_plan_within_one_zone_has_nothing_to_say() -> None:
    assert of_environments(environment("a", 2, zone="z"), environment("b", 2, zone="z")) == {}


def test_no_node_is_an_error() -> None:
    only("no-nodes", findings(make_job()), Severity.ERROR)


def test_an_unknown_environment_is_named_with_the_nearest() -> None:
    finding = only("unknown-environment", findings(make_job("pytorch-dev-evn")), Severity.ERROR)
    assert finding.message == 'the inventory has no environment "pytorch-dev-evn"'
    assert finding.hint == 'did you mean "pytorch-dev-env"?'
    assert "nlp-research-lab" in findings(make_job("zzz"))["unknown-environment"].hint
    assert "--demo" in findings(make_job("a"), Inventory())["unknown-environment"].hint


def test_one_environment_under_its_id_and_its_name_is_one_too_many() -> None:
    finding = only("same-environment", findings(make_job(A, "env-001")), Severity.ERROR)
    assert finding.subject == "env-001"


@pytest.mark.parametrize(
    ("missing", "code"),
    [
        ({"run": None}, "run-missing"),
        ({"framework": None}, "framework-missing"),
        ({"dataset": None}, "dataset-missing"),
    ],
)
def test_what_a_plan_needs_is_named_where_it_is_missing(missing: dict[str, Any], code: str) -> None:
    finding = only(code, findings(make_job(A, **missing)), Severity.ERROR)
    assert finding.hint


def test_errors_come_first_then_warnings_then_the_rest() -> None:
    job = make_job(A, B, dataset=None, recovery=Recovery(checkpoint=Checkpoint(dir="/c", copies=1)))
    severities = [item.severity for item in plan(job, SEED).findings]
    assert severities == [Severity.ERROR, Severity.WARNING, Severity.INFO]


def test_what_runs_must_go_with_the_framework() -> None:
    command = Run(command=("x",))
    assert findings(make_job(A, run=command))["run-mismatch"].subject == "run.command"
    assert findings(make_job(A, framework="command"))["run-mismatch"].subject == "run.script"
    assert findings(make_job(A, framework="command", run=command)) == {}


def test_a_warm_start_says_what_it_costs_and_goes_with_torchrun_alone() -> None:
    script = Run(script="train.py", workdir="/w", warm_start=True)
    told = only("warm-start", findings(make_job(A, run=script)), Severity.INFO)
    assert "30 minutes" in told.message
    assert "MB" in told.message
    prefixed = script.model_copy(update={"prefix": ("numactl",)})
    only("warm-start-prefix", findings(make_job(A, run=prefixed)), Severity.ERROR)
    command = Run(command=("x",), warm_start=True)
    refused = only("run-mismatch", findings(make_job(A, framework="command", run=command)), Severity.ERROR)
    assert refused.subject == "run.warm_start"
    process = plan(make_job(A, run=script), SEED).nodes[0].processes[0]
    assert (process.name, process.warm_start) == ("launcher", True)


def test_datasets_that_are_not_in_the_catalogue_are_named_with_the_nearest() -> None:
    finding = only("unknown-dataset", findings(make_job(A, dataset=DatasetRef(id="imagnet"))), Severity.ERROR)
    assert finding.hint == 'did you mean "imagenet"?'
    job = make_job(A, dataset=DatasetRef(id="imagenet", version="9"))
    finding = only("unknown-dataset-version", findings(job), Severity.ERROR)
    assert finding.hint == "There are: v1, v2."
    empty = findings(make_job("a", dataset=DatasetRef(id="x")), Inventory(environments=(environment("a"),)))
    assert "lists no datasets" in empty["unknown-dataset"].hint


def by_command(name: str, container: str, gpus: int | None = None, **fields: Any) -> Environment:
    return environment(name, gpus, **{"host": None, "exec": ("docker", "exec", "-i", container), **fields})


@pytest.mark.parametrize(
    "pair",
    [
        (environment("a", address="10.0.0.1"), environment("b", address="10.0.0.1")),
        (environment("a", host="h", address="10.0.0.1"), environment("b", host="H.", address="10.0.0.2")),
        (environment("a", host="h", port=22, address="x"), environment("b", host="h", address="y")),
        (environment("a", host="fd00::1"), environment("b", host="[FD00:0::1]")),
        (environment("a", host="localhost"), environment("b", host="127.0.0.1")),
        (environment("a", host="x", address="127.0.0.1", local=True), environment("b", host="localhost")),
        (
            environment("a", host="localhost", local=True, agent_root="/r"),
            environment("b", host="localhost", local=True, agent_root="/r"),
        ),
        (environment("a", host="localhost", local=True), environment("b", host="localhost", local=True)),
        (by_command("a", "c1", address="10.0.0.1"), by_command("b", "c1", address="10.0.0.2")),
        (by_command("a", "c1"), by_command("b", "c1")),
        (by_command("a", "c1", address="10.0.0.1"), environment("b", address="10.0.0.1")),
        (environment("a", host="localhost", local=True), by_command("b", "c1", address="127.0.0.1")),
    ],
)
def test_two_nodes_with_one_address_are_an_error(pair: tuple[Environment, Environment]) -> None:
    finding = of_environments(*pair)["same-address"]
    assert finding.severity is Severity.ERROR
    assert finding.subject == "b"
    assert "two nodes with one address: a and b" in finding.message


@pytest.mark.parametrize(
    "pair",
    [
        (
            environment("a", host="localhost", local=True, agent_root="/r/a"),
            environment("b", host="localhost", local=True, agent_root="/r/b"),
        ),
        (
            environment("a", host="h", port=2201, address="10.0.0.1"),
            environment("b", host="h", port=2202, address="10.0.0.2"),
        ),
        (
            environment("a", host="10.0.0.1", proxy_jump="j1", address="10.1.0.1"),
            environment("b", host="10.0.0.1", proxy_jump="j2", address="10.1.0.2"),
        ),
        # Two containers that have the network of their machine.
        (by_command("a", "c1", address="10.0.0.1"), by_command("b", "c2", address="10.0.0.1")),
        (by_command("a", "c1"), by_command("b", "c2")),
    ],
)
def test_what_only_looks_like_one_host_is_none(pair: tuple[Environment, Environment]) -> None:
    assert "same-address" not in of_environments(*pair)


def test_of_a_host_reached_by_a_command_the_address_must_be_said_where_there_are_others() -> None:
    named, nameless = by_command("a", "c1", 1, address="10.0.0.1"), by_command("b", "c2", 1)
    inventory = Inventory(environments=(named, nameless))
    found = only("no-address", findings(make_job("a", "b"), inventory), Severity.ERROR)
    assert found.message == "b: nothing says by which address the other nodes reach it"
    assert found.hint == "Set `address` of b in the inventory to one in the hosts' own network."
    facts = {"b": host_facts(1, addresses={"lo": ["127.0.0.1"], "eth0": ["172.17.0.2", "fd00::2"]})}
    assert findings(make_job("a", "b"), inventory, facts)["no-address"].hint.endswith("It has 172.17.0.2, fd00::2.")
    assert "no-address" not in findings(make_job("b"), inventory)
    assert plan(make_job("b"), inventory).master_address == "127.0.0.1"
    assert "no-address" not in of_environments(named, by_command("b", "c2", host="gpu2"))
    assert "no-address" not in of_environments(*(environment(name, host=None, local=True) for name in "ab"))


def test_more_gpus_than_there_are_is_an_error_with_both_numbers() -> None:
    node = Node.model_validate({"id": A, "resources": {"gpu": {"count": 3}}})
    finding = only("too-many-gpus", findings(make_job(node)), Severity.ERROR)
    assert finding.message == "3 GPUs are asked of pytorch-dev-env, which has 2"
    assert "has 1" in findings(make_job(node), SEED, {A: host_facts(1)})["too-many-gpus"].message


def test_gpus_of_which_nothing_is_known_are_taken_to_be_there_with_a_warning() -> None:
    job = make_job("a", resources=ResourceDefaults(gpu=GpuRequest(count=4)))
    inventory = Inventory(environments=(environment("a"),))
    only("gpus-unknown", findings(job, inventory), Severity.WARNING)
    assert plan(job, inventory).nodes[0].cuda_slots == 4


def test_hosts_of_which_no_count_of_gpus_is_known_are_named_in_one_warning() -> None:
    found = only("gpus-not-declared", of_environments(environment("a"), environment("b")), Severity.WARNING)
    assert "how many GPUs a, b have is not known: planned with one process each" in found.message
    facts = {name: host_facts(1, "NVIDIA A100-SXM4-80GB") for name in "ab"}
    inventory = Inventory(environments=(environment("a"), environment("b")))
    assert "gpus-not-declared" not in findings(make_job("a", "b"), inventory, facts)


def test_a_host_that_has_not_what_the_inventory_declares_is_warned_of() -> None:
    facts = {A: host_facts(0, gpu_note="no NVIDIA driver")}
    finding = findings(make_job(A), SEED, facts)["gpu-count-differs"]
    assert finding.severity is Severity.WARNING
    assert finding.message == "pytorch-dev-env is declared with 2 GPUs and has 0"
    assert finding.hint == "no NVIDIA driver"


@pytest.mark.parametrize(
    ("resources", "code", "numbers"),
    [
        (ResourceDefaults(gpu=GpuRequest(memory=96 * GB)), "too-little-gpu-memory", "96GB asked for, 80GB there"),
        (ResourceDefaults(cpu=CpuRequest(cores=17)), "too-little-cpu-cores", "17 asked for, 16 there"),
        (ResourceDefaults(cpu=CpuRequest(memory=129 * GB)), "too-little-host-memory", "129GB asked for, 128GB there"),
    ],
)
def test_too_little_is_an_error_with_both_numbers(resources: ResourceDefaults, code: str, numbers: str) -> None:
    finding = only(code, findings(make_job(A, resources=resources)), Severity.ERROR)
    assert numbers in finding.message


def test_a_nominal_80gb_gpu_has_what_it_says() -> None:
    job = make_job(A, resources=ResourceDefaults(gpu=GpuRequest(memory=80 * GB, type="A100")))
    assert findings(job, SEED, {A: host_facts(2, memory_total_mib=500_000)}) == {}


def test_another_gpu_type_than_asked_for_is_warned_of() -> None:
    job = make_job(A, resources=ResourceDefaults(gpu=GpuRequest(type="V100")))
    assert "V100" in only("gpu-type-differs", findings(job), Severity.WARNING).message


def test_several_zones_are_warned_of_by_name() -> None:
    finding = only("cross-zone", findings(make_job(A, B, C)), Severity.WARNING)
    assert "beijing-a, shenzhen-c, shanghai-a" in finding.message
    assert "latency" in finding.message


def test_simulated_gpus_are_said_to_be_so() -> None:
    only("simulated", of_environments(environment("a", resources=SIMULATED)), Severity.INFO)


@pytest.mark.parametrize(
    ("protocol", "resources", "backend", "code", "severity"),
    [
        ("NCCL", None, "nccl", None, None),
        (None, None, "nccl", None, None),
        ("custom", None, "nccl", "custom-protocol", Severity.INFO),
        ("NCCL", SIMULATED, "gloo", "gloo-instead-of-nccl", Severity.INFO),
        ("MPI", None, "nccl", "mpi", Severity.ERROR),
        ("gRPC", None, "gloo", "grpc", Severity.WARNING),
    ],
)
def test_the_backend_follows_from_protocol_and_hardware(
    protocol: Any, resources: Resources | None, backend: str, code: str | None, severity: Severity | None
) -> None:
    inventory = Inventory(
        environments=(environment("a", 2) if resources is None else environment("a", resources=resources),)
    )
    made = plan(make_job("a", communication=Communication(protocol=protocol)), inventory)
    assert made.backend == backend
    told = {item.code: item.severity for item in made.findings if item.code != "simulated"}
    assert told == ({code: severity} if code else {})


def test_hosts_with_and_without_gpus_all_run_on_gloo_and_it_is_said() -> None:
    inventory = Inventory(environments=(environment("a", 2), environment("b", 0)))
    made = plan(make_job("a", "b"), inventory)
    assert made.backend == "gloo"
    assert [item.code for item in made.findings] == ["mixed-devices"]


def test_an_unknown_option_of_pytorch_ddp_beside_its_own_is_named() -> None:
    options = {"elastic": {"min_nodes": 1}, "wrap": "size"}
    job = make_job(A, B, framework="pytorch-ddp", framework_options=options, recovery=Recovery())
    found = [item for item in plan(job, SEED).findings if item.code == "framework-option"]
    assert [(item.message, item.path) for item in found] == [
        ("PyTorch DDP has no option wrap", ("framework_options", "wrap"))
    ]


@pytest.mark.parametrize("framework", ["tensorflow", "command"])
def test_options_of_a_framework_that_has_none_are_told_so(framework: str) -> None:
    job = make_job(A, framework=framework, framework_options={"wrap": "size", "x": 1})
    finding = findings(job)["framework-option"]
    assert finding.message == f"{get_framework(framework).label} has no options"
    assert finding.path == ("framework_options",)


def test_parameter_servers_belong_to_tensorflow() -> None:
    cluster = Cluster(nodes=(Node(id=A), Node(id=B, role="parameter_server"), Node(id=C)))
    assert findings(make_job(cluster=cluster))["parameter-server"].severity is Severity.ERROR
    assert "parameter-server" not in findings(make_job(cluster=cluster, framework="tensorflow"))


def test_keys_that_nothing_comes_of_or_the_script_alone_acts_upon_are_named_and_not_dropped_in_silence() -> None:
    job = make_job(
        cluster=Cluster(
            nodes=(Node(id=A, network=NetworkRequest.model_validate({"latency": "5ms"})),),
            topology=Topology(type="ring"),
        ),
        recovery=Recovery(checkpoint=Checkpoint(dir="/c", copies=1)),
        resources=ResourceDefaults(storage=StorageRequest(local=Storage(path="/s", size=GB, type="nfs"))),
    )
    found = findings(job)
    assert found.keys() == {"for-script", "not-acted-upon"}
    finding = found["not-acted-upon"]
    assert finding.message.endswith("without another attempt nothing comes of: recovery.checkpoint.copies")
    assert found["for-script"].message.endswith("names: cluster.topology.type, resources.storage.local.type")
    (node,) = plan(job, SEED).nodes
    config = json.loads(next(file.text for file in node.files if file.path == "dttui_config.json"))
    assert (config["topology"]["type"], config["storage"]["local"]["type"]) == ("ring", "nfs")
    assert node.required_room == {"/s": GB}


def test_a_thousand_nodes_are_planned_by_their_number_alone_and_a_launch_asks_which() -> None:
    cluster = Cluster(count=1000, gpus_per_node=8)
    resources = ResourceDefaults(gpu=GpuRequest(type="A100", memory=80 * GB))
    model = Model(name="gpt", parameters=175e9, layers=96, hidden_size=12288)
    strategy = Strategy(tensor_parallel_size=8, pipeline_parallel_size=4, data_parallel=DataParallel(batch_size=8000))
    made = plan(
        make_job(cluster=cluster, resources=resources, model=model, strategy=strategy, framework="megatron-lm"), SEED
    )
    (asked,) = made.errors
    assert (asked.code, asked.path) == ("no-nodes", ("cluster", "count"))
    assert asked.message == "this says how many nodes, and not which: 1000"
    assert asked.hint.endswith("1 of the inventory fit: nlp-research-lab")
    assert (made.by_count, made.world_size, len(made.nodes)) == (True, 8000, 1000)
    assert made.aggregate.gpu_memory_bytes == 8000 * 80 * GB
    assert made.estimate is not None
    assert made.nodes[999].processes[0].argv[-1]
    assert [item.code for item in made.preview.errors] == []


def test_counted_nodes_without_a_number_of_gpus_are_told() -> None:
    made = plan(make_job(cluster=Cluster(count=2)), SEED)
    assert [node.slots for node in made.nodes] == [1, 1]
    (finding,) = (item for item in made.findings if item.code == "gpus-not-declared")
    assert finding.message.startswith("nothing says how many GPUs each of the 2 nodes has")
    assert finding.hint == "Write cluster.gpus_per_node, or resources.gpu.count."
    told = findings(make_job(cluster=Cluster(count=2, gpus_per_node=1)))
    assert "gpus-not-declared" not in told


def test_environments_fit_by_all_that_is_asked_of_each_node() -> None:
    def fitting(**asked: object) -> str:
        resources = ResourceDefaults.model_validate(asked)
        (finding,) = plan(make_job(cluster=Cluster(count=2, gpus_per_node=2), resources=resources), offered).errors
        return finding.hint.rpartition(": ")[2]

    offered = Inventory(
        environments=tuple(
            environment(
                name,
                host=f"{name}.example.org",
                resources=Resources(
                    gpu=GpuResources(count=2, type=kind, memory=memory * GB),
                    cpu=CpuResources(cores=cores, memory=64 * GB),
                ),
            )
            for name, kind, memory, cores in (("a", "A100", 80, 16), ("b", "V100", 80, 16), ("c", "A100", 40, 8))
        )
    )
    assert fitting() == "a, b, c"
    assert fitting(gpu={"type": "A100"}) == "a, c"
    assert fitting(gpu={"memory": "80GB"}) == "a, b"
    assert fitting(cpu={"cores": 16}) == "a, b"
    assert fitting(cpu={"memory": "128GB"}) == "List environments of the inventory under cluster.nodes."


def test_a_checkpoints_interval_that_the_estimate_chose_is_not_told_as_the_scripts() -> None:
    model = Model(name="gpt", parameters=1e9, layers=24, hidden_size=2048)
    job = make_job(C, model=model, recovery=Recovery(checkpoint=Checkpoint(dir="/c", keep=2)))
    made = plan(job, SEED)
    assert made.resumption.interval_s is not None
    assert "for-script" not in {item.code for item in made.findings}


def test_gpus_of_several_types_are_told_without_a_models_size() -> None:
    mixed = Inventory(
        environments=tuple(
            environment(name, resources=Resources(gpu=GpuResources(count=2, type=kind)), host=f"{name}.example.org")
            for name, kind in (("a", "A100"), ("v", "V100"), ("z", "Z9"))
        )
    )
    finding = only("gpu-types-mixed", findings(make_job("a", "v"), mixed), Severity.WARNING)
    assert finding.message.startswith("GPUs of different types take part (2×A100, 2×V100)")
    assert finding.message.endswith("; in fp16 43% of all their time is lost by that")
    assert "leave out the slowest (v)" in finding.hint
    model = Model(name="x", parameters=1e9, layers=5, hidden_size=999, heads=3)
    sized = make_job("a", "v", model=model, strategy=Strategy(tensor_parallel_size=2))
    assert "axiom-balance" not in findings(sized, mixed)
    assert findings(sized, mixed)["gpu-types-mixed"].severity is Severity.WARNING
    known = make_job("a", "v", model=Model(name="x", parameters=1e9, layers=24, hidden_size=2048))
    assert findings(known, mixed).keys() & {"axiom-balance", "gpu-types-mixed"} == {"axiom-balance"}
    unknown = only("gpu-types-mixed", findings(make_job("a", "z"), mixed), Severity.WARNING)
    assert unknown.message.endswith("every step waits for the slowest")
    assert findings(make_job("a"), mixed) == {}


def test_replacing_a_node_needs_checkpoints_that_all_hosts_see() -> None:
    without = Recovery(on_node_failure="replace", checkpoint=Checkpoint(dir="/c"))
    assert findings(make_job(A, recovery=without))["replace-needs-shared"].severity is Severity.ERROR
    shared = Recovery(on_node_failure="replace", checkpoint=Checkpoint(dir="/c", shared=True))
    assert "replace-needs-shared" not in findings(make_job(A, recovery=shared))


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (Run(script="../train.py"), "script-outside"),
        (Run(script="a/../../train.py", workdir="src"), "script-outside"),
        (Run(script="~/train.py"), "tilde"),
        (Run(script="train.py", workdir="~/code"), "tilde"),
    ],
)
def test_places_that_mean_nothing_on_the_hosts_are_errors(run: Run, code: str) -> None:
    only(code, findings(make_job(A, run=run)), Severity.ERROR)
