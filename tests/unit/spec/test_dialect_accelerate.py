"""Configurations of accelerate: the variables of the ranks, and what the job says of the same in its own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dttui.spec import DocumentError
from dttui.spec.dialects.accelerate_environment import accelerate_environment, flattened
from dttui.spec.findings import Severity
from dttui.spec.importing import Imported, merge
from tests.unit.spec.imported import command, data, file, keys

FIT = Path(__file__).parents[2] / "material/imports/fit"
FSDP = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer,LlamaMLP
  fsdp_offload_params: true
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_backward_prefetch: BACKWARD_PRE
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
USUAL = {
    "FSDP_MIN_NUM_PARAMS": "100000000",
    "FSDP_USE_ORIG_PARAMS": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    "FSDP_SYNC_MODULE_STATES": "true",
}
"""What accelerate's launcher says of FSDP where nobody does, and its plugin takes otherwise."""


def of(text: str) -> Imported:
    return merge([file(text)], "x")


def variables(imported: Imported) -> dict[str, str]:
    run = imported.job.run
    return dict(run.env) if run is not None else {}


def notes(imported: Imported) -> dict[str, str]:
    return {note.place.path: note.message for note in imported.notes if note.place is not None}


def sharded(*lines: str, more: str = "") -> Imported:
    section = "".join(f"  {line}\n" for line in lines)
    return of(f"distributed_type: FSDP\nfsdp_config:\n{section}{more}")


def test_sharding_is_told_to_the_ranks_and_to_the_plan() -> None:
    imported = of(FSDP)
    assert data(imported) == {
        "name": "x",
        "framework": "pytorch-fsdp",
        "framework_options": {
            "wrap": "layers",
            "layer_classes": ["LlamaDecoderLayer", "LlamaMLP"],
            "cpu_offload": True,
            "state_dict": "sharded",
            "reduce_dtype": "bf16",
        },
        "run": {
            "script": "train.py",
            "env": {
                "ACCELERATE_MIXED_PRECISION": "bf16",
                "ACCELERATE_USE_FSDP": "true",
                "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
                "FSDP_TRANSFORMER_CLS_TO_WRAP": "LlamaDecoderLayer,LlamaMLP",
                "FSDP_OFFLOAD_PARAMS": "true",
                "FSDP_SHARDING_STRATEGY": "SHARD_GRAD_OP",
                "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
                "FSDP_BACKWARD_PREFETCH": "BACKWARD_PRE",
                **USUAL,
            },
        },
        "strategy": {"zero_stage": 2},
        "resources": {"gpu": {"count": 8}},
        "model": {"precision": "bf16"},
    }
    assert [note.code for note in imported.notes] == ["script-missing"]


def test_keys_of_a_section_may_leave_out_its_name() -> None:
    imported = sharded("offload_params: true", "version: 2", "activation_checkpointing: true")
    assert variables(imported) == {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_OFFLOAD_PARAMS": "true",
        "FSDP_VERSION": "2",
        "FSDP_ACTIVATION_CHECKPOINTING": "true",
        **USUAL,
    }
    assert imported.job.strategy.recomputation == "full"
    assert notes(imported) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 1}", ("pytorch-fsdp", 3)),
        ("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}", ("pytorch-fsdp", 3)),
        ("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: NO_SHARD}", ("pytorch-ddp", None)),
        ("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}", ("pytorch-fsdp", 3)),
        (
            "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}",
            ("pytorch-fsdp", 2),
        ),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}", ("deepspeed", 3)),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {zero3_init_flag: true}", ("deepspeed", 2)),
        ("distributed_type: MULTI_GPU", ("pytorch-ddp", None)),
        ("distributed_type: MEGATRON_LM\nmixed_precision: bf16", ("pytorch-ddp", None)),
        ("compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'", ("pytorch-ddp", None)),
        ("distributed_type: XLA", (None, None)),
    ],
)
def test_what_accelerate_distributes_by_is_a_framework_and_a_stage(
    text: str, expected: tuple[str | None, int | None]
) -> None:
    job = of(text).job
    assert (job.framework, job.strategy.zero_stage) == expected


@pytest.mark.parametrize(("name", "stage"), [("HYBRID_SHARD", 3), ("4", 3), ("HYBRID_SHARD_ZERO2", 2), ("5", 2)])
def test_sharding_inside_nodes_is_an_option_of_the_framework(name: str, stage: int) -> None:
    job = sharded(f"fsdp_sharding_strategy: {name}").job
    assert job.framework_options["shard_group"] == "node"
    assert job.strategy.zero_stage == stage


def test_copies_a_node_by_sizes_are_the_same() -> None:
    sizes = "num_machines: 2\nnum_processes: 16\nparallelism_config:\n  parallelism_config_dp_replicate_size: {}\n"
    sizes += "  parallelism_config_dp_shard_size: {}\n"
    by_node = sharded("fsdp_version: 2", more=sizes.format(2, 8))
    assert by_node.job.framework_options == {"shard_group": "node"}
    assert variables(by_node)["PARALLELISM_CONFIG_DP_SHARD_SIZE"] == "8"
    inside = sharded("fsdp_version: 2", more=sizes.format(4, 4))
    assert inside.job.framework_options == {}
    assert (
        "takes it that all ranks share one" in notes(inside)["parallelism_config.parallelism_config_dp_replicate_size"]
    )


def test_sharing_out_sequences_is_told_to_accelerate_and_warned_of() -> None:
    imported = of((FIT / "trl-context-parallel-conf.yaml").read_text())
    found = variables(imported)
    assert found["ACCELERATE_USE_PARALLELISM_CONFIG"] == "true"
    assert (found["PARALLELISM_CONFIG_CP_SIZE"], found["PARALLELISM_CONFIG_TP_SIZE"]) == ("2", "1")
    (warned,) = (note for note in imported.notes if note.severity is Severity.WARNING and note.place is not None)
    assert (warned.place.line if warned.place else 0) == 30
    assert "the 2 ranks that share a sequence" in warned.message


def test_deepspeed_is_told_to_the_ranks_and_no_argument_is_added_to_the_script() -> None:
    text = """\
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  gradient_accumulation_steps: 4
  gradient_clipping: 0.5
  offload_optimizer_device: nvme
  offload_optimizer_nvme_path: /nvme
  offload_param_device: CPU
  zero3_init_flag: true
  zero3_save_16bit_model: true
  deepspeed_multinode_launcher: standard
mixed_precision: bf16
num_processes: 4
"""
    imported = of(text)
    assert imported.job.framework_options == {
        "config_for": "accelerate",
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 0.5,
        "offload_optimizer": "nvme",
        "nvme_path": "/nvme",
        "offload_param": "cpu",
        "config": {"zero_optimization": {"stage3_gather_16bit_weights_on_model_save": True}},
    }
    assert variables(imported) == {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_USE_DEEPSPEED": "true",
        "PYTHONPATH": ".",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
        "ACCELERATE_GRADIENT_CLIPPING": "0.5",
        "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "nvme",
        "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH": "/nvme",
        "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "cpu",
        "ACCELERATE_DEEPSPEED_ZERO3_INIT": "true",
        "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
    }
    assert keys(imported) == {"deepspeed_config.deepspeed_multinode_launcher": 11}


WITH_FILE = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: conf/ds.json\nnum_processes: 4\n"


def test_a_file_of_deepspeeds_own_is_what_dttui_writes_where_it_is_imported_too() -> None:
    alone = of(WITH_FILE)
    name = "ACCELERATE_DEEPSPEED_CONFIG_FILE"
    assert variables(alone)[name] == "conf/ds.json"
    assert "the plan knows nothing of it" in notes(alone)["deepspeed_config.deepspeed_config_file"]
    own = '{"zero_optimization": {"stage": 3}, "train_batch_size": "auto", "bf16": {"enabled": true}}'
    for parts in ([file(WITH_FILE), file(own, "ds.json")], [file(own, "here/ds.json"), file(WITH_FILE)]):
        both = merge(parts, "x")
        assert variables(both)[name] == "${DIRECTORY}/ds_config.json"
        assert both.job.framework_options["config_for"] == "accelerate"
        assert (both.job.strategy.zero_stage, both.job.model and both.job.model.precision) == (3, "bf16")
        assert [note.code for note in both.notes] == ["script-missing"]
    other = merge([file(WITH_FILE), file(own, "other.json")], "x")
    assert variables(other)[name] == "conf/ds.json"


def test_what_that_file_is_to_say_is_warned_of_in_the_other() -> None:
    imported = of(WITH_FILE.replace("num_processes", "  gradient_clipping: 1.0\nmixed_precision: bf16\nnum_processes"))
    refused = {path for path, message in notes(imported).items() if "ends at its start" in message}
    assert refused == {"deepspeed_config.gradient_clipping", "mixed_precision"}
    told = variables(imported)["ACCELERATE_CONFIG_DS_FIELDS"].split(",")
    assert set(told) == {"deepspeed_config_file", "gradient_clipping", "mixed_precision"}


def test_ranks_without_gpus_are_told_so() -> None:
    imported = of("distributed_type: MULTI_CPU\nuse_cpu: true\nnum_machines: 2\nnum_processes: 2\n")
    assert variables(imported) == {
        "ACCELERATE_USE_CPU": "True",
        "KMP_AFFINITY": "granularity=fine,compact,1,0",
        "KMP_BLOCKTIME": "1",
    }
    assert data(imported)["resources"] == {"gpu": {"count": 0}}
    assert imported.job.framework == "pytorch-ddp"


def test_compiling_is_told_to_the_ranks_and_to_the_plan() -> None:
    dynamo = "dynamo_config:\n  dynamo_backend: inductor\n  mode: max-autotune\n  dynamo_use_dynamic: true\n"
    imported = of(f"distributed_type: MULTI_GPU\n{dynamo}")
    assert variables(imported) == {
        "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
        "ACCELERATE_DYNAMO_MODE": "max-autotune",
        "ACCELERATE_DYNAMO_USE_DYNAMIC": "True",
    }
    assert imported.job.strategy.compiled is True
    under = of(f"distributed_type: DEEPSPEED\ndeepspeed_config: {{zero_stage: 1}}\n{dynamo}")
    assert under.job.strategy.compiled is None
    assert notes(under)["dynamo_config.mode"] == "accelerate passes over this with DeepSpeed"


def test_fp8_has_its_recipe_in_variables() -> None:
    recipe = "fp8_config:\n  backend: TE\n  fp8_margin: 2\n  amax_history_length: 16\n"
    recipe += "  override_linear_precision: [false, false, true]\n"
    imported = of(f"distributed_type: MULTI_GPU\nmixed_precision: fp8\n{recipe}")
    assert variables(imported) == {
        "ACCELERATE_MIXED_PRECISION": "fp8",
        "ACCELERATE_FP8_BACKEND": "TE",
        "ACCELERATE_FP8_MARGIN": "2",
        "ACCELERATE_FP8_AMAX_HISTORY_LEN": "16",
        "ACCELERATE_FP8_OVERRIDE_FPROP": "False",
        "ACCELERATE_FP8_OVERRIDE_DGRAD": "False",
        "ACCELERATE_FP8_OVERRIDE_WGRAD": "True",
    }
    assert imported.job.model is not None
    assert imported.job.model.precision == "fp8"
    without = of(f"distributed_type: MULTI_GPU\nmixed_precision: bf16\n{recipe}")
    assert notes(without)["fp8_config.backend"] == "accelerate passes over this without mixed_precision: fp8"


def test_megatron_gets_its_degrees_from_accelerate() -> None:
    text = """\
distributed_type: MEGATRON_LM
megatron_lm_config:
  megatron_lm_tp_degree: 4
  megatron_lm_sequence_parallelism: true
  megatron_lm_recompute_activations: true
  megatron_lm_of_the_future: 1
"""
    imported = of(text)
    assert variables(imported) == {
        "ACCELERATE_USE_MEGATRON_LM": "true",
        "MEGATRON_LM_TP_DEGREE": "4",
        "MEGATRON_LM_SEQUENCE_PARALLELISM": "True",
        "MEGATRON_LM_RECOMPUTE_ACTIVATIONS": "True",
    }
    strategy = imported.job.strategy
    assert (strategy.tensor_parallel_size, strategy.sequence_parallel) == (4, True)
    assert strategy.recomputation == "selective"
    assert keys(imported) == {"distributed_type": 1, "megatron_lm_config.megatron_lm_of_the_future": 6}


def test_what_accelerate_passes_over_is_told_of() -> None:
    first = sharded("fsdp_reshard_after_forward: SHARD_GRAD_OP")
    assert first.job.strategy.zero_stage == 3
    assert "FULL_SHARD where it is not said" in notes(first)["fsdp_config.fsdp_reshard_after_forward"]
    second = sharded("fsdp_version: 2", "fsdp_sharding_strategy: SHARD_GRAD_OP")
    assert second.job.strategy.zero_stage == 3
    assert "passes over this" in notes(second)["fsdp_config.fsdp_sharding_strategy"]
    none = of(
        "distributed_type: MULTI_GPU\nfsdp_config: {fsdp_offload_params: true}\ndeepspeed_config: {zero_stage: 3}"
    )
    assert notes(none) == {
        "fsdp_config.fsdp_offload_params": "accelerate passes over this without FSDP",
        "deepspeed_config.zero_stage": "accelerate passes over this without DeepSpeed",
    }
    assert none.job.run is None


def test_what_is_for_dttui_to_decide_is_told_of() -> None:
    text = """\
distributed_type: MULTI_GPU
gpu_ids: 0,1
machine_rank: 1
main_process_port: 29500
rdzv_backend: c10d
num_processes: 5
num_machines: 2
debug: true
enable_cpu_affinity: true
new_key: {of: {the: future}}
"""
    imported = of(text)
    assert keys(imported) == {
        "gpu_ids": 2,
        "machine_rank": 3,
        "main_process_port": 4,
        "rdzv_backend": 5,
        "num_processes": 6,
        "num_machines": 7,
        "new_key.of.the": 10,
    }
    assert variables(imported) == {"ACCELERATE_DEBUG_MODE": "true", "ACCELERATE_CPU_AFFINITY": "1"}
    assert "resources" not in data(imported)


def test_a_command_line_beside_it_says_what_runs() -> None:
    for line in ("torchrun --nproc-per-node 8 mine.py --lr 1", "torchrun --nproc-per-node 8 -m mine"):
        imported = merge([file(FSDP), command(line)], "x")
        run = data(imported)["run"]
        assert run["env"]["ACCELERATE_USE_FSDP"] == "true"
        assert (run.get("script") or run.get("module")) in ("mine.py", "mine")
        assert imported.notes == ()
    assert data(imported)["framework"] == "pytorch-fsdp"


def test_another_cloud_is_refused() -> None:
    text = "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\nec2_instance_type: ml.p3.2xlarge\n"
    with pytest.raises(DocumentError) as caught:
        of(text)
    assert "a configuration of accelerate for SageMaker" in str(caught.value)


@pytest.mark.parametrize("path", sorted(FIT.glob("*conf.y*ml")), ids=lambda path: path.stem)
def test_configurations_that_people_publish_become_jobs(path: Path) -> None:
    imported = of(path.read_text())
    assert variables(imported)
    assert imported.job.framework in ("pytorch-fsdp", "deepspeed")


def made(**settings: Any) -> dict[str, str]:
    return {variable.name: variable.value for variable in accelerate_environment(settings)}


def test_options_of_a_command_line_are_taken_as_text() -> None:
    assert made(use_fsdp=True, fsdp_offload_params="True", fsdp_version="2", mixed_precision="BF16") == {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_OFFLOAD_PARAMS": "true",
        "FSDP_VERSION": "2",
        **USUAL,
    }
    deepspeed = made(use_deepspeed=True, deepspeed_config_file="ds.json", zero_stage="2")
    assert deepspeed["ACCELERATE_DEEPSPEED_CONFIG_FILE"] == "ds.json"
    assert "ACCELERATE_CONFIG_DS_FIELDS" not in deepspeed
    assert made(cpu=True, use_fsdp=True, num_cpu_threads_per_process="4") == {
        "ACCELERATE_USE_CPU": "True",
        "KMP_AFFINITY": "granularity=fine,compact,1,0",
        "KMP_BLOCKTIME": "1",
        "OMP_NUM_THREADS": "4",
    }
    assert made(multi_gpu=True, fp8_override_linear_precision="true,false,true", mixed_precision="fp8") == {
        "ACCELERATE_MIXED_PRECISION": "fp8",
        "ACCELERATE_FP8_OVERRIDE_FPROP": "true",
        "ACCELERATE_FP8_OVERRIDE_DGRAD": "false",
        "ACCELERATE_FP8_OVERRIDE_WGRAD": "true",
    }


def test_each_setting_of_a_file_keeps_its_place() -> None:
    found = flattened({"distributed_type": "FSDP", "fsdp_config": {"offload_params": True, "fsdp_version": None}})
    assert {name: (setting.value, setting.path) for name, setting in found.items()} == {
        "distributed_type": ("FSDP", ("distributed_type",)),
        "use_fsdp": (True, ("distributed_type",)),
        "fsdp_offload_params": (True, ("fsdp_config", "offload_params")),
    }


def test_gpus_are_named_where_one_machine_is_meant_and_each_has_a_process() -> None:
    for said in ("gpu_ids: 2,0\nnum_processes: 2\n", "gpu_ids: '2,0'\n"):
        imported = of(f"distributed_type: MULTI_GPU\n{said}")
        assert data(imported)["resources"] == {"gpu": {"ids": [2, 0]}}
        assert notes(imported) == {}
    one = of("distributed_type: MULTI_GPU\ngpu_ids: 3\nnum_processes: 1\n")
    assert data(one)["resources"] == {"gpu": {"ids": [3]}}
    fewer = of("distributed_type: MULTI_GPU\ngpu_ids: 0,1,2\nnum_processes: 2\n")
    assert data(fewer)["resources"] == {"gpu": {"count": 2}}
    assert "unless resources.gpu.ids says which" in notes(fewer)["gpu_ids"]
    assert "resources" not in data(of("distributed_type: MULTI_GPU\ngpu_ids: all\n"))
