"""The compose screen's rules, as the seed's chapter on the form has them, and its way to job.yaml and back."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dttui.errors import UsageError
from dttui.inventory import demo_inventory
from dttui.planning.aggregate import aggregate
from dttui.planning.compose_state import ComposeState, ProgramKind
from dttui.planning.planner import plan
from dttui.planning.summary import estimate_text, network_note, success_message
from dttui.spec import Job, dump_job, parse_job
from dttui.spec.models import (
    Cluster,
    DataParallel,
    DatasetRef,
    GpuRequest,
    Node,
    NodeResources,
    Recovery,
    ResourceDefaults,
    Run,
    Strategy,
    Topology,
)
from tests.unit.seed_cluster import SEED, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"


def ticked(*keys: str) -> ComposeState:
    state = ComposeState()
    for key in keys:
        state = state.toggle(key)
    return state


def whole(*keys: str) -> ComposeState:
    return replace(ticked(*keys), task_name="gpt-small", program="train.py", dataset="none")


def codes(state: ComposeState) -> list[str]:
    return [finding.code for finding in state.validate()]


def test_the_first_ticked_becomes_master_by_itself() -> None:
    assert ticked(B).master == B
    assert ticked(B, A, C).master == B
    assert ticked(B, A, C).selected == (B, A, C)


@pytest.mark.parametrize("before", [(), (B,), (B, A), (A, B, C)], ids=str)
@pytest.mark.parametrize("keys", [(A, B, C), (C, B), (B, A), (A,)], ids=str)
def test_several_at_once_are_as_one_after_another(before: tuple[str, ...], keys: tuple[str, ...]) -> None:
    state = ticked(*before)
    one_by_one = state
    for key in keys:
        one_by_one = one_by_one.toggle(key)
    at_once = state.toggle(*keys)
    assert (at_once.selected, at_once.order) == (one_by_one.selected, one_by_one.order)
    if not {*before} & {*keys} or len(keys) == 1:
        assert at_once.master == one_by_one.master
    else:
        assert at_once.master == (
            state.master if state.master in at_once.selected else next(iter(at_once.selected), None)
        )


def test_unticking_the_master_makes_the_first_that_is_left_master() -> None:
    assert ticked(B, A, C).toggle(B).master == A
    assert ticked(A, B, C).choose_master(B).toggle(B).master == A


def test_unticking_another_leaves_the_master() -> None:
    assert ticked(A, B, C).choose_master(C).toggle(B).master == C


def test_after_everything_was_unticked_the_next_tick_makes_a_master_again() -> None:
    assert ticked(A).toggle(A).master is None
    assert ticked(A).toggle(A).toggle(C).master == C


def test_the_badge_shows_only_among_several() -> None:
    assert not ticked(A).has_badge(A)
    assert ticked(A, B).has_badge(A)
    assert not ticked(A, B).has_badge(B)


def test_the_states_before_are_left_as_they_were() -> None:
    before = ticked(A)
    before.toggle(B)
    assert before.selected == (A,)


def test_a_new_form_begins_with_ddp_and_no_dataset_chosen() -> None:
    state = ComposeState()
    assert state.framework == "pytorch-ddp"
    assert state.dataset is None
    assert state.master is None


def test_everything_missing_is_told_in_the_seeds_order() -> None:
    assert codes(ComposeState()) == ["name-missing", "dataset-missing", "environment-missing", "script-missing"]
    assert [finding.message for finding in ComposeState().validate()] == [
        "Enter a task name",
        "Choose a dataset, or none",
        "Tick at least one environment",
        "Enter the script to run",
    ]


def test_master_and_framework_are_asked_for_only_among_several() -> None:
    assert codes(replace(whole(A), master=None, framework=None)) == []
    assert codes(replace(whole(A, B), master=None, framework=None)) == ["master-invalid", "framework-missing"]
    assert codes(whole(A, B).choose_master(C)) == ["master-invalid"]


def test_a_blank_name_is_no_name() -> None:
    assert codes(replace(whole(A), task_name="  ")) == ["name-missing"]


def test_a_dataset_or_an_explicit_none_will_do() -> None:
    imagenet = replace(whole(A), dataset=DatasetRef(id="imagenet", version="v2"))
    assert codes(imagenet) == []
    assert codes(whole(A)) == []
    assert imagenet.to_job().dataset == DatasetRef(id="imagenet", version="v2")


def test_an_open_quotation_mark_is_told() -> None:
    assert codes(replace(whole(A), arguments="--name 'a")) == ["arguments-invalid"]


def test_the_job_says_what_was_composed() -> None:
    state = replace(whole(A, B, C), arguments="--steps 3 --name 'two words'", workdir="src").choose_master(B)
    job = state.to_job()
    assert job.run == Run(script="train.py", args=("--steps", "3", "--name", "two words"), workdir="src")
    assert [(node.id, node.role) for node in job.cluster.nodes] == [(A, "worker"), (B, "master"), (C, "worker")]
    assert job.framework == "pytorch-ddp"
    assert [node.name for node in plan(job, SEED).nodes] == [B, A, C]


def test_a_single_environment_needs_no_role() -> None:
    assert dump_job(whole(A).to_job()) == (
        "distributed_training:\n  name: gpt-small\n  framework: pytorch-ddp\n  run:\n    script: train.py\n"
        "  dataset: none\n  cluster:\n    nodes:\n      - id: pytorch-dev-env\n"
    )


def test_a_command_takes_the_whole_line() -> None:
    state = replace(whole(A), program="bash train.sh", arguments="-x '1 2'").choose_framework("command")
    assert state.to_job().run == Run(command=("bash", "train.sh", "-x", "1 2"))
    assert replace(state, program="train.py").choose_framework("pytorch-ddp").to_job().run == Run(
        script="train.py", args=("-x", "1 2")
    )


@pytest.mark.parametrize(
    ("kind", "program", "command"),
    [
        ("script", "fail.py", ("python", "fail.py")),
        ("script", "/opt/it's.py", ("python", "/opt/it's.py")),
        ("module", "pkg.train", ("python", "-m", "pkg.train")),
    ],
)
def test_a_script_is_run_by_python_as_a_command_and_is_a_script_again_without(
    kind: ProgramKind, program: str, command: tuple[str, ...]
) -> None:
    state = replace(whole(A), program=program, program_kind=kind, arguments="--name  'two words'")
    as_command = state.choose_framework("command")
    assert as_command.to_job().run == Run(command=(*command, "--name", "two words"))
    assert as_command.choose_framework("command") == as_command
    assert as_command.choose_framework("pytorch-ddp") == state


def test_a_command_of_a_job_file_becomes_the_script_that_its_interpreter_runs() -> None:
    job = make_job(framework="command", run=Run(command=("python3", "train.py", "--name", "two words")))
    state = ComposeState.from_job(job, SEED).choose_framework("pytorch-ddp")
    assert state.to_job().run == Run(script="train.py", args=("--name", "two words"))


@pytest.mark.parametrize("program", ["", "python", "python -u train.py", "python 'open", "./a.out x"])
def test_a_command_that_runs_no_python_file_stays_as_it_was_typed(program: str) -> None:
    state = replace(whole(A), program=program, program_kind="command", framework="command")
    assert state.choose_framework("pytorch-ddp") == replace(state, program_kind="script", framework="pytorch-ddp")


@pytest.mark.parametrize(
    "job",
    [
        make_job("env-001", dataset=DatasetRef(id="imagenet", version="v1")),
        make_job("pytorch-dev-env", "llm-training-env"),
        make_job(Node(id=A, role="worker"), Node(id=B, role="master"), Node(id=C)),
        make_job(run=Run(module="pkg.train", args=("a b", "--x=1", ""), env={"A": "1"}, prefix=("nice",))),
        make_job(A, framework="command", run=Run(command=("my prog", "a b"), secrets=("TOKEN",), workdir="/w")),
        make_job(
            Node(id=A, resources=NodeResources(gpu=GpuRequest(count=1))),
            Node(id="unknown"),
            strategy=Strategy(data_parallel=DataParallel(batch_size=8)),
            recovery=Recovery(max_restarts=2),
            run=None,
        ),
        Job(name="a", framework="deepspeed", cluster=Cluster(topology=Topology(type="ring"))),
    ],
)
def test_a_job_that_is_shown_and_saved_again_is_the_same_job(job: Job) -> None:
    assert ComposeState.from_job(job, SEED).to_job() == job
    assert parse_job(dump_job(ComposeState.from_job(job, SEED).to_job()), "x") == job


def test_what_the_screen_does_not_show_survives_editing() -> None:
    job = make_job(
        Node(id="pytorch-dev-env", role="master", resources=NodeResources(gpu=GpuRequest(count=1))),
        Node(id="llm-training-env"),
        strategy=Strategy(data_parallel=DataParallel(batch_size=8)),
        run=Run(script="a.py", env={"A": "1"}),
    )
    state = ComposeState.from_job(job, SEED)
    assert state.selected == (A, B)
    assert state.master == A
    edited = replace(state.toggle(B).toggle(C), program="b.py").choose_master(C).to_job()
    assert edited.strategy == job.strategy
    assert edited.run == Run(script="b.py", env={"A": "1"})
    assert [(node.id, node.role) for node in edited.cluster.nodes] == [("pytorch-dev-env", "worker"), (C, "master")]
    assert edited.cluster.nodes[0].resources == NodeResources(gpu=GpuRequest(count=1))


def asking(key: str, count: int | None, **gpu: object) -> Node:
    return Node(id=key, resources=NodeResources(gpu=GpuRequest(count=count, **gpu)))


def step(state: ComposeState, key: str, step: int) -> ComposeState:
    choice = next(item for item in state.choices(SEED, {}) if item.environment.name == key)
    return state.step_gpus(choice, step)


def test_gpus_are_stepped_from_one_to_all_and_all_needs_no_count() -> None:
    state = step(whole(A, B), B, -1)
    assert state.gpu_counts == ((B, 3),)
    assert state.to_job().cluster.nodes[1].resources == NodeResources(gpu=GpuRequest(count=3))
    assert step(state, B, 1).to_job() == whole(A, B).to_job()
    assert step(whole(A, B), B, 1) == whole(A, B)
    one = step(step(state, B, -1), B, -1)
    assert one.gpu_counts == ((B, 1),)
    assert step(one, B, -1) == one


def test_more_gpus_than_there_are_come_down_to_all() -> None:
    state = ComposeState.from_job(make_job(asking(A, 9)), SEED)
    assert step(state, A, 1).gpu_counts == ()
    assert step(ComposeState.from_job(make_job(asking(A, 0)), SEED), A, 1).gpu_counts == ((A, 1),)


def test_a_count_for_every_node_is_what_no_count_means() -> None:
    job = make_job(A, B, resources=ResourceDefaults(gpu=GpuRequest(count=2)))
    state = ComposeState.from_job(job, SEED)
    assert [choice.gpus_used for choice in state.choices(SEED, {})] == [2, 2]
    more = step(step(state, B, 1), B, 1)
    assert more.to_job().cluster.nodes[1].resources == NodeResources(gpu=GpuRequest(count=4))
    assert step(step(more, B, -1), B, -1).to_job() == job


def test_what_is_asked_of_each_node_that_was_only_counted_is_asked_of_those_that_are_ticked() -> None:
    gpu = GpuRequest(type="A100")
    job = make_job(cluster=Cluster(count=2, gpus_per_node=2), resources=ResourceDefaults(gpu=gpu))
    state = ComposeState.from_job(job, SEED).toggle(A).toggle(B)
    assert [choice.gpus_used for choice in state.choices(SEED, {})] == [2, 2]
    made = state.to_job()
    assert (made.cluster.count, made.cluster.gpus_per_node) == (None, None)
    assert made.resources.gpu == gpu.model_copy(update={"count": 2})
    assert [choice.gpus_used for choice in ComposeState.from_job(made, SEED).choices(SEED, {})] == [2, 2]


@pytest.mark.parametrize("taken", [(A,), (B,), (C,), (A, B), (B, A), (A, C), (C, A), (A, B, C), (C, B, A)])
@pytest.mark.parametrize("master", [A, B, C])
def test_a_tick_taken_away_and_given_back_changes_nothing(taken: tuple[str, ...], master: str) -> None:
    nodes = make_job(asking(A, 1), asking(B, 1, type="A100"), asking(C, 2))
    state = ComposeState.from_job(nodes, SEED).choose_master(master)
    for back in itertools.permutations(taken):
        without = state
        for key in taken:
            without = without.toggle(key)
        assert set(without.selected).isdisjoint(taken)
        assert without.master in without.selected or without.master is None
        again = without
        for key in back:
            again = again.toggle(key)
        assert again == state
        assert again.to_job() == state.to_job()


def test_a_master_chosen_meanwhile_stays_and_what_is_ticked_first_comes_last() -> None:
    state = ticked(A, B).toggle(A).choose_master(B).toggle(A)
    assert (state.selected, state.master) == ((A, B), B)
    assert ticked(A, B).toggle(A).toggle(C).toggle(A).selected == (A, B, C)


@pytest.mark.parametrize(
    "job",
    [
        make_job(A, B, C),
        make_job(asking(A, 1), asking(B, 1), asking(C, 2)),
        make_job(asking(A, 0), B),
        make_job(asking(A, 9), B),
        make_job(A, asking(B, 1), resources=ResourceDefaults(gpu=GpuRequest(count=2))),
    ],
)
def test_screen_and_plan_add_up_alike(job: Job) -> None:
    choices = ComposeState.from_job(job, SEED).choices(SEED, {})
    planned = plan(job, SEED)
    assert aggregate(choices) == planned.aggregate
    assert sum(choice.slots for choice in choices) == planned.world_size


def test_a_job_without_a_framework_is_shown_with_the_default() -> None:
    assert ComposeState.from_job(make_job(A, framework=None), SEED).framework == "pytorch-ddp"
    command = make_job(A, framework=None, run=Run(command=("x",)))
    assert ComposeState.from_job(command, SEED).framework == "command"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (replace(whole(A), task_name=""), "Enter a task name"),
        (replace(whole(A), task_name="x" * 121), "name: expected at most 120 characters"),
        (replace(whole(A), task_name="a\x1b[2J"), "name: must consist of printable characters"),
        (replace(whole(A), program="-c"), "script: must not begin with a dash"),
        (replace(whole(A), arguments="'"), "quotation mark"),
    ],
)
def test_what_no_job_can_hold_is_refused_in_words(state: ComposeState, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        state.to_job()


def test_success_is_told_as_the_seed_has_it() -> None:
    single = whole(A)
    total = aggregate(single.choices(SEED, {}))
    assert success_message(single, SEED, total) == ("Training job created", "uses environment: pytorch-dev-env")
    three = whole(A, B, C)
    total = aggregate(three.choices(SEED, {}))
    assert success_message(three, SEED, total)[1] == "distributed · 3 nodes · 14 GPUs in all"
    fewer = step(three, C, -1)
    total = aggregate(fewer.choices(SEED, {}))
    assert success_message(fewer, SEED, total)[1] == "distributed · 3 nodes · 13 of 14 GPUs"


def test_the_estimate_is_told_as_the_seed_has_it() -> None:
    assert estimate_text(whole(A)) == "Quick start: training is expected to begin within 10 seconds"
    assert estimate_text(whole(A, B)) == "Distributed training · uses PyTorch DDP"
    assert estimate_text(whole(A, B).choose_framework("deepspeed")) == "Distributed training · uses DeepSpeed"
    assert "reach each other" in network_note()


def test_the_embedded_clusters_environments_go_by_their_names() -> None:
    inventory = demo_inventory(Path("/x"), Path("/y"), "python3")
    state = whole("pytorch-dev-env", "nlp-research-lab")
    assert [item.name for item in state.environments(inventory)] == ["pytorch-dev-env", "nlp-research-lab"]
    assert plan(state.to_job(), inventory).errors == ()
