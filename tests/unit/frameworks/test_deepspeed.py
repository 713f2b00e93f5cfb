"""What DeepSpeed puts on a node: its configuration, whose batches add up, the hosts, and what the script is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dttui.frameworks.parts.batches import nearest_parts, nearest_totals, solve
from dttui.inventory.demo import demo_inventory
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.spec.communication import AllReduce
from dttui.spec.findings import Finding, Severity
from dttui.spec.importing import merge, translate_file
from dttui.spec.models import Communication, DataParallel, Model, PipelineParallel, Run, Strategy
from tests.unit.seed_cluster import SEED, make_job
from tests.unit.spec.test_dialect_import import DEEPSPEED as SEED_004

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
SIZES = st.integers(1, 60)
MAYBE = st.none() | SIZES


def planned(*keys: str, batch: int | None = None, micro: int | None = None, **fields: Any) -> Plan:
    strategy: dict[str, Any] = fields.pop("strategy", {})
    if batch is not None:
        strategy["data_parallel"] = DataParallel(batch_size=batch)
    if micro is not None:
        strategy["pipeline_parallel"] = PipelineParallel(micro_batch_size=micro)
    return plan(make_job(*keys, framework="deepspeed", strategy=Strategy(**strategy), **fields), SEED)


def file_of(made: Plan, path: str) -> str:
    assert made.errors == ()
    texts = {next(file.text for file in node.files if file.path == path) for node in made.nodes}
    (text,) = texts  # the same on every node
    return text


def config(made: Plan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file_of(made, "ds_config.json"))
    return found


def batches(made: Plan) -> list[Any]:
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    return [config(made)[name] for name in names]


def only_error(made: Plan) -> Finding:
    (finding,) = made.errors
    return finding


@given(SIZES, MAYBE, MAYBE, MAYBE, st.integers(1, 8))
def test_sizes_that_are_solved_add_up_and_keep_what_was_given(
    degree: int, total: int | None, micro: int | None, steps: int | None, stages: int
) -> None:
    solved = solve(degree, total=total, micro=micro, steps=steps, stages=stages)
    if solved is None:
        assert total is not None
        assert total % (degree * (micro or 1) * (steps or 1)) or None not in (micro, steps)
        return
    assert solved.total == solved.micro * solved.steps * degree
    assert solved.micro >= 1 <= solved.steps
    assert total in (None, solved.total)
    assert micro in (None, solved.micro)
    assert steps in (None, solved.steps)


@given(SIZES, SIZES, MAYBE, MAYBE)
def test_the_nearest_numbers_fit_and_none_is_nearer(
    degree: int, total: int, micro: int | None, steps: int | None
) -> None:
    if solve(degree, total=total, micro=micro, steps=steps) is not None:
        return
    found = nearest_totals(degree, total=total, micro=micro, steps=steps)
    assert found
    assert all(solve(degree, total=size, micro=micro, steps=steps) is not None for size in found)
    if None in (micro, steps):
        between = range(found[0] if found[0] < total else 1, found[-1] + 1)
        assert set(found) == {size for size in between if solve(degree, total=size, micro=micro, steps=steps)}
    if micro is not None:
        parts = nearest_parts(degree, total=total, part=micro, other=steps)
        assert all(solve(degree, total=total, micro=part, steps=steps) is not None for part in parts)
        low, high = min((*parts, micro)), max((*parts, micro))
        assert all(
            solve(degree, total=total, micro=part, steps=steps) is None for part in range(low + 1, high) if parts
        )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"batch": 70}, [70, 5, 1]),
        ({"batch": 140, "micro": 5}, [140, 5, 2]),
        ({"batch": 140, "framework_options": {"gradient_accumulation_steps": 5}}, [140, 2, 5]),
        ({"micro": 3}, [42, 3, 1]),
        ({"micro": 3, "framework_options": {"config": {"gradient_accumulation_steps": 2}}}, [84, 3, 2]),
        ({"strategy": {"pipeline_parallel_size": 2, "zero_stage": 1}, "batch": 56}, [56, 1, 8]),
        ({"framework_options": {"config": {"train_batch_size": 28, "sequence_parallel_size": 2}}}, [28, 4, 1]),
    ],
)
def test_what_the_job_leaves_out_of_the_batches_is_filled_in(said: dict[str, Any], expected: list[int]) -> None:
    assert batches(planned(A, B, C, **said)) == expected


def test_without_any_size_it_is_one_sample_a_rank_and_said_so() -> None:
    made = planned(A, B, C)
    assert batches(made) == [14, 1, 1]
    (finding,) = [item for item in made.findings if item.code == "batch-size"]
    assert finding.severity is Severity.WARNING
    assert "14 in all" in finding.message
    assert "a multiple of 14" in finding.hint


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (
            {"batch": 64},
            "a step of 64 samples cannot be made up of data 14",
            "What fits is strategy.data_parallel.batch_size: 56 or 70.",
        ),
        (
            {"batch": 84, "micro": 4},
            "a step of 84 samples cannot be made up of micro-batch 4 × data 14",
            "What fits is strategy.data_parallel.batch_size: 56 or 112; "
            "strategy.pipeline_parallel.micro_batch_size: 3 or 6.",
        ),
        (
            {"batch": 84, "framework_options": {"config": {"gradient_accumulation_steps": 7}}},
            "a step of 84 samples cannot be made up of 7 passes × data 14",
            "What fits is strategy.data_parallel.batch_size: 98; "
            "framework_options.config.gradient_accumulation_steps: 6.",
        ),
        (
            {"batch": 84, "micro": 2, "framework_options": {"gradient_accumulation_steps": 2}},
            "a step of 84 samples cannot be made up of micro-batch 2 × 2 passes × data 14",
            "What fits is strategy.data_parallel.batch_size: 56; strategy.pipeline_parallel.micro_batch_size: 3; "
            "framework_options.gradient_accumulation_steps: 3.",
        ),
    ],
)
def test_batches_that_cannot_add_up_are_an_error_with_the_nearest_that_fit(
    said: dict[str, Any], message: str, hint: str
) -> None:
    made = planned(A, B, C, **said)
    finding = only_error(made)
    assert (finding.code, finding.message, finding.hint) == ("batch-size", message, hint)
    assert finding.path == ("strategy", "data_parallel", "batch_size")
    assert all(node.processes == () for node in made.nodes)


def test_degrees_that_do_not_fit_are_told_once_and_the_batches_not_at_all() -> None:
    made = planned(A, B, C, batch=3, strategy={"tensor_parallel_size": 4})
    assert only_error(made).code == "degrees"


def test_the_configuration_says_what_the_job_says() -> None:
    options = {
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
        "gradient_clipping": 0,
        "offload_optimizer": "cpu",
        "offload_param": "nvme",
        "nvme_path": "/nvme",
        "overlap_comm": False,
        "config": {"zero_optimization": {"round_robin_gradients": True}, "bf16": {"check_grad_overflow": False}},
    }
    made = planned(
        A,
        B,
        batch=12,
        strategy={"zero_stage": 3},
        model=Model(precision="bf16"),
        framework_options=options,
        communication=Communication(allreduce=AllReduce(buffer_size=1_000_000)),
    )
    assert config(made) == {
        "train_batch_size": 12,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0,
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": {"device": "cpu"},
            "offload_param": {"device": "nvme", "nvme_path": "/nvme"},
            "overlap_comm": False,
            "reduce_bucket_size": 500_000,
            "round_robin_gradients": True,
        },
        "bf16": {"enabled": True, "check_grad_overflow": False},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
        "distributed": {"world_size": 6, "nodes": 2},
    }


def test_on_cpus_it_is_told_so_and_adam_is_that_of_torch() -> None:
    options = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
    job = make_job(A, framework="deepspeed", framework_options=options)
    made = plan(job, demo_inventory(Path("/r"), Path("/e"), "python3"))
    assert config(made)["optimizer"]["params"] == {"lr": 1e-4, "torch_adam": True}
    assert made.nodes[0].processes[0].env["DS_ACCELERATOR"] == "cpu"
    assert "DS_ACCELERATOR" not in planned(A).nodes[0].processes[0].env


def test_an_optimizer_that_zero_was_not_tried_with_is_let_through() -> None:
    options = {"optimizer": {"type": "SGD", "params": {"lr": 0.1}}}
    made = planned(A, strategy={"zero_stage": 2}, framework_options=options)
    assert config(made)["zero_allow_untested_optimizer"] is True
    assert "zero_allow_untested_optimizer" not in config(planned(A, framework_options=options))


def test_tensors_are_split_by_autotp_or_by_the_script() -> None:
    made = planned(B, batch=8, strategy={"tensor_parallel_size": 2})
    assert config(made)["tensor_parallel"] == {"autotp_size": 2}
    assert "train_batch_size" not in config(made), "DeepSpeed would count every rank of a copy of the model"
    assert "autotp" in {finding.code for finding in made.findings}
    own = planned(B, batch=8, strategy={"tensor_parallel_size": 2}, framework_options={"tensor_parallel": "script"})
    assert "tensor_parallel" not in config(own)
    assert batches(own) == [8, 4, 1]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("deepspeed", ["--lr", "1", "--deepspeed", "--deepspeed_config", "${DIRECTORY}/ds_config.json"]),
        ("trainer", ["--lr", "1", "--deepspeed", "${DIRECTORY}/ds_config.json"]),
        ("accelerate", ["--lr", "1"]),
        ("none", ["--lr", "1"]),
    ],
)
def test_the_script_is_given_the_file_in_the_way_it_takes_it(way: str, expected: list[str]) -> None:
    run = Run(script="train.py", args=("--lr", "1"))
    made = planned(A, B, run=run, framework_options={"config_for": way})
    (launcher,) = made.nodes[1].processes
    assert "${PAYLOAD}/torchrun.py" in launcher.argv
    assert list(launcher.argv[launcher.argv.index("train.py") + 1 :]) == expected
    assert launcher.env["DTTUI_DEEPSPEED_CONFIG"] == "${DIRECTORY}/ds_config.json"


@pytest.mark.parametrize("reader", ["trainer", "accelerate"])
def test_what_the_job_leaves_open_is_left_to_who_fills_it_in(reader: str) -> None:
    made = planned(A, micro=4, framework_options={"config_for": reader, "config": {"train_batch_size": "auto"}})
    found = config(made)
    assert batches(made) == ["auto", 4, "auto"]
    assert found["gradient_clipping"] == found["fp16"]["enabled"] == found["bf16"]["enabled"] == "auto"


def test_a_configuration_among_the_arguments_is_refused() -> None:
    run = Run(script="train.py", args=("--x", "--deepspeed_config=mine.json"))
    finding = only_error(planned(A, run=run))
    assert finding.path == ("run", "args", 1)
    assert planned(A, run=run, framework_options={"config_for": "none"}).errors == ()


def test_the_hostfile_lists_addresses_once_with_their_slots() -> None:
    made = planned(A, B, C)
    assert file_of(made, "hostfile") == "192.168.1.10 slots=2\n192.168.2.20 slots=4\n192.168.3.30 slots=8\n"
    twice = plan(make_job(A, B, framework="deepspeed"), demo_inventory(Path("/r"), Path("/e"), "python3"))
    assert file_of(twice, "hostfile") == "127.0.0.1 slots=6\n"


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        (
            {"config": {"zero_optimisation": {}}},
            "config.zero_optimisation",
            'DeepSpeed has no key "zero_optimisation"; did you mean "zero_optimization"?',
        ),
        (
            {"config": {"zero_optimization": 2}},
            "config.zero_optimization",
            "expected a mapping of keys to values, found 2",
        ),
        ({"config": {"steps_per_print": {}}}, "config.steps_per_print", "expected a single value, found a mapping"),
        (
            {"config": {"train_batch_size": 0}},
            "config.train_batch_size",
            "expected a whole number from 1 to 1000000000, found 0",
        ),
        (
            {"config": {"train_batch_size": "auto"}},
            "config.train_batch_size",
            'only Hugging Face\'s libraries fill in "auto": write a number, or config_for: trainer or accelerate',
        ),
        ({"offload_param": "nvme"}, "offload_param", "nvme needs nvme_path, a directory on a local disk of every host"),
        ({"optimizer": {"type": "SGDW"}}, "optimizer.type", None),
        ({"optimizer": {"type": "SGD", "lr": 1}}, "optimizer.lr", "DeepSpeed has no option lr"),
        ({"scheduler": {"type": "Cosine"}}, "scheduler.type", None),
        ({"gradient_clipping": -1}, "gradient_clipping", None),
        (
            {"config": {"zero_optimization": {"stage": 3}}},
            "config.zero_optimization.stage",
            "this is not what strategy.zero_stage says; give it once",
        ),
        (
            {"config": {"train_batch_size": 4}},
            "config.train_batch_size",
            "this is not what strategy.data_parallel.batch_size says; give it once",
        ),
        (
            {"config": {"fp16": {"enabled": True}}},
            "config.fp16.enabled",
            "this is not what model.precision says; give it once",
        ),
        (
            {"offload_param": "cpu"},
            "offload_param",
            "offload_param: cpu needs ZeRO stage 3, and the job has 2",
        ),
    ],
)
def test_a_wrong_option_is_told_with_its_key(options: dict[str, Any], key: str, message: str | None) -> None:
    made = planned(A, batch=8, strategy={"zero_stage": 2}, model=Model(precision="bf16"), framework_options=options)
    finding = made.errors[0]
    assert finding.subject == f"framework_options.{key}"
    assert message in (None, finding.message)


def test_both_kinds_of_half_precision_are_an_error() -> None:
    both = {"fp16": {"enabled": True}, "bf16": {"enabled": True}}
    assert only_error(planned(A, framework_options={"config": both})).subject == "framework_options.config.bf16.enabled"


def test_a_pipeline_does_not_go_with_zero_2() -> None:
    finding = only_error(planned(A, strategy={"zero_stage": 2, "pipeline_parallel_size": 2}))
    assert (finding.code, finding.subject) == ("zero-stage", "strategy.zero_stage")


def test_fp8_is_bf16_with_a_warning() -> None:
    made = planned(A, model=Model(precision="fp8"))
    assert config(made)["bf16"] == {"enabled": True}
    assert "precision" in {finding.code for finding in made.findings if finding.severity is Severity.WARNING}


def test_the_configuration_of_seed_004_comes_back_but_for_what_is_derived() -> None:
    seed = merge([translate_file(SEED_004, "ds_config.json")], "x").job
    fields: dict[str, Any] = {"framework_options": seed.framework_options, "model": seed.model}
    strategy = {"zero_stage": seed.strategy.zero_stage}
    assert only_error(planned(A, B, C, batch=64, strategy=dict(strategy), **fields)).code == "batch-size"
    written = config(planned(A, B, C, batch=70, strategy=dict(strategy), **fields))
    derived = {"train_micro_batch_size_per_gpu": 5, "gradient_clipping": 1.0, "train_batch_size": 70}
    assert written == {**json.loads(SEED_004), **derived}
