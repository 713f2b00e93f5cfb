"""Imported configurations of accelerate for real: its own launcher's variables, and what its `Accelerator` sees."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui.spec.dialects.accelerate_environment import accelerate_environment, flattened
from tests.frameworks.launching import slots
from tests.integration.headless import dttui, result_of
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

ONE, TWO = "pytorch-dev-env", "llm-training-env"
HERE = Path(__file__).parent
FIT = HERE.parent / "material/imports/fit"
FSDP_1 = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_auto_wrap_policy: SIZE_BASED_WRAP
  fsdp_min_num_params: 2000
  fsdp_backward_prefetch: BACKWARD_POST
  fsdp_offload_params: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_use_orig_params: false
mixed_precision: bf16
num_machines: 1
num_processes: 2
"""
FSDP_2 = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer,LlamaMLP
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_activation_checkpointing: true
mixed_precision: bf16
num_machines: 1
num_processes: 2
"""
HYBRID = FSDP_1.replace("SHARD_GRAD_OP", "HYBRID_SHARD")
ZERO_2 = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 2
  offload_optimizer_device: cpu
  gradient_accumulation_steps: 4
  gradient_clipping: 0.5
mixed_precision: bf16
num_machines: 1
num_processes: 2
"""
ZERO_3 = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: none
  offload_param_device: cpu
  zero3_init_flag: false
  zero3_save_16bit_model: true
mixed_precision: bf16
num_machines: 1
num_processes: 2
"""
DDP = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
dynamo_config:
  dynamo_backend: INDUCTOR
  dynamo_mode: max-autotune
enable_cpu_affinity: false
debug: true
gpu_ids: all
mixed_precision: bf16
num_machines: 1
num_processes: 2
"""
CPU = "distributed_type: MULTI_CPU\nuse_cpu: true\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 1\n"
MEGATRON = """\
distributed_type: MEGATRON_LM
megatron_lm_config:
  megatron_lm_tp_degree: 2
  megatron_lm_gradient_clipping: 0.5
  megatron_lm_num_micro_batches: 4
  megatron_lm_recompute_activations: true
num_processes: 2
"""
FP8 = """\
distributed_type: MULTI_GPU
mixed_precision: fp8
fp8_config:
  backend: TE
  margin: 2
  amax_history_length: 16
  override_linear_precision: [false, true, false]
num_processes: 2
"""
SIZES = """\
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, offload_params: false}
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_cp_size: 2
  parallelism_config_cp_comm_strategy: alltoall
num_processes: 8
"""
SEQUENCES = """\
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  offload_optimizer_device: nvme
  offload_optimizer_nvme_path: /nvme
  deepspeed_moe_layer_cls_names: MixtralSparseMoeBlock
parallelism_config: {parallelism_config_sp_size: 2}
num_processes: 2
"""
PLAIN = "distributed_type: 'NO'\nmixed_precision: 'no'\nnum_processes: 1\n"
KINDS = {
    "fsdp-1": FSDP_1,
    "fsdp-2": FSDP_2,
    "hybrid": HYBRID,
    "zero-2": ZERO_2,
    "zero-3": ZERO_3,
    "ddp": DDP,
    "cpu": CPU,
    "megatron": MEGATRON,
    "fp8": FP8,
    "sizes": SIZES,
    "sequences": SEQUENCES,
    "plain": PLAIN,
    **{path.name: path.read_text(encoding="utf-8") for path in FIT.glob("*conf.y*ml")},
}
OF_WHO_STARTS = {"MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"}
FORGOTTEN = {"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH", "ACCELERATE_FP8_AMAX_HISTORY_LEN"}
"""Variables that accelerate reads and its launcher does not set, or by its own default."""
TAKEN_ANYWAY = {
    "ACCELERATE_CONFIG_DS_FIELDS": None,
    "ACCELERATE_DYNAMO_BACKEND": "NO",
    "ACCELERATE_DYNAMO_MODE": "default",
    "ACCELERATE_DYNAMO_USE_DYNAMIC": "False",
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
    "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "False",
    "ACCELERATE_FP8_AMAX_COMPUTE_ALGO": "most_recent",
    "ACCELERATE_FP8_AMAX_HISTORY_LEN": "1024",
    "ACCELERATE_FP8_AMAX_HISTORY_LENGTH": None,  # Which nobody reads.
    "ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER": "1",
    "ACCELERATE_FP8_FORMAT": "HYBRID",
    "ACCELERATE_FP8_INTERVAL": "1",
    "ACCELERATE_FP8_OPT_LEVEL": "O2",
    "ACCELERATE_FP8_PAD_INNER_DIM": "1",
    "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL": "False",
    "ACCELERATE_MIXED_PRECISION": "no",
    "ACCELERATE_USE_CPU": "False",
    "FSDP_ACTIVATION_CHECKPOINTING": "false",
    "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD": "false",
    "FSDP_FORWARD_PREFETCH": "false",
    "FSDP_OFFLOAD_PARAMS": "false",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
    "FSDP_VERSION": "1",
    "MEGATRON_LM_EOD_MASK_LOSS": "False",
    "MEGATRON_LM_NO_LOAD_OPTIM": "False",
    "MEGATRON_LM_NO_SAVE_OPTIM": "False",
    "MEGATRON_LM_OPTIMIZER_CPU_OFFLOAD": "False",
    "MEGATRON_LM_OVERLAP_CPU_OPTIMIZER_D2H_H2D": "False",
    "MEGATRON_LM_PP_DEGREE": "1",
    "MEGATRON_LM_USE_CUSTOM_FSDP": "False",
    "MEGATRON_LM_USE_PRECISION_AWARE_OPTIMIZER": "False",
    "PARALLELISM_CONFIG_CP_BACKEND": "torch",
    "PARALLELISM_CONFIG_CP_COMM_STRATEGY": "allgather",
    "PARALLELISM_CONFIG_CP_SIZE": "1",
    "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "1",
    "PARALLELISM_CONFIG_DP_SHARD_SIZE": "1",
    "PARALLELISM_CONFIG_SP_BACKEND": "deepspeed",
    "PARALLELISM_CONFIG_SP_SEQ_LENGTH": "None",
    "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE": "True",
    "PARALLELISM_CONFIG_SP_SIZE": "1",
    "PARALLELISM_CONFIG_TP_SIZE": "1",
}
"""What its launcher says, and an `Accelerator` takes without it; `None` for whatever it says."""


def test_its_launcher_sets_the_variables_that_are_imported(frameworks_python: Path, deepspeed_variables: Any) -> None:
    done = subprocess.run(
        [str(frameworks_python), str(HERE / "accelerate_reader.py")],
        input=json.dumps(KINDS),
        env={**os.environ, **deepspeed_variables, "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    theirs: dict[str, dict[str, str]] = json.loads(done.stdout.rpartition("answer ")[2])
    for name, text in KINDS.items():
        said = flattened(yaml.safe_load(text))
        values = {key: setting.value for key, setting in said.items()}
        ours = {variable.name: variable.value for variable in accelerate_environment(values, from_file=said)}
        found = theirs[name]
        assert ("PYTHONPATH" in ours) == ("PYTHONPATH" in found)
        ours.pop("PYTHONPATH", None)
        for key in FORGOTTEN & ours.keys():
            del ours[key]
        for listed in (ours, found):  # In whatever order.
            if "ACCELERATE_CONFIG_DS_FIELDS" in listed:
                listed["ACCELERATE_CONFIG_DS_FIELDS"] = ",".join(
                    sorted(listed["ACCELERATE_CONFIG_DS_FIELDS"].split(","))
                )
        assert {key: found.get(key) for key in ours} == ours, name
        left_out = {key: value for key, value in found.items() if key not in {*ours, *OF_WHO_STARTS, "PYTHONPATH"}}
        assert {key: TAKEN_ANYWAY.get(key, "?") or value for key, value in left_out.items()} == left_out, name


SEEN: dict[str, dict[str, Any]] = {
    "ddp": {"compiled": "INDUCTOR"},
    "fsdp-1": {
        "sharding": "ShardingStrategy.SHARD_GRAD_OP",
        "wrap": "size_based_auto_wrap_policy",
        "least": 2000,
        "offload": "CPUOffload(offload_params=True)",
        "state_dict": "StateDictType.SHARDED_STATE_DICT",
        "original": False,
    },
    "fsdp-2": {
        "version": 2,
        "reshard": "False",
        "wrap": "transformer_auto_wrap_policy",
        "classes": ["LlamaDecoderLayer", "LlamaMLP"],
        "state_dict": "StateDictType.FULL_STATE_DICT",
        "checkpointing": True,
    },
    "hybrid": {"sharding": "ShardingStrategy.HYBRID_SHARD"},
    "zero-2": {"stage": 2, "offload": ["cpu", "none"], "steps": 4, "clipping": 0.5},
    "zero-3": {"stage": 3, "offload": ["none", "cpu"], "save": True},
}
"""What the configurations say, in the words of accelerate's plugins."""


def _told(text: str) -> list[dict[str, Any]]:
    """Return what ranks have told; theirs come line by line, whoever wrote first."""
    return [json.loads(line.partition("told ")[2]) for line in text.splitlines() if "told {" in line]


def _under_dttui(
    directory: Path,
    text: str,
    python: Path,
    env: dict[str, str],
    *,
    as_if: bool,
    nodes: Sequence[str] = (ONE,),
    own: str = "",
) -> dict[str, Any]:
    """Import a configuration, name the script and the nodes, and return what the first rank sees.

    Args:
        directory: for the files.
        text: the configuration.
        python: interpreter of the ranks.
        env: variables of the ranks.
        as_if: whether they are to take it that there are GPUs.
        nodes: where they run.
        own: a configuration of DeepSpeed's own, which is imported too, and not sent.
    """
    (directory / "config.yaml").write_text(text)
    (directory / "own").mkdir()
    (directory / "own/ds.json").write_text(own)
    files = [directory / "config.yaml", *([directory / "own/ds.json"] if own else [])]
    done = dttui("import", *files, "-o", directory / "job.yaml")
    (directory / "own/ds.json").unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    document = yaml.safe_load((directory / "job.yaml").read_text())
    job = document["distributed_training"]
    assert job["run"]["script"] == "train.py"
    job["cluster"] = slots(dict.fromkeys(nodes, job.pop("resources")["gpu"]["count"]))
    job["dataset"] = "none"
    job["run"] |= {"workdir": ".", "python": str(python), "args": ["--as-if-gpus"] if as_if else []}
    job["run"]["env"] |= env
    (directory / "job.yaml").write_text(yaml.safe_dump(document))
    (directory / "train.py").write_bytes((HERE / "accelerate_probe.py").read_bytes())
    done = dttui("--demo", "--apply", directory / "job.yaml", "--output", "json", deadline_s=200.0)
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(done)
    assert result["state"] == "SUCCEEDED"
    (told,) = _told((Path(result["directory"]) / f"logs/0/{ONE}/0.out").read_text())
    return told


def _under_its_launcher(directory: Path, python: Path, env: dict[str, str], *, as_if: bool) -> dict[str, Any]:
    launcher = [str(python), "-m", "accelerate.commands.launch", "--config_file", str(directory / "config.yaml")]
    done = subprocess.run(
        [*launcher, "--main_process_port", "0", "train.py", *(["--as-if-gpus"] if as_if else [])],
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return _told(done.stdout)[0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("ddp", "MULTI_GPU", marks=pytest.mark.thorough),
        ("fsdp-1", "FSDP"),
        pytest.param("fsdp-2", "FSDP", marks=pytest.mark.thorough),
        pytest.param("hybrid", "FSDP", marks=pytest.mark.thorough),
        pytest.param("zero-2", "DEEPSPEED", marks=pytest.mark.thorough),
        ("zero-3", "DEEPSPEED"),
    ],
)
def test_an_accelerator_sees_what_it_sees_under_its_own_launcher(
    tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str], name: str, kind: str
) -> None:
    seen = _under_dttui(tmp_path, KINDS[name], frameworks_python, deepspeed_variables, as_if=True)
    assert seen == _under_its_launcher(tmp_path, frameworks_python, deepspeed_variables, as_if=True)
    assert (seen["distributed_type"], seen["processes"], seen["mixed_precision"]) == (kind, 2, "bf16")
    part = seen if name == "ddp" else seen["deepspeed" if kind == "DEEPSPEED" else "fsdp"]
    assert {key: part[key] for key in SEEN[name]} == SEEN[name]


@pytest.mark.parametrize(
    ("text", "nodes", "kind", "processes"),
    [
        (FSDP_2, [ONE], "MULTI_CPU", 2),
        pytest.param(CPU.replace(": 1", ": 2"), [ONE, TWO], "MULTI_CPU", 2, marks=pytest.mark.thorough),
        # As under its own launcher, where an Accelerator counts no ranks but those of devices.
        pytest.param(ZERO_2, [ONE], "DEEPSPEED", 1, marks=pytest.mark.thorough),
    ],
    ids=["fsdp", "cpu", "deepspeed"],
)
def test_without_gpus_an_accelerator_counts_ranks_but_for_deepspeed(
    tmp_path: Path,
    frameworks_python: Path,
    deepspeed_variables: dict[str, str],
    text: str,
    nodes: list[str],
    kind: str,
    processes: int,
) -> None:
    seen = _under_dttui(tmp_path, text, frameworks_python, deepspeed_variables, as_if=False, nodes=nodes)
    assert (seen["distributed_type"], seen["processes"], seen["mixed_precision"]) == (kind, processes, "bf16")


@pytest.mark.thorough
def test_a_file_of_deepspeeds_own_is_read_as_dttui_writes_it(
    tmp_path: Path, frameworks_python: Path, deepspeed_variables: dict[str, str]
) -> None:
    text = (
        "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: own/ds.json, zero3_init_flag: false}\n"
    )
    zero = {"stage": 3, "offload_param": {"device": "cpu"}, "sub_group_size": 7}
    own = {"zero_optimization": zero, "bf16": {"enabled": True}, "train_batch_size": "auto", "gradient_clipping": 0.5}
    seen = _under_dttui(
        *(tmp_path, f"{text}num_processes: 2\n", frameworks_python, deepspeed_variables),
        as_if=True,
        own=json.dumps(own),
    )
    assert (seen["distributed_type"], seen["mixed_precision"]) == ("DEEPSPEED", "bf16")
    assert (seen["deepspeed"]["stage"], seen["deepspeed"]["clipping"]) == (3, 0.5)
    assert seen["deepspeed"]["config"]["zero_optimization"]["sub_group_size"] == 7
    assert seen["deepspeed"]["config"]["train_batch_size"] == "auto"
