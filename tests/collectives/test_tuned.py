"""What a job says of its collectives, by what goes over the wire of a real training with it and without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from dttui.frameworks.parts.environment import CONFIG_FILE
from dttui.frameworks.pytorch_fsdp import CONFIG_FILE as FSDP_FILE
from dttui.inventory.models import Inventory
from dttui.planning.planner import plan
from dttui.spec.communication import Communication
from tests.collectives.starting import printed
from tests.collectives.tuned_ranks import PARAMETERS, STEPS
from tests.unit.seed_cluster import environment, make_job

WORLD = 4
SMALL = {"allreduce": {"buffer_size": 100_000}}
SETTINGS: dict[str, dict[str, Any]] = {
    "bare": {},
    "buckets": SMALL,
    "at_the_end": {**SMALL, "overlap": False},
    "overlapping": {**SMALL, "overlap": True},
    **{name: {"compression": name} for name in ("fp16", "bf16", "topk", "powersgd")},
    "fsdp": {},
    **{f"fsdp_{name}": {"compression": name} for name in ("fp16", "bf16")},
    "algorithms": {
        "allreduce": {"algorithm": "butterfly"},
        "broadcast": {"algorithm": "linear"},
        "gather": {"algorithm": "linear"},
    },
    "elsewhere": {
        "collective_ops": {
            "allreduce": {"algorithm": "butterfly"},
            "broadcast": {"algorithm": "linear"},
            "gather": {"algorithm": "linear"},
        }
    },
}
Told = dict[str, dict[str, Any]]


def written(directory: Path, name: str, talk: dict[str, Any]) -> str:
    """Write what a plan has for the script of a job that says so, of FSDP how it is sharded."""
    framework, kept = ("pytorch-fsdp", FSDP_FILE) if name.startswith("fsdp") else ("pytorch-ddp", CONFIG_FILE)
    inventory = Inventory(environments=(environment("a"), environment("b")))
    talking = Communication.model_validate(talk)
    made = plan(make_job("a", "b", framework=framework, communication=talking), inventory)
    path = directory / name
    path.write_text(next(file.text for file in made.nodes[0].files if file.path == kept), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Told]:
    """Train with each of the settings; return what each rank tells, by the settings' name."""
    directory = tmp_path_factory.mktemp("tuned")
    files = [written(directory, name, talk) for name, talk in SETTINGS.items()]
    commands = [
        ["-m", "tests.collectives.tuned_ranks", str(rank), str(WORLD), str(directory / "store"), *files]
        for rank in range(WORLD)
    ]
    return [json.loads(told) for told in printed(commands, 150, {"TORCH_FR_BUFFER_SIZE": "2000"})]


def losses(told: Told, name: str) -> Any:
    return told[name]["losses"]


def test_without_a_word_of_the_job_ddp_is_as_it_was(ranks: list[Told]) -> None:
    bare = ranks[0]["bare"]
    assert bare["buckets"] == str(4 * PARAMETERS)
    assert bare["all_reduces"] == [[PARAMETERS, "Float"]] * STEPS
    assert bare["by_operators"] == {"messages": 0, "bytes": 0}
    assert losses(ranks[0], "bare")[-1] < losses(ranks[0], "bare")[0]


def test_buffer_size_makes_more_buckets_and_the_same_losses(ranks: list[Told]) -> None:
    for name in ("buckets", "overlapping"):
        found = ranks[0][name]
        sizes = [int(size) for size in found["buckets"].split(", ")]
        assert len(sizes) > 1
        assert sum(sizes) == 4 * PARAMETERS
        assert len(found["all_reduces"]) == 1 + len(sizes) * (STEPS - 1)  # DDP makes its buckets after one step.
        assert losses(ranks[0], name) == pytest.approx(losses(ranks[0], "bare"), abs=1e-5)
        assert found["synchronized"] > ranks[0]["bare"]["synchronized"] == 1


def test_without_overlap_all_gradients_go_when_the_backward_pass_is_over(ranks: list[Told]) -> None:
    found = ranks[0]["at_the_end"]
    assert found["buckets"] == str(4 * PARAMETERS)  # Of buckets of 100,000 bytes it would be several.
    assert found["all_reduces"] == [[PARAMETERS, "Float"]] * STEPS
    assert found["synchronized"] == 1


def test_half_precision_goes_over_the_wire_as_such(ranks: list[Told]) -> None:
    for rank in ranks:
        assert rank["fp16"]["all_reduces"] == [[PARAMETERS, "Half"]] * STEPS
        assert rank["bf16"]["all_reduces"] == []  # torch has its hook for NCCL alone: it goes by the operators.
    # Each rank but one sends all up the tree, and gets it down again.
    sent = sum(rank["bf16"]["by_operators"]["bytes"] for rank in ranks)
    assert sent == pytest.approx(2 * (WORLD - 1) * 2 * PARAMETERS * STEPS, rel=0.02)
    for name in ("fp16", "bf16"):
        assert losses(ranks[0], name) == pytest.approx(losses(ranks[0], "bare"), abs=5e-3)
        assert losses(ranks[0], name) != losses(ranks[0], "bare")


@pytest.mark.parametrize(("name", "kind"), [("fsdp", "Float"), ("fsdp_fp16", "Half"), ("fsdp_bf16", "BFloat16")])
def test_shards_are_summed_in_the_type_that_the_job_has_them_sent_as(ranks: list[Told], name: str, kind: str) -> None:
    for rank in ranks:
        assert {dtype for _size, dtype in rank[name]["all_reduces"]} == {kind}


@pytest.mark.parametrize(("name", "share"), [("topk", 0.1), ("powersgd", 0.3)])
def test_compression_sends_a_part_of_the_bytes_and_trains_all_the_same(
    ranks: list[Told], name: str, share: float
) -> None:
    # A ring of four ranks has each send one and a half times what it holds.
    whole = 1.5 * 4 * PARAMETERS * STEPS
    for rank in ranks:
        assert rank[name]["all_reduces"] == []
        assert 0 < rank[name]["by_operators"]["bytes"] < share * whole
    assert losses(ranks[0], name)[-1] < losses(ranks[0], name)[0]


@pytest.mark.parametrize("name", ["algorithms", "elsewhere"])
@pytest.mark.parametrize(
    ("collective", "named"), [("all_reduce", "butterfly"), ("broadcast", "linear"), ("gather", "linear_gather")]
)
def test_operators_go_by_the_algorithm_that_the_job_names(
    ranks: list[Told], name: str, collective: str, named: str
) -> None:
    with_it = [rank[name][collective] for rank in ranks]
    assert with_it == [rank["bare"][named] for rank in ranks]
    assert with_it != [rank["bare"][collective] for rank in ranks]


@pytest.mark.parametrize("name", ["bare", "fp16", "bf16", "topk", "powersgd"])
def test_gradients_are_reduced_over_the_ranks_that_ddp_is_given(ranks: list[Told], name: str) -> None:
    sent = 2 if name == "topk" else 100
    for rank, told in enumerate(ranks):
        mean = 0.5 if rank < 2 else 2.5
        assert told[name]["apart"] == [[[pytest.approx(sent * mean), 0.0]]] * 2


@pytest.mark.parametrize("name", ["bare", "topk"])
def test_what_was_left_out_stays_with_its_parameter_when_ddp_makes_its_buckets_anew(
    ranks: list[Told], name: str
) -> None:
    for told in ranks:
        assert [second for _first, second in told[name]["moved"]] == [0.0] * 3
        assert (told[name]["moved"][2][0] > 0) == (name == "topk"), "what was left out comes later"
