"""What a job costs, seen through its plan: the estimate, the axioms of seed 001, and where nothing can be said."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from dttui.cli.estimate_text import estimate_lines
from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.planning.cost.hardware import GpuTable, GpuType
from dttui.planning.cost.links import MeasuredLink, newest
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.spec.findings import Finding, Severity
from dttui.spec.models import (
    AllReduce,
    Communication,
    DataParallel,
    Model,
    NetworkRequest,
    PipelineParallel,
    ResourceDefaults,
    Strategy,
)
from tests.unit.seed_cluster import GB, MIB, SEED, host_facts, make_job

NAMES = ("pytorch-dev-env", "llm-training-env", "nlp-research-lab")
MODEL = Model(parameters=1.3e9)
BATCH = Strategy(data_parallel=DataParallel(batch_size=112))


def planned(
    *nodes: str,
    inventory: Inventory = SEED,
    links: Any = None,
    facts: Any = None,
    now: float | None = None,
    **fields: Any,
) -> Plan:
    job = make_job(*nodes, **{"model": MODEL, "strategy": BATCH, **fields})
    return plan(job, inventory, facts, links=links, now=now)


def found(made: Plan) -> dict[str, Finding]:
    return {finding.code: finding for finding in made.findings}


def host(name: str, gpus: int, kind: str = "A100", memory_gb: int = 80, **fields: Any) -> Environment:
    gpu = GpuResources(count=gpus, type=kind, memory=memory_gb * GB)
    return Environment(name=name, host=f"{name}.example.org", resources=Resources(gpu=gpu), **fields)


def test_a_job_with_a_model_on_known_gpus_has_an_estimate() -> None:
    made = planned(*NAMES, strategy=Strategy(data_parallel=DataParallel(batch_size=14)))
    assert made.estimate is not None
    assert made.estimate.fits
    assert made.estimate.inputs["gpus"].value == 14
    assert made.estimate.inputs["model.parameters"].source == "declared"
    assert made.rules_of_thumb is not None
    assert made.rules_of_thumb.speed_up == pytest.approx(7.2 + 6 / 8 * 5.8)


@pytest.mark.parametrize("model", [None, Model(name="squeezenet")])
def test_nothing_is_estimated_of_a_model_of_unknown_size(model: Model | None) -> None:
    made = planned(*NAMES, model=model)
    assert made.estimate is None
    assert ("no-estimate" in found(made)) == (model is not None)


def test_simulated_gpus_and_unknown_types_have_no_estimate() -> None:
    simulated = host("a", 2).model_copy(
        update={"resources": Resources(gpu=GpuResources(count=2, type="A100", simulated=True))}
    )
    assert planned("a", inventory=Inventory(environments=(simulated,))).estimate is None
    odd = planned("a", inventory=Inventory(environments=(host("a", 2, "Voodoo"),)))
    assert odd.estimate is None
    assert "Voodoo" in found(odd)["no-estimate"].message
    assert "gpus.yaml" in found(odd)["no-estimate"].hint


def test_simulated_gpus_of_a_type_that_is_a_cpu_have_an_estimate_and_real_ones_have_none() -> None:
    numbers = {"memory_gib": 64, "fp32": 0.1, "memory_bandwidth": 10, "link": "pcie", "link_bandwidth": 1}
    table = GpuTable(gpus=(GpuType.model_validate({"name": "core", "type": "core", "device": "cpu", **numbers}),))
    for is_simulated in (True, False):
        gpu = GpuResources(count=2, type="core", simulated=is_simulated)
        known = Inventory(environments=(host("a", 2).model_copy(update={"resources": Resources(gpu=gpu)}),))
        made = plan(make_job("a", model=Model(parameters=1e8, precision="fp32")), known, gpus=table)
        assert (made.estimate is not None) is is_simulated
        assert (made.cost_basis is not None) is is_simulated


def test_gpus_of_which_nothing_is_known_are_told_with_the_remedy() -> None:
    bare = Environment(name="a", host="a.example.org")
    finding = found(planned("a", inventory=Inventory(environments=(bare,))))["no-estimate"]
    assert "the GPUs of a are not known" in finding.message
    assert "resources.gpu" in finding.hint
    assert "dttui agents deploy a" in finding.hint


def test_a_model_that_does_not_fit_is_a_warning_with_both_numbers() -> None:
    made = planned("a", inventory=Inventory(environments=(host("a", 8, "V100", 32),)), model=Model(parameters=13e9))
    assert made.estimate is not None
    assert not made.estimate.fits
    finding = found(made)["memory"]
    assert finding.severity is Severity.WARNING
    assert "34.4" in finding.message


def test_a_declared_size_is_nominal_and_what_the_driver_reports_counts() -> None:
    inventory = Inventory(environments=(host("a", 2),))
    nominal = planned("a", inventory=inventory).estimate
    assert nominal is not None
    assert nominal.gpu_memory_gb == pytest.approx(81920 * MIB / 1e9)
    assert nominal.inputs["gpu.memory_bytes"].source == "declared"
    reported = planned("a", inventory=inventory, facts={"a": host_facts(2)}).estimate
    assert reported is not None
    assert reported.inputs["gpu.memory_bytes"].source == "measured"


def test_the_axioms_come_with_their_numbers() -> None:
    inventory = Inventory(environments=(host("a", 8, zone="z"), host("b", 8, zone="z")))
    axioms = {code: item for code, item in found(planned("a", "b", inventory=inventory)).items() if "axiom" in code}
    assert list(axioms) == ["axiom-gradients", "axiom-parameters", "axiom-communication", "axiom-balance"]
    assert all(item.severity is Severity.INFO for item in axioms.values())
    assert "2.6 GB" in axioms["axiom-gradients"].message
    assert "16 replicas" in axioms["axiom-gradients"].message


def test_a_job_of_one_node_needs_no_axioms() -> None:
    assert not [code for code in found(planned(NAMES[2])) if code.startswith("axiom")]


def test_a_slow_link_between_zones_costs_more_than_the_ranks_gain() -> None:
    small = Strategy(data_parallel=DataParallel(batch_size=14))
    finding = found(planned(*NAMES, strategy=small))["axiom-communication"]
    assert finding.severity is Severity.WARNING
    assert "taken by default" in finding.message


def test_what_was_measured_between_zones_replaces_the_default() -> None:
    zones = ("beijing-a", "shenzhen-c", "shanghai-a")
    pairs = [(zones[0], zones[1]), (zones[1], zones[2]), (zones[0], zones[2])]
    old = [MeasuredLink(between=pair, bandwidth=1e6, round_trip_s=0.05, measured_at=1.0) for pair in pairs]
    new = [MeasuredLink(between=pair, bandwidth=100e9, round_trip_s=1e-5, measured_at=2.0) for pair in pairs]
    slow, fast = (planned(*NAMES, links=newest(links)) for links in (old, [*new, *old]))
    assert slow.estimate is not None
    assert fast.estimate is not None
    assert fast.estimate.inputs["inter_bandwidth"].source == "measured"
    assert fast.estimate.step_time_s.value < slow.estimate.step_time_s.value / 10


def test_the_warning_of_several_zones_has_the_links_numbers_and_what_they_cost() -> None:
    warned = found(planned(*NAMES))["cross-zone"].message
    assert "16 ms there and back, 10 Gbit/s a node, taken by default" in warned
    assert "communication takes" in warned
    link = MeasuredLink(
        between=("beijing-a", "shenzhen-c"), bandwidth=112.5e6, round_trip_s=0.031, measured_at=1_000_000.0
    )
    told = found(planned(*NAMES[:2], links=newest([link]), now=1_007_200.0))["cross-zone"].message
    assert "31 ms there and back, 0.9 Gbit/s a node, measured 2 h ago" in told


def test_a_link_between_two_hosts_of_one_zone_counts_once_it_is_measured() -> None:
    inventory = Inventory(environments=(host("a", 8, zone="z"), host("b", 8, zone="z")))
    link = MeasuredLink(kind="hosts", between=("a", "b"), bandwidth=8e9, round_trip_s=1e-4, measured_at=1.0)
    made = planned("a", "b", inventory=inventory, links=newest([link])).estimate
    assert made is not None
    assert made.inputs["inter_bandwidth"].value == 1e9  # A GPU's share.
    assert made.inputs["inter_bandwidth"].source == "measured"


def test_what_was_measured_inside_hosts_takes_the_place_of_the_data_sheet_where_each_has_it() -> None:
    """What collectives reached there is counted as it is: nothing is taken off for what they would reach."""
    inventory = Inventory(environments=(host("a", 8, zone="z"), host("b", 8, zone="z")))
    of_hosts = [
        MeasuredLink(kind="inside", between=(name, name), bandwidth=speed, round_trip_s=8e-5, measured_at=7.0)
        for name, speed in (("a", 4e9), ("b", 5e9))
    ]
    tensor = Strategy(data_parallel=DataParallel(batch_size=112), tensor_parallel_size=8)
    usual, one, both = (
        planned("a", "b", inventory=inventory, links=newest(links), strategy=tensor).estimate
        for links in ([], of_hosts[:1], of_hosts)
    )
    assert usual is not None
    assert one is not None
    assert both is not None
    assert one.step_time_s == usual.step_time_s
    assert both.step_time_s.value > 2 * usual.step_time_s.value
    inputs = both.inputs
    assert inputs["intra_bandwidth"].value == 4e9
    assert inputs["intra_latency_s"].source == "default"  # What was measured is of beginning a collective as well.
    assert inputs["efficiency.intra_node"].value == 1.0
    assert {inputs[name].measured_at for name in ("intra_bandwidth", "efficiency.intra_node")} == {7.0}


def test_all_reduce_and_broadcast_are_advised_with_the_seconds_of_each_algorithm() -> None:
    inventory = Inventory(environments=(host("a", 8), host("b", 8)))
    said = Communication(allreduce=AllReduce(algorithm="tree"))
    made = planned("a", "b", inventory=inventory, communication=said)
    advice = found(made)["advice-all-reduce"]
    assert "all-reduce of 2.6 GB over 16 ranks: ring with buffers of 4 MiB" in advice.message
    assert "hierarchical" in advice.message
    assert "The job says tree" in advice.hint
    assert "tree" in found(made)["advice-broadcast"].message
    assert made.estimate is not None
    reduce = made.estimate.collectives[0]
    assert reduce.seconds["ring"] < reduce.seconds["tree"]


def test_what_the_job_says_of_recomputation_sequence_and_chunks_is_costed_and_declared() -> None:
    inventory = Inventory(environments=(host("a", 8), host("b", 8)))
    strategy = Strategy(
        tensor_parallel_size=4,
        pipeline_parallel_size=4,
        recomputation="full",
        sequence_parallel=True,
        pipeline_parallel=PipelineParallel(virtual_stages=2, schedule="Interleaved"),
        data_parallel=DataParallel(batch_size=16),
    )
    model = Model(layers=24, hidden_size=4096, heads=32)
    made = planned("a", "b", inventory=inventory, strategy=strategy, model=model).estimate
    assert made is not None
    for name, value in (("recompute", "full"), ("sequence_parallel", True), ("virtual_stages", 2)):
        assert (made.inputs[f"layout.{name}"].value, made.inputs[f"layout.{name}"].source) == (value, "declared")
    assert made.step_time_s.parts["recompute"] > 0
    bare = Strategy(tensor_parallel_size=4, pipeline_parallel_size=4, data_parallel=DataParallel(batch_size=16))
    usual = planned("a", "b", inventory=inventory, strategy=bare, model=model).estimate
    assert usual is not None
    assert usual.inputs["layout.recompute"].value == "none"
    assert usual.inputs["layout.recompute"].source == "default"


def test_the_least_memory_of_any_gpu_is_what_must_suffice() -> None:
    inventory = Inventory(environments=(host("a", 4), host("b", 4, memory_gb=40)))
    made = planned("a", "b", inventory=inventory).estimate
    assert made is not None
    assert made.gpu_memory_gb == pytest.approx(40 * 2**30 / 1e9)


def test_a_declared_network_is_used_and_named_as_declared() -> None:
    inventory = Inventory(environments=(host("a", 8), host("b", 8)))
    network = ResourceDefaults(network=NetworkRequest.model_validate({"bandwidth": "10Gbps", "latency": "50us"}))
    made = planned("a", "b", inventory=inventory, resources=network).estimate
    assert made is not None
    assert made.inputs["inter_bandwidth"].source == "declared"
    assert made.inputs["inter_bandwidth"].value == pytest.approx(10e9 / 8 / 8)


def test_each_number_of_a_link_says_whether_it_was_measured_and_when() -> None:
    inventory = Inventory(environments=(host("a", 8, zone="x"), host("b", 8, zone="y")))
    whole = MeasuredLink(between=("x", "y"), bandwidth=8e9, round_trip_s=1e-4, measured_at=7.0)
    bare = MeasuredLink(between=("x", "y"), round_trip_s=1e-4, measured_at=9.0)
    slower = ResourceDefaults(network=NetworkRequest.model_validate({"bandwidth": "10Gbps", "latency": "50us"}))

    def told(*links: MeasuredLink, **fields: Any) -> list[tuple[str, float | None]]:
        made = planned("a", "b", inventory=inventory, links=newest(links), **fields).estimate
        assert made is not None
        found = (made.inputs[name] for name in ("inter_bandwidth", "inter_latency_s"))
        return [(item.source, item.measured_at) for item in found]

    assert told(whole) == [("measured", 7.0)] * 2
    assert told() == [("default", None)] * 2
    assert told(bare) == [("default", None), ("measured", 9.0)]
    assert told(whole, resources=slower) == [("declared", None), ("measured", 7.0)]  # The job's own is the slower.


def test_the_hosts_own_numbers_are_as_old_as_the_oldest_answer() -> None:
    known = [host_facts(8, time=time) for time in (30.0, 20.0)]
    inventory = Inventory(environments=(host("a", 8), host("b", 8)))
    made = planned("a", "b", inventory=inventory, facts=dict(zip("ab", known, strict=True))).estimate
    assert made is not None
    assert (made.inputs["gpus"].source, made.inputs["gpus"].measured_at) == ("measured", 20.0)
    lines = estimate_lines(made, 20.0 + 2 * 3600)
    assert "measured 2 h ago: 85.9 GB of memory, 16 GPUs" in lines
    assert any(line.startswith("taken by default: ") and "inter-node latency" in line for line in lines)


def test_unequal_gpus_lose_the_time_the_faster_ones_wait() -> None:
    inventory = Inventory(environments=(host("a", 4), host("b", 4, "V100", 32)))
    finding = found(planned("a", "b", inventory=inventory))["axiom-balance"]
    assert finding.severity is Severity.WARNING
    # 4 × 312 and 4 × 125 TFLOP/s, of which all work at 125.
    assert "43%" in finding.message
    assert "leave out the slowest (b)" in finding.hint


def test_degrees_are_those_of_the_job() -> None:
    inventory = Inventory(environments=(host("a", 8), host("b", 8)))
    strategy = Strategy(tensor_parallel_size=8, pipeline_parallel_size=2, data_parallel=DataParallel(batch_size=16))
    made = planned("a", "b", inventory=inventory, strategy=strategy, model=Model(parameters=13e9))
    assert made.estimate is not None
    assert made.estimate.inputs["layout.tensor"].source == "declared"
    assert made.estimate.step_time_s.parts["pipeline_bubble"] > 0
    assert made.formal is not None
    assert made.formal.parallelism.strategy == {"data": 1, "tensor": 8, "pipeline": 2}


def test_the_formal_description_names_nodes_model_collectives_and_data() -> None:
    formal = planned(*NAMES, dataset="none").formal
    assert formal is not None
    assert formal.system.nodes == NAMES
    assert formal.system.datasets == ()
    assert formal.communication.protocol == "nccl"
    assert "all_reduce" in formal.system.communications


def test_a_batch_that_the_ranks_cannot_share_is_told() -> None:
    made = planned(*NAMES, strategy=Strategy(data_parallel=DataParallel(batch_size=100)))
    assert "100" in found(made)["layout"].message


def test_a_network_that_carries_nothing_counts_as_not_declared() -> None:
    inventory = Inventory(environments=(host("a", 8), host("b", 8)))
    network = ResourceDefaults(network=NetworkRequest.model_validate({"bandwidth": "0Gbps"}))
    made = planned("a", "b", inventory=inventory, resources=network).estimate
    assert made is not None
    assert made.inputs["inter_bandwidth"].source == "default"


@pytest.mark.parametrize(
    "model", [{"layers": 10**30}, {"hidden_size": 10**200}, {"parameters": 1e300}, {"seq_length": 10**10}]
)
def test_a_model_larger_than_anything_is_refused(model: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="less than or equal"):
        Model.model_validate(model)


def test_nodes_with_2_4_and_8_gpus_are_three_nodes() -> None:
    made = planned(*NAMES, strategy=Strategy(data_parallel=DataParallel(batch_size=168))).estimate
    assert made is not None
    assert made.inputs["nodes"].value == 3
    assert made.inputs["gpus_per_node"].value == 2
    assert [row.nodes for row in made.scaling] == [1, 2, 3]
    assert made.scaling[0].speed_up == 1
    assert [row.speed_up / row.efficiency for row in made.scaling] == pytest.approx([1, 12 / 8, 14 / 8])
