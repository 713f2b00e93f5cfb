"""What FSDP puts on a node: the sharding's settings for a script, the same for accelerate, and who starts the ranks."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from dttui.planning.models import Plan, PlannedNode
from dttui.planning.planner import plan
from dttui.spec.findings import Severity
from dttui.spec.models import Model, Recovery, Run, Strategy
from tests.unit.seed_cluster import SEED, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"


def planned(*keys: str, **fields: Any) -> Plan:
    return plan(make_job(*keys, framework="pytorch-fsdp", **fields), SEED)


def settings(node: PlannedNode) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next(file.text for file in node.files if file.path == "fsdp_config.json"))
    return found


def accelerate(node: PlannedNode) -> dict[str, Any]:
    text = next(file.text for file in node.files if file.path == "accelerate_config.yaml")
    found: dict[str, Any] = yaml.safe_load(text.replace("${MASTER_PORT}", "29500"))
    return found


def test_unequal_nodes_are_one_mesh_started_by_torchrun() -> None:
    made = planned(A, B, C)
    assert made.errors == ()
    assert made.world_size == 14
    (launcher,) = made.nodes[1].processes
    assert "${PAYLOAD}/torchrun.py" in launcher.argv
    assert "--nproc-per-node=4" in launcher.argv
    assert launcher.env["DTTUI_FSDP_CONFIG"] == "${DIRECTORY}/fsdp_config.json"
    assert settings(made.nodes[1]) == settings(made.nodes[0])
    assert settings(made.nodes[0])["mesh"] == [14]


def test_the_settings_say_what_the_job_says_in_both_forms() -> None:
    options = {"wrap": "size", "min_parameters": 1000, "cpu_offload": True, "state_dict": "full"}
    made = planned(
        A,
        strategy=Strategy(zero_stage=2, recomputation="full"),
        model=Model(precision="bf16"),
        framework_options=options,
    )
    own, other = settings(made.nodes[0]), accelerate(made.nodes[0])["fsdp_config"]
    assert own["mp_policy"] == {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
    assert own["reshard_after_forward"] is other["fsdp_reshard_after_forward"] is False
    assert own["cpu_offload"] is other["fsdp_offload_params"] is True
    assert own["activation_checkpointing"] is other["fsdp_activation_checkpointing"] is True
    assert (own["wrap"], other["fsdp_auto_wrap_policy"]) == ("size", "SIZE_BASED_WRAP")
    assert own["min_parameters"] == other["fsdp_min_num_params"] == 1000
    assert (own["state_dict"], other["fsdp_state_dict_type"]) == ("full", "FULL_STATE_DICT")


def test_accelerate_starts_the_ranks_where_it_is_asked_to() -> None:
    made = planned(
        A,
        run=Run(script="train.py", args=("--epochs", "2")),
        framework_options={"launcher": "accelerate", "layer_classes": ("Block", "Head")},
    )
    (launcher,) = made.nodes[0].processes
    assert launcher.argv == (
        "${PYTHON}",
        "-m",
        "accelerate.commands.launch",
        "--config_file=${DIRECTORY}/accelerate_config.yaml",
        "${PAYLOAD}/rank.py",
        "train.py",
        "--epochs",
        "2",
    )
    config = accelerate(made.nodes[0])
    assert config["num_processes"] == 2
    assert config["main_process_port"] == 29500
    assert config["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] == "Block,Head"


@pytest.mark.parametrize("options", [{"launcher": "accelerate"}, {"shard_group": "node"}])
def test_what_wants_equal_nodes_says_how_many_to_use(options: dict[str, str]) -> None:
    made = planned(A, B, C, framework_options=options)
    (finding,) = made.errors
    assert finding.code == "unequal-slots"
    assert finding.subject == f"framework_options.{next(iter(options))}"
    assert "Use 2 on each" in finding.hint
    assert all(node.processes == () for node in made.nodes)


def test_sharding_within_nodes_is_a_mesh_of_two_dimensions() -> None:
    jobs = {"resources": {"gpu": {"count": 2}}}
    made = plan(make_job(A, B, framework="pytorch-fsdp", framework_options={"shard_group": "node"}, **jobs), SEED)
    assert made.errors == ()
    assert settings(made.nodes[0])["mesh"] == [2, 2]
    assert settings(made.nodes[0])["mesh_dim_names"] == ["replicate", "shard"]


@pytest.mark.parametrize(("group", "mesh"), [("all", [-1]), ("node", [-1, 2])])
def test_the_mesh_of_an_elastic_job_leaves_open_how_many_nodes_there_are(group: str, mesh: list[int]) -> None:
    same: dict[str, Any] = {"resources": {"gpu": {"count": 2}}}
    asked = {"shard_group": group, "elastic": {"min_nodes": 1}}
    by_option = planned(A, B, framework_options=asked, **same)
    recovery = Recovery(on_node_failure="continue", min_nodes=1)
    by_recovery = planned(A, B, framework_options={"shard_group": group}, recovery=recovery, **same)
    for made in (by_option, by_recovery):
        assert (made.errors, made.min_nodes) == ((), 1)
        assert settings(made.nodes[0])["mesh"] == mesh


@pytest.mark.parametrize(
    ("options", "model", "expected"),
    [
        ({"shard_group": "node"}, None, ("shard_group", Severity.ERROR, "not passed on to accelerate")),
        ({"reduce_dtype": "fp32"}, "bf16", ("reduce_dtype", Severity.WARNING, "sums gradients in bf16")),
        ({"reduce_dtype": "bf16"}, None, ("reduce_dtype", Severity.WARNING, "sums gradients in fp32")),
        ({"reduce_dtype": "bf16"}, "bf16", None),
        ({}, "bf16", None),
    ],
)
def test_what_accelerate_cannot_be_told_is_not_dropped_in_silence(
    options: dict[str, str], model: Any, expected: tuple[str, Severity, str] | None
) -> None:
    same = {"resources": {"gpu": {"count": 2}}, "model": Model(precision=model) if model else None}
    for launcher in ("torchrun", "accelerate"):
        asked = {"launcher": launcher, **options}
        made = planned(A, B, framework_options=asked, **same)
        found = [item for item in made.findings if item.code == "framework-option"]
        if expected is None or launcher == "torchrun":
            assert found == []
            continue
        key, severity, words = expected
        assert [(item.subject, item.severity) for item in found] == [(f"framework_options.{key}", severity)]
        assert words in found[0].message
        assert "launcher: torchrun" in found[0].hint
    assert not planned(A, framework_options={"launcher": "accelerate", "shard_group": "node"}).errors


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"wraps": "size"}, "PyTorch FSDP has no option wraps", 'did you mean "wrap"?'),
        ({"wrap": "layer"}, 'expected one of layers, size or whole, found "layer"', 'did you mean "layers"?'),
        ({"cpu_offload": "yes"}, 'expected true or false, found "yes"', ""),
        ({"min_parameters": 0}, "expected a number above 0, found 0", ""),
    ],
)
def test_a_wrong_option_is_told_with_its_key(options: dict[str, Any], message: str, hint: str) -> None:
    (finding,) = planned(A, framework_options=options).errors
    assert (finding.code, finding.message, finding.hint) == ("framework-option", message, hint)
    assert finding.path == ("framework_options", next(iter(options)))


def test_a_stage_that_fsdp_is_not_is_refused() -> None:
    (finding,) = planned(A, strategy=Strategy(zero_stage=1)).errors
    assert finding.code == "zero-stage"
    assert finding.severity is Severity.ERROR
