"""What a job says of how ranks talk: every key under every framework has an effect, or a finding that says why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from dtagent.payload.collectives.schedules import ALGORITHMS
from pydantic import BaseModel

from dttui.frameworks.parts.collective_settings import OF_THE_OPERATORS
from dttui.frameworks.parts.environment import CONFIG_FILE
from dttui.inventory.models import Inventory
from dttui.planning.cost.links import MeasuredLink, newest
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.spec.cluster import Topology
from dttui.spec.communication import Communication
from dttui.spec.entry_points import OWN_FRAMEWORKS
from dttui.spec.findings import Finding
from dttui.spec.models import Cluster, Model, Node, ResourceDefaults, Run, Strategy
from tests.unit.seed_cluster import environment, make_job

ON_GPUS, ON_CPUS = ("a", "b"), ("c", "d")
HOSTS = Inventory(environments=(*(environment(name, 2) for name in ON_GPUS), *map(environment, ON_CPUS)))
EXAMPLES: dict[str, list[Any]] = {
    "communication.rendezvous_timeout": ["20m"],
    "communication.collective_timeout": ["90s"],
    "cluster.topology.type": ["fat_tree"],
    "cluster.topology.between_groups.bandwidth": ["10Gbps"],
    "cluster.topology.between_groups.latency": ["1ms"],
    "cluster.topology.groups": [({"name": "rack 1", "nodes": ["{first}"]}, {"name": "rack 2", "nodes": ["{second}"]})],
}
"""Values of the keys whose type does not say any."""


def leaves(model: type[BaseModel], path: str) -> Iterator[tuple[str, Any]]:
    """Yield each key below a section, with each value that it may have, or one."""
    for name, field in model.model_fields.items():
        key = f"{path}.{name}"
        kinds = [kind for kind in (field.annotation, *get_args(field.annotation)) if kind is not None]
        below = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if key in EXAMPLES:
            yield from ((key, value) for value in EXAMPLES[key])
        elif below is not None:
            yield from leaves(below, key)
        elif literal := next((kind for kind in kinds if get_origin(kind) is Literal), None):
            yield from ((key, value) for value in get_args(literal))
        elif bool in kinds:
            yield from ((key, value) for value in (True, False))
        else:
            yield key, 50_000_000  # Bytes.


KEYS = [*leaves(Communication, "communication"), *leaves(Topology, "cluster.topology")]


def sections(key: str, value: Any, nodes: tuple[str, ...]) -> dict[str, Any]:
    """Return what a job has besides, to say one thing."""
    top, *inner = key.split(".")
    said: Any = value
    if isinstance(value, tuple):
        names = dict(zip(("{first}", "{second}"), nodes, strict=True))
        said = [{**item, "nodes": [names[name] for name in item["nodes"]]} for item in value]
    for name in reversed(inner):
        said = {name: said}
    if top == "communication":
        return {"communication": Communication.model_validate(said)}
    return {"cluster": Cluster.model_validate({"nodes": [Node(id=node) for node in nodes], **said})}


def planned(framework: str, nodes: tuple[str, ...], **fields: Any) -> Plan:
    runs = {"run": Run(command=("./train",))} if framework == "command" else {}
    return plan(make_job(*nodes, framework=framework, **runs, **fields), HOSTS)


def told(finding: Finding) -> str:
    return f"{finding.subject} {finding.message}"


def rendered(made: Plan) -> list[Any]:
    """Return what frameworks are told: all but the file in which the script finds all of the job."""
    return [
        (node.processes, [file for file in node.files if file.path != CONFIG_FILE], made.rendezvous_timeout_s)
        for node in made.nodes
    ]


@pytest.mark.parametrize("nodes", [ON_GPUS, ON_CPUS], ids=["gpus", "cpus"])
@pytest.mark.parametrize("framework", OWN_FRAMEWORKS)
def test_every_key_has_an_effect_or_a_finding(framework: str, nodes: tuple[str, ...]) -> None:
    bare, silent = planned(framework, nodes), []
    known = {told(finding) for finding in bare.findings}
    for key, value in KEYS:
        made = planned(framework, nodes, **sections(key, value, nodes))
        of_key = [item for item in made.findings if told(item) not in known and key in told(item)]
        is_usual = value == "none" or str(value).lower() == bare.backend == made.backend
        if rendered(made) == rendered(bare) and not of_key and not is_usual:
            silent.append(f"{key}: {value}")
    assert silent == []


LONG = MeasuredLink(kind="hosts", between=ON_GPUS, bandwidth=1.25e9, round_trip_s=16e-3, measured_at=1.0)
"""10 Gbit/s over 16 ms there and back: 20 MB are on their way at once."""
MIB = 1 << 20
# Without a model: 9·a/c, with a = 2(n−1)α and 1/c = B·n/(2(n−1)), so 9·n·α·B of four ranks.
BY_LINK = 9 * 4 * 8e-3 * 1.25e9


SMALL_PACKS = {"allreduce": {"buffer_size": 100_000}}


def variables(made: Plan) -> dict[str, str]:
    return made.nodes[0].processes[0].env


def document(made: Plan, name: str = CONFIG_FILE) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next(file.text for file in made.nodes[0].files if file.path == name))
    return found


def arguments(made: Plan) -> list[str]:
    names = ("ddp-bucket", "overlap-grad", "grad-reduce")
    return [word for word in made.nodes[0].processes[0].argv if word[2:].startswith(names)]


def test_the_operators_have_the_algorithms_that_a_plan_says_they_have() -> None:
    there = {kind.value.replace("all_", "all"): set(found) for kind, found in ALGORITHMS.items()}
    named = {name: set(found) for name, found in OF_THE_OPERATORS.items()}
    assert {name: there[name] - {"hierarchical"} for name in named} == named  # Which no key of a job can name.


def talking(framework: str, *, link: MeasuredLink | None = None, **fields: Any) -> Plan:
    others: dict[str, Any] = {
        name: fields.pop(name) for name in ("framework_options", "strategy", "model", "run") if name in fields
    }
    said: dict[str, Any] = {"communication": Communication.model_validate(fields), **others}
    job = make_job(*ON_GPUS, framework=framework, **said)
    return plan(job, HOSTS, links=newest([link]) if link is not None else None, now=3600.0 * 2 + 1.0)


def test_the_bucket_that_a_measured_link_asks_for_reaches_every_framework_that_has_one() -> None:
    assert document(talking("pytorch-ddp", link=LONG))["distributed"]["bucket_bytes"] == pytest.approx(BY_LINK)
    sharded = {"strategy": Strategy(zero_stage=2), "model": Model(precision="bf16", parameters=1e6)}
    zero = document(talking("deepspeed", link=LONG, **sharded), "ds_config.json")["zero_optimization"]
    assert zero["reduce_bucket_size"] == 1e6  # All of the model, of two bytes each.
    assert "allgather_bucket_size" not in zero  # Which nothing is computed beside.
    horovod = variables(talking("horovod", link=LONG))
    assert int(horovod["HOROVOD_FUSION_THRESHOLD"]) == pytest.approx(BY_LINK)
    assert horovod["HOROVOD_CYCLE_TIME"] == "32.0"  # Two rounds up a tree of four ranks and two down, of 8 ms.
    assert arguments(talking("megatron-lm", link=LONG)) == []
    overlapping = arguments(talking("megatron-lm", link=LONG, overlap=True))
    assert overlapping[0] == "--overlap-grad-reduce"
    assert int(overlapping[1].removeprefix("--ddp-bucket-size=")) == pytest.approx(BY_LINK / 4, rel=1e-6)


def test_what_a_person_says_goes_over_what_the_link_asks_for() -> None:
    several = Run(script="/opt/train.py", args=("--ddp-num-buckets", "8"))
    assert arguments(talking("megatron-lm", link=LONG, overlap=True, run=several)) == [
        "--overlap-grad-reduce"
    ]  # Megatron takes no size beside.
    tunes = Run(script="/opt/train.py", env={"HOROVOD_AUTOTUNE": "1"})
    assert not variables(talking("horovod", link=LONG, run=tunes)).keys() & {
        "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME"
    }  # Which it would not tune.  # fmt: skip
    asked = {"allreduce": {"buffer_size": 4 * MIB}}
    made = talking("pytorch-ddp", link=LONG, **asked)
    assert document(made)["distributed"]["bucket_bytes"] == 4 * MIB
    assert variables(made)["NCCL_BUFFSIZE"] == str(4 * MIB)
    found = next(item for item in made.findings if item.code == "bucket-size")
    assert found.message.startswith(
        "343 MiB of gradients had best be reduced at once, as an all-reduce of nothing takes"
    )
    assert found.message.endswith("a ↔ b: 16 ms there and back, 10 Gbit/s a node, measured 2 h ago")
    assert found.hint == "The job says 4 MiB."
    own = {"framework_options": {"fusion_threshold": 7, "cycle_time_ms": 2.0}}
    told = variables(talking("horovod", link=LONG, **own))
    assert (told["HOROVOD_FUSION_THRESHOLD"], told["HOROVOD_CYCLE_TIME"]) == ("7", "2.0")
    tuned = variables(talking("horovod", link=LONG, framework_options={"autotune": True}))
    assert not tuned.keys() & {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME"}


def test_without_a_measured_or_declared_network_frameworks_keep_their_own_sizes() -> None:
    for framework in ("pytorch-ddp", "deepspeed", "horovod", "megatron-lm"):
        made = talking(framework, strategy=Strategy(zero_stage=1))
        assert document(made)["distributed"]["bucket_bytes"] is None
        assert not [item for item in made.findings if item.code == "bucket-size"]
    assert not variables(talking("horovod")).keys() & {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME"}
    declared = {"network": {"bandwidth": "10Gbps", "latency": "8ms"}}
    job = make_job(*ON_GPUS, resources=ResourceDefaults.model_validate(declared))
    assert document(plan(job, HOSTS))["distributed"]["bucket_bytes"] == pytest.approx(BY_LINK)


@pytest.mark.parametrize(
    ("round_trip_s", "expected"), [(64e-3, str(8 * MIB)), (8e-3, str(8 * MIB)), (4e-3, None), (1e-4, None)]
)
def test_nccl_has_a_larger_buffer_only_where_more_than_its_own_is_on_the_way(
    round_trip_s: float, expected: str | None
) -> None:
    link = LONG.model_copy(update={"round_trip_s": round_trip_s})
    assert variables(talking("pytorch-ddp", link=link)).get("NCCL_BUFFSIZE") == expected


def test_nccl_is_told_the_algorithms_that_it_has() -> None:
    ops = {
        "allreduce": {"algorithm": "tree"},
        "allgather": {"algorithm": "ring"},
        "reduce_scatter": {"algorithm": "tree"},
    }
    made = talking("pytorch-ddp", collective_ops=ops, broadcast={"algorithm": "linear"})
    assert variables(made)["NCCL_ALGO"] == "allreduce:tree;allgather:ring"
    told_of = {item.subject for item in made.findings if item.code == "collective-setting"}
    assert told_of == {"communication.broadcast.algorithm", "communication.collective_ops.reduce_scatter.algorithm"}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_half_precision_on_the_wire_is_told_in_each_frameworks_words(dtype: str) -> None:
    fsdp = document(talking("pytorch-fsdp", compression=dtype), "fsdp_config.json")
    assert fsdp["mp_policy"]["reduce_dtype"] == {"fp16": "float16", "bf16": "bfloat16"}[dtype]
    assert document(talking("deepspeed", compression=dtype), "ds_config.json")["communication_data_type"] == dtype
    assert document(talking("horovod", compression=dtype))["distributed"]["compression"] == dtype
    megatron = arguments(talking("megatron-lm", compression=dtype, model=Model(precision="bf16")))
    assert megatron == (["--grad-reduce-in-bf16"] if dtype == "bf16" else [])


@pytest.mark.parametrize("overlap", [True, False])
def test_overlap_is_told_in_each_frameworks_words(overlap: bool) -> None:
    zero = document(talking("deepspeed", overlap=overlap, strategy=Strategy(zero_stage=1)), "ds_config.json")
    assert zero["zero_optimization"]["overlap_comm"] is overlap
    assert arguments(talking("megatron-lm", overlap=overlap)) == (["--overlap-grad-reduce"] if overlap else [])
    assert document(talking("pytorch-ddp", overlap=overlap))["distributed"]["overlap"] is overlap
    (horovod,) = (item for item in talking("horovod", overlap=overlap).findings if item.code == "collective-setting")
    words = "the backward pass goes on by itself" if overlap else "distributed.overlap, and the script has to pass that"
    assert words in horovod.message


def test_deepspeed_gathers_an_even_number_of_elements_whatever_the_size_is() -> None:
    for size, elements, even in ((80_004, 20_001, 20_000), (80_000, 20_000, 20_000), (3, 1, 2)):
        made = talking("deepspeed", allreduce={"buffer_size": size}, strategy=Strategy(zero_stage=1))
        zero = document(made, "ds_config.json")["zero_optimization"]
        assert (zero["reduce_bucket_size"], zero["allgather_bucket_size"]) == (elements, even)


def test_what_pipelines_and_parameter_servers_do_not_do_is_told() -> None:
    stages = Strategy(zero_stage=1, pipeline_parallel_size=2)
    servers = Cluster(nodes=(Node(id="c", role="master"), Node(id="d"), Node(id="a", role="parameter_server")))
    packs = Communication.model_validate({**SMALL_PACKS, "collective_timeout": "90s"})
    in_packs = make_job(framework="tensorflow", cluster=servers, communication=packs)
    codes, found = ("collective-setting", "collective-timeout"), dict[str, str]()
    for made in (talking("deepspeed", overlap=True, strategy=stages), plan(in_packs, HOSTS)):
        found |= {item.subject: item.message for item in made.findings if item.code in codes}
    assert found == {
        "communication.overlap": "DeepSpeed's pipelines reduce after the backward pass, whatever they are told",
        "communication.allreduce.buffer_size": "parameter servers get each gradient by itself",
        "communication.collective_timeout": "with parameter servers nobody waits in a collective: nothing comes of it",
    }


@pytest.mark.parametrize(
    ("framework", "options", "fields"),
    [
        ("pytorch-fsdp", {"reduce_dtype": "bf16"}, {"compression": "fp16"}),
        ("deepspeed", {"overlap_comm": False}, {"overlap": True}),
        ("deepspeed", {"config": {"zero_optimization": {"overlap_comm": False}}}, {"overlap": True}),
        ("deepspeed", {"config": {"communication_data_type": "bf16"}}, {"compression": "fp16"}),
        ("megatron-lm", {"arguments": {"overlap_grad_reduce": True}}, {"overlap": False}),
    ],
)
def test_two_keys_that_contradict_each_other_are_refused(
    framework: str, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    made = talking(framework, framework_options=options, **fields)
    assert [item.message for item in made.errors] == [
        f"this is not what communication.{next(iter(fields))} says; give it once"
    ]


def test_groups_of_nodes_slow_the_network_down_between_them_alone() -> None:
    near = {"groups": [{"name": "rack 1", "nodes": list(ON_GPUS)}], "between_groups": {"bandwidth": "1Gbps"}}
    far = {**near, "groups": [{"name": "rack 1", "nodes": ["a"]}]}

    def bandwidth(topology: dict[str, Any] | None) -> float:
        said = {"topology": topology} if topology is not None else {}
        cluster = Cluster.model_validate({"nodes": [Node(id=node) for node in ON_GPUS], **said})
        made = plan(make_job(cluster=cluster, model=Model(parameters=1e9)), HOSTS).estimate
        assert made is not None
        return float(made.inputs["inter_bandwidth"].value)

    assert bandwidth(far) == 1e9 / 8 / 2  # A GPU's share of two.
    assert bandwidth(near) == bandwidth(None) != bandwidth(far)
