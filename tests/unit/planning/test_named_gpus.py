"""GPUs of a node that a job names by their numbers: what a file may say, what the plan has of it, and the screen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from dtagent.protocol.facts import HostFacts

from dttui.cli.plan_text import plan_document, plan_text
from dttui.errors import LaunchError
from dttui.export.targets import get_target
from dttui.inventory.models import GpuResources, Inventory, Resources
from dttui.launch.local_plan import make_local_plan
from dttui.planning.aggregate import Choice, aggregate, gpu_text
from dttui.planning.binding import bind
from dttui.planning.compose_state import ComposeState
from dttui.planning.lineup import Lineup
from dttui.planning.models import Bindings, NodeBinding, Plan, Severity
from dttui.planning.planner import plan
from dttui.planning.submission import Submission
from dttui.spec import DocumentError, dump_job, format_path, parse_job
from dttui.spec.format import format_job
from dttui.spec.models import GpuRequest, Node, NodeResources, ResourceDefaults
from dttui.words import gpu_numbers
from tests.unit.export.test_render_scripts import ejected
from tests.unit.seed_cluster import MIB, SEED, environment, host_facts, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
HEAD = "distributed_training:\n  name: x\n  run: {command: ['true']}\n  framework: command\n  dataset: none\n"


def naming(key: str, *ids: int, **gpu: object) -> Node:
    return Node(id=key, resources=NodeResources(gpu=GpuRequest(ids=ids, **gpu)))


def mixed(*names: str) -> HostFacts:
    """Facts of a host with a GPU of each of these names."""
    gpus = [
        replace(host_facts(1, name).gpus[0], index=index, memory_total_mib=1000 * (index + 1))
        for index, name in enumerate(names)
    ]
    return replace(host_facts(), gpus=gpus)


def of_text(gpu: str, tmp_path: Path) -> Plan:
    text = f"{HEAD}  cluster:\n    nodes:\n      - id: {B}\n        resources: {{gpu: {gpu}}}\n"
    return make_local_plan(Submission(parse_job(text, "job.yaml"), SEED, tmp_path, text, "job.yaml"))


def test_a_node_that_names_its_gpus_uses_as_many_in_its_order(tmp_path: Path) -> None:
    made = of_text("{ids: [3, 0]}", tmp_path)
    assert made.errors == ()
    (node,) = made.nodes
    assert (node.gpu_ids, node.slots, node.cuda_slots, made.world_size) == ((3, 0), 2, 2, 2)
    assert json.loads(json.dumps(plan_document(made)))["nodes"][0]["gpu_ids"] == [3, 0]
    assert ", GPU 3,0" in plan_text(made)


@pytest.mark.parametrize(
    ("gpu", "key", "said"),
    [
        ("{ids: [0, 2], count: 3}", "count", "there are 2 under ids, and not 3; leave the count out"),
        ("{ids: [0, 2, 0]}", "ids[2]", "GPU 0 is listed twice"),
        ("{ids: [0, -1]}", "ids[1]", "expected a number of at least 0, found -1"),
        ("{ids: []}", "ids", "name at least one GPU, or leave ids out"),
        ("{ids: [1024]}", "ids[0]", "expected a number of at most 1023, found 1024"),
        ("{ids: 3}", "ids", "expected a list, found 3"),
        ("{devices: [3]}", "devices", "unknown key"),
        ("{ids: [a]}", "ids[0]", "expected a whole number"),
    ],
)
def test_what_names_no_gpus_is_told_at_its_place(gpu: str, key: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        of_text(gpu, tmp_path)
    (problem,) = caught.value.problems
    assert format_path(problem.path) == f"distributed_training.cluster.nodes[0].resources.gpu.{key}"
    assert said in problem.message
    assert problem.hint == {"{ids: 3}": "write ids: [3]", "{devices: [3]}": 'did you mean "ids"?'}.get(gpu, "")


def test_a_count_that_agrees_may_stand_beside(tmp_path: Path) -> None:
    assert of_text("{ids: [1, 2], count: 2}", tmp_path).nodes[0].gpu_ids == (1, 2)


def test_gpus_that_a_host_does_not_have_are_errors_each_at_its_place(tmp_path: Path) -> None:
    found = [item for item in of_text("{ids: [1, 4, 9]}", tmp_path).findings if item.code == "no-such-gpu"]
    assert [item.severity for item in found] == [Severity.ERROR] * 2
    assert [item.message for item in found] == [f"{B} has no GPU {index} that can be used" for index in (4, 9)]
    assert found[0].hint == "It has 0–3: choose of these."
    assert (found[0].where, found[1].where) == tuple(f"cluster.nodes[0].resources.gpu.ids[{place}]" for place in (1, 2))
    assert found[0].place is not None
    assert (found[0].place.line, found[0].place.column) == (9, 36)
    known = plan(make_job(naming(B, 5)), SEED, {B: host_facts(8)})
    assert not [item for item in known.findings if item.code == "no-such-gpu"]
    none = plan(make_job(naming("x", 0)), Inventory(environments=(environment("x", 0),)))
    assert [item.hint for item in none.errors] == ["It has no GPU: choose another environment."]


def test_what_all_nodes_name_counts_for_those_that_say_nothing() -> None:
    resources = ResourceDefaults(gpu=GpuRequest(ids=(0, 1)))
    by_count = Node(id=B, resources=NodeResources(gpu=GpuRequest(count=3)))
    made = plan(make_job(A, by_count, naming(C, 7), resources=resources), SEED)
    assert [(node.gpu_ids, node.slots) for node in made.nodes] == [((0, 1), 2), ((), 3), ((7,), 1)]


def test_simulated_gpus_have_no_numbers_and_as_many_are_used() -> None:
    simulated = Resources(gpu=GpuResources(count=4, simulated=True))
    made = plan(make_job(naming("sim", 1, 9)), Inventory(environments=(environment("sim", resources=simulated),)))
    (node,) = made.nodes
    assert (node.gpu_ids, node.slots) == ((), 2)
    (finding,) = [item for item in made.findings if item.code == "gpu-ids-simulated"]
    assert (finding.severity, finding.hint) == (Severity.WARNING, "Write count: 2 in the place of ids.")
    assert made.errors == ()


def test_what_they_add_up_to_is_of_those_that_are_named() -> None:
    facts = mixed("Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB")
    choice = Choice(SEED.environments[1], facts, 2, (1, 2))
    total = aggregate([choice])
    assert total.gpu_types == {"A100": 2}
    assert total.gpu_memory_bytes == 5000 * MIB
    mixture = [item for item in plan(make_job(naming(B, 1, 2)), SEED, {B: facts}).findings if "mixed" in item.code]
    assert mixture == []


def test_the_list_shows_which_are_named() -> None:
    assert gpu_text(Choice(SEED.environments[2], None, 4, (0, 1, 2, 5))) == "GPU 0–2,5 of 8×A100-80GB"
    assert gpu_text(Choice(environment("x"), None, 2, (0, 7))) == "GPU 0,7"
    assert gpu_numbers([5, 4, 0, 1]) == "5,4,0,1"
    assert gpu_numbers([]) == ""


def test_an_agent_that_gave_others_is_no_start() -> None:
    made = plan(make_job(naming(A, 1)), SEED)

    def bound(*ids: int) -> Bindings:
        node = NodeBinding(directory="/d", payload="/p", python="python3", interface=None, gpu_ids=ids)
        return Bindings(job_id="j", attempt=0, master_port=29500, nodes={A: node})

    first = bind(made, bound(1)).plan.nodes[0].processes[0]
    assert first.env["CUDA_VISIBLE_DEVICES"] == "1"
    with pytest.raises(LaunchError, match=f"{A} set aside GPU 0, and GPU 1 was asked for"):
        bind(made, bound(0))


def test_who_takes_the_place_of_such_a_node_has_as_many_of_its_own_choice() -> None:
    job = make_job(naming(B, 1, 3), A)
    other = Lineup.chosen({B: C}, plan(job, SEED)).apply(job, SEED)
    made = plan(other, SEED)
    assert [(node.name, node.gpu_ids, node.slots) for node in made.nodes] == [(C, (), 2), (A, (), 2)]
    of_all = make_job(A, B, resources=ResourceDefaults(gpu=GpuRequest(ids=(0, 1))))
    seated = plan(Lineup.chosen({B: C}, plan(of_all, SEED)).apply(of_all, SEED), SEED)
    assert [(node.name, node.gpu_ids, node.slots) for node in seated.nodes] == [(A, (0, 1), 2), (C, (), 2)]


def test_who_takes_its_place_has_as_many_where_the_count_was_said_too() -> None:
    """The other host was asked for GPUs of these numbers."""
    job = make_job(naming(B, 1, 3, count=2), A)
    made = plan(Lineup.chosen({B: C}, plan(job, SEED)).apply(job, SEED), SEED)
    assert [(node.name, node.gpu_ids, node.slots) for node in made.nodes] == [(C, (), 2), (A, (), 2)]


def test_the_numbers_of_gpus_are_no_places_where_one_cannot_be_used() -> None:
    """Of GPU 3, the third of those that are left, neither type nor memory was known."""
    whole = mixed("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB", "lost", "NVIDIA A100-SXM4-80GB")
    facts = replace(whole, gpus=[gpu for gpu in whole.gpus if gpu.index != 2])
    total = aggregate([Choice(SEED.environments[1], facts, 1, (3,))])
    assert (total.gpu_types, total.gpu_memory_bytes) == ({"A100": 1}, 4000 * MIB)
    made = plan(make_job(naming(B, 3)), SEED, {B: facts})
    assert made.nodes[0].gpu_names == ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB", "", "NVIDIA A100-SXM4-80GB")
    (finding,) = [
        item for item in plan(make_job(naming(B, 2)), SEED, {B: facts}).findings if item.code == "no-such-gpu"
    ]
    assert finding.message == f"{B} has no GPU 2 that can be used"


def test_a_file_is_formatted_with_what_it_names() -> None:
    text = f"{HEAD}  cluster: {{nodes: [{{id: {A}, resources: {{gpu: {{ids: [1]}}}}}}]}}\n"
    assert parse_job(dump_job(parse_job(text, "a")), "b") == parse_job(text, "a")
    assert "ids: [1]" in format_job(text, "a")


def test_rendered_scripts_use_those_that_are_named_and_a_scheduler_is_said_to_choose(tmp_path: Path) -> None:
    export = replace(ejected(tmp_path, naming(B, 3, 1)), image="torch:2")
    texts = {
        name: "".join(file.text for file in get_target(name).render(export))
        for name in ("scripts", "slurm", "kubernetes")
    }
    assert ': "${GPU_IDS:=${CUDA_VISIBLE_DEVICES:-3,1}}"' in texts["scripts"]
    assert ': "${GPU_IDS:=${CUDA_VISIBLE_DEVICES:-0,1}}"' in texts["kubernetes"]
    told = {name: [item.code for item in get_target(name).check(export)] for name in texts}
    assert told == {"scripts": [], "slurm": ["gpu-ids-not-carried"], "kubernetes": ["gpu-ids-not-carried"]}


# --- what the screen does with it -------------------------------------------------------------------------------------


def chosen(state: ComposeState, key: str, *ids: int) -> ComposeState:
    return state.choose_gpus(key, ids)


def whole(*keys: str) -> ComposeState:
    return replace(ComposeState().toggle(*keys), task_name="x", program="a.py", dataset="none")


def test_gpus_that_are_chosen_go_into_the_job_and_back() -> None:
    state = chosen(whole(A, B), B, 1, 3)
    job = state.to_job()
    assert [node.resources for node in job.cluster.nodes] == [None, naming(B, 1, 3).resources]
    again = ComposeState.from_job(job, SEED)
    assert again.gpu_ids == ((B, (1, 3)),)
    assert again.gpu_counts == ()
    assert again.to_job() == job
    assert [(item.gpus_used, item.gpu_ids) for item in again.choices(SEED, {})] == [(2, ()), (2, (1, 3))]


def test_to_choose_gpus_of_an_environment_ticks_it_and_to_choose_none_takes_any() -> None:
    state = chosen(whole(A), C, 7)
    assert state.selected == (A, C)
    freed = chosen(state, C)
    assert (freed.gpu_counts, freed.gpu_ids) == (((C, 1),), ())
    assert chosen(freed, C) == freed
    assert chosen(whole(A), C) == whole(A, C)


def test_a_number_of_gpus_takes_the_place_of_those_that_were_named() -> None:
    state = chosen(whole(C), C, 2, 4, 6)
    (choice,) = state.choices(SEED, {})
    fewer = state.step_gpus(choice, -1)
    assert (fewer.gpu_counts, fewer.gpu_ids) == (((C, 2),), ())
    assert chosen(fewer, C, 1).gpu_counts == ()


def test_on_a_node_of_a_job_that_names_gpus_of_every_node_any_can_be_used_all_the_same() -> None:
    job = make_job(A, C, resources=ResourceDefaults(gpu=GpuRequest(ids=(0, 1))))
    state = ComposeState.from_job(job, SEED)
    assert [item.gpu_ids for item in state.choices(SEED, {})] == [(0, 1), (0, 1)]
    assert state.to_job() == job
    freed = chosen(state, C)
    assert [(item.gpus_used, item.gpu_ids) for item in freed.choices(SEED, {})] == [(2, (0, 1)), (2, ())]
    assert [node.gpu_ids for node in plan(freed.to_job(), SEED).nodes] == [(0, 1), ()]
    for step in (1, -1):  # As many as before, which were those two again.
        state = state.step_gpus(state.choices(SEED, {})[1], step)
    assert [(item.gpus_used, item.gpu_ids) for item in state.choices(SEED, {})] == [(2, (0, 1)), (2, ())]


def test_what_else_a_node_asks_of_its_gpus_stays() -> None:
    node = Node(id=B, resources=NodeResources(gpu=GpuRequest(count=2, type="A100")))
    state = chosen(ComposeState.from_job(make_job(node), SEED), B, 0, 2)
    assert state.to_job().cluster.nodes == (naming(B, 0, 2, type="A100"),)
