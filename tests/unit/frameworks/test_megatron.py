"""What Megatron-LM is passed: degrees, batches and sizes of the job as its arguments, and numbers that do not fit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dttui.inventory.models import Inventory
from dttui.planning.models import Plan
from dttui.planning.planner import plan
from dttui.spec.findings import Severity
from dttui.spec.models import (
    Checkpoint,
    Communication,
    DataParallel,
    GpuRequest,
    Model,
    Node,
    NodeResources,
    PipelineParallel,
    Recovery,
    Run,
    Strategy,
)
from tests.unit.seed_cluster import SEED, environment, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
MODEL = Model(layers=24, hidden_size=1024, heads=16, seq_length=2048)


def planned(*nodes: str | Node, **fields: Any) -> Plan:
    whole = {"framework": "megatron-lm", "run": Run(script="train.py"), "model": MODEL, **fields}
    return plan(make_job(*nodes, **whole), SEED)


def with_gpus(name: str, count: int) -> Node:
    return Node(id=name, resources=NodeResources(gpu=GpuRequest(count=count)))


def words(made: Plan) -> list[str]:
    assert made.errors == ()
    (launcher,) = made.nodes[0].processes
    return list(launcher.argv[launcher.argv.index("train.py") + 1 :])


def test_the_arguments_are_those_of_the_job_after_the_scripts_own_and_in_a_file() -> None:
    made = planned(
        B,
        C,
        run=Run(script="train.py", args=("--own", "1")),
        model=Model(**{**MODEL.model_dump(), "precision": "fp8", "vocab_size": 50304}),
        strategy=Strategy(
            tensor_parallel_size=4,
            pipeline_parallel_size=3,
            zero_stage=1,
            sequence_parallel=True,
            recomputation="full",
            data_parallel=DataParallel(batch_size=12),
            pipeline_parallel=PipelineParallel(micro_batch_size=2, virtual_stages=4, schedule="Interleaved"),
        ),
        recovery=Recovery(checkpoint=Checkpoint(dir="/kept")),
        framework_options={"save_interval": 50, "arguments": {"lr": 1e-4, "data_path": ["0.3", "a"], "swiglu": True}},
    )
    assert words(made) == [
        "--own",
        "1",
        "--tensor-model-parallel-size=4",
        "--pipeline-model-parallel-size=3",
        "--num-virtual-stages-per-pipeline-rank=4",
        "--context-parallel-size=1",
        "--sequence-parallel",
        "--use-distributed-optimizer",
        "--micro-batch-size=2",
        "--global-batch-size=12",
        "--recompute-granularity=full",
        "--recompute-method=uniform",
        "--recompute-num-layers=1",
        "--num-layers=24",
        "--hidden-size=1024",
        "--num-attention-heads=16",
        "--seq-length=2048",
        "--max-position-embeddings=2048",
        "--vocab-size=50304",
        "--bf16",
        "--fp8-format=hybrid",
        "--save=/kept",
        "--load=/kept",
        "--save-interval=50",
        "--distributed-backend=nccl",
        "--distributed-timeout-minutes=10",
        "--lr=0.0001",
        "--data-path",
        "0.3",
        "a",
        "--swiglu",
    ]
    for node in made.nodes:
        (text,) = (file.text for file in node.files if file.path == "megatron_args.txt")
        assert text.splitlines() == words(made)[2:]
        assert node.processes[0].env["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
        (settings,) = (file.text for file in node.files if file.path == "dttui_config.json")
        assert json.loads(settings)["framework_options"]["save_interval"] == 50


def test_layers_that_are_not_gpts_are_megatrons_too_and_its_own_words_for_them_win() -> None:
    model = Model(layers=32, hidden_size=4096, heads=32, seq_length=8192, kv_heads=8, head_size=128, ffn_size=14336,
                  gated=True, tied=False, attention="flash", dropout=False, vocab_size=128256)  # fmt: skip
    told = words(planned(C, model=model))
    of_layers = {"--group-query-attention", "--num-query-groups=8", "--kv-channels=128", "--ffn-hidden-size=14336"}
    of_layers |= {"--swiglu", "--untie-embeddings-and-output-weights", "--attention-backend=flash"}
    of_layers |= {"--attention-dropout=0.0", "--hidden-dropout=0.0"}
    assert of_layers <= {*told}
    own = {"ffn_hidden_size": 11008, "swiglu": False}
    told = words(planned(C, model=model, framework_options={"arguments": own}))
    assert "--ffn-hidden-size=11008" in told
    assert "--ffn-hidden-size=14336" not in told
    plain = words(planned(C, model=Model(layers=32, hidden_size=4096, heads=32, seq_length=8192, kv_heads=32)))
    assert not {word.partition("=")[0] for word in plain} & {word.partition("=")[0] for word in of_layers}


def test_batches_that_are_left_open_are_those_of_the_estimate_and_a_longer_rendezvous_is_waited_for() -> None:
    slow = Communication(rendezvous_timeout="20m")
    told = words(planned(C, strategy=Strategy(pipeline_parallel_size=2), communication=slow))
    assert {"--micro-batch-size=1", "--global-batch-size=32", "--distributed-timeout-minutes=40"} <= {*told}
    one = words(planned(C, strategy=Strategy(data_parallel=DataParallel(batch_size=64))))
    assert {"--micro-batch-size=8", "--global-batch-size=64"} <= {*one}


def test_what_a_person_says_overrules_what_the_job_leaves_open_alone() -> None:
    run = Run(script="train.py", args=("--distributed-timeout-minutes", "5"))
    options = {"arguments": {"max-position-embeddings": 4096, "use_torch_fsdp2": True}}
    made = planned(A, run=run, framework_options=options, strategy=Strategy(sequence_parallel=True))
    assert [word for word in words(made) if "position" in word or "timeout" in word] == [
        "--distributed-timeout-minutes",
        "--max-position-embeddings=4096",
    ]
    assert "--sequence-parallel" not in words(made)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in made.nodes[0].processes[0].env


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train_iter": 5}, 'Megatron-LM has no argument train_iter; did you mean "train_iters"?'),
        ({"foo": 5}, "Megatron-LM has no argument foo. An argument of the script alone goes into run.args."),
        ({"mock_data": 1}, "is a switch: expected true or false"),
        ({"lr": True}, "takes a value: expected text or a number, or a list of them"),
        ({"lr": None}, "takes a value: expected text or a number, or a list of them"),
        ({"split": "a\nb"}, "must be printable text on one line"),
        ({"num-layers": 4}, "write model.layers instead, which dttui passes on"),
    ],
)
def test_a_wrong_argument_is_told_with_its_key(arguments: dict[str, Any], message: str) -> None:
    (finding,) = planned(A, framework_options={"arguments": arguments}).errors
    assert (finding.code, finding.message) == ("framework-option", message)
    assert finding.path == ("framework_options", "arguments", next(iter(arguments)))


def test_what_dttui_passes_on_is_refused_among_the_scripts_own_arguments() -> None:
    run = Run(script="train.py", args=("--lr", "1", "--tensor-model-parallel-size=2"))
    (finding,) = planned(A, run=run).errors
    assert finding.path == ("run", "args", 2)
    assert finding.hint == "Take it out of run.args and write strategy.tensor_parallel_size."


STAGES = PipelineParallel(virtual_stages=2, schedule="Interleaved")
BATCH = "strategy.data_parallel.batch_size"


@pytest.mark.parametrize(
    ("strategy", "model", "message", "hint"),
    [
        ({"tensor_parallel_size": 4}, {"heads": 18}, "18 heads cannot be divided by tensor 4", "size: 2."),
        ({"tensor_parallel_size": 2}, {"heads": 12}, "", ""),
        (
            {"pipeline_parallel_size": 4},
            {"layers": 42},
            "42 layers cannot be divided by pipeline 4 × 1 chunks",
            "What fits is strategy.pipeline_parallel_size: 2.",
        ),
        (
            {"pipeline_parallel_size": 4, "pipeline_parallel": STAGES},
            {"layers": 12},
            "12 layers cannot be divided by pipeline 4 × 2 chunks",
            "pipeline_parallel_size: 2; strategy.pipeline_parallel.virtual_stages: 3.",
        ),
        ({"pipeline_parallel": STAGES}, {}, "chunks of layers need a pipeline of two stages or more", ""),
        (
            {"data_parallel": DataParallel(batch_size=20), "pipeline_parallel": PipelineParallel(micro_batch_size=2)},
            {},
            "the global batch 20 cannot be divided by data 8 × micro-batch 2",
            f"{BATCH}: 16 or 32.",
        ),
        (
            {"pipeline_parallel_size": 4, "pipeline_parallel": STAGES, "data_parallel": DataParallel(batch_size=12)},
            {},
            "the interleaved schedule needs the 6 micro-batches to be a multiple of pipeline 4",
            f"{BATCH}: 8 or 16.",
        ),
        (
            {"tensor_parallel_size": 2, "sequence_parallel": True},
            {"seq_length": 99},
            "sequence_parallel needs sequences of a multiple of 2 tokens, not 99",
            "model.seq_length: 98 or 100.",
        ),
    ],
)
def test_numbers_that_do_not_fit_are_told_once_with_the_nearest_that_do(
    strategy: dict[str, Any], model: dict[str, int], message: str, hint: str
) -> None:
    made = planned(C, strategy=Strategy(**strategy), model=Model(**{**MODEL.model_dump(), **model}))
    assert [finding.message for finding in made.errors] == ([message] if message else [])
    assert [finding.message for finding in made.findings].count(message) == bool(message)
    assert not message or made.errors[0].hint.endswith(hint)
    assert all(node.processes for node in made.nodes) is not bool(message)


def test_uneven_layers_are_megatrons_affair_where_it_is_told_how() -> None:
    options = {"arguments": {"decoder_first_pipeline_num_layers": 11}}
    odd = Model(**{**MODEL.model_dump(), "layers": 23})
    assert words(planned(C, model=odd, strategy=Strategy(pipeline_parallel_size=2), framework_options=options))


@pytest.mark.parametrize(
    ("counts", "tensor", "hint"),
    [
        ((3, 5), 2, "Use 2 on each: resources.gpu.count."),
        ((2, 6), 4, "What fits is strategy.tensor_parallel_size: 2."),
        ((2, 4), 2, ""),
    ],
)
def test_unequal_nodes_that_tensors_cannot_be_split_over_say_how_many_to_use(
    counts: tuple[int, int], tensor: int, hint: str
) -> None:
    made = planned(with_gpus(B, counts[0]), with_gpus(C, counts[1]), strategy=Strategy(tensor_parallel_size=tensor))
    assert [(finding.code, finding.hint) for finding in made.errors] == ([("unequal-slots", hint)] if hint else [])


def test_the_context_degree_counts_among_the_others_and_is_told_where_it_is_wrong() -> None:
    options = {"context_parallel_size": 2}
    made = planned(C, strategy=Strategy(data_parallel_size=2, tensor_parallel_size=2), framework_options=options)
    assert {"--context-parallel-size=2", "--global-batch-size=2"} <= {*words(made)}
    assert made.estimate is not None
    assert made.estimate.inputs["layout.context"].value == 2
    (finding,) = planned(C, framework_options={"context_parallel_size": 3}).errors
    assert finding.message == "context 3 takes 3 ranks, which does not divide the 8 of the chosen nodes"
    assert finding.path == ("framework_options", "context_parallel_size")
    odd = Model(**{**MODEL.model_dump(), "seq_length": 2046})
    (finding,) = planned(C, model=odd, framework_options=options).errors
    assert finding.message == "context 2 needs sequences of a multiple of 4 tokens, not 2046"
    assert finding.hint == "What fits is model.seq_length: 2044 or 2048."


def test_experts_are_shared_out_over_a_divisor_of_what_tensors_and_stages_leave() -> None:
    options = {"expert_parallel_size": 3, "arguments": {"num_experts": 6}}
    (finding,) = planned(C, strategy=Strategy(tensor_parallel_size=2), framework_options=options).errors
    assert finding.message.startswith("expert 3 × tensor 2 × pipeline 1 takes 6 ranks")
    assert finding.hint == "What fits is framework_options.expert_parallel_size: 2 or 4."
    options = {"expert_parallel_size": 4, "arguments": {"num_experts": 8}}
    made = planned(C, strategy=Strategy(tensor_parallel_size=2), framework_options=options)
    assert {"--expert-model-parallel-size=4", "--num-experts=8"} <= {*words(made)}


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ({"pipeline_parallel": PipelineParallel(schedule="GPipe")}, "strategy.pipeline_parallel.schedule"),
        ({"pipeline_parallel": PipelineParallel(schedule="Interleaved")}, "strategy.pipeline_parallel.schedule"),
        (
            {"pipeline_parallel": PipelineParallel(schedule="1F1B", virtual_stages=2)},
            "strategy.pipeline_parallel.virtual_stages",
        ),
        ({"zero_stage": 3}, "strategy.zero_stage"),
    ],
)
def test_what_megatron_does_not_have_is_refused_with_what_it_has(strategy: dict[str, Any], subject: str) -> None:
    (finding,) = planned(C, strategy=Strategy(**strategy)).errors
    assert finding.subject == subject
    assert finding.hint.startswith("Write ")


def test_sizes_that_megatrons_scripts_insist_on_are_missed_with_a_warning() -> None:
    told = [item for item in planned(A, model=None).findings if item.code == "model-sizes"]
    assert [item.severity for item in told] == [Severity.WARNING]
    given = {"arguments": {"use_checkpoint_args": True}}
    assert "model-sizes" not in {item.code for item in planned(A, model=None, framework_options=given).findings}


def test_what_megatron_and_deepspeed_do_together_is_launched_as_megatron() -> None:
    """Use case 3 of seed 004, 8 × 8 A100s, by what validation says to write in the place of both names."""
    nodes = tuple(Node(id=f"n{index}") for index in range(8))
    inventory = Inventory(environments=tuple(environment(node.id, 8) for node in nodes))
    strategy = Strategy(
        data_parallel=DataParallel(batch_size=64),
        tensor_parallel_size=8,
        pipeline_parallel_size=4,
        data_parallel_size=2,
        zero_stage=1,
    )
    job = make_job(*nodes, strategy=strategy, model=MODEL, framework="megatron-lm", run=Run(script="train.py"))
    told = words(plan(job, inventory))
    degrees = {"--tensor-model-parallel-size=8", "--pipeline-model-parallel-size=4"}
    assert {"--use-distributed-optimizer", *degrees} <= {*told}
