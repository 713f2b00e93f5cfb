"""The variables by which `accelerate launch` tells an `Accelerator` what it was asked for. Pure.

Besides starting torchrun that launcher does nothing else (accelerate 1.15: `prepare_multi_gpu_env`,
`prepare_deepspeed_cmd_env` and `prepare_simple_launcher_cmd_env` of accelerate/utils/launch.py, with the defaults of
accelerate/commands/launch.py), so ranks that dttui starts with them find what its own would.

Settings go by the names of its options, which those in the sections of a configuration file are too, once `flattened`:
`fsdp_offload_params`, `zero_stage`, `parallelism_config_cp_size`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dttui.spec.problems import PathKey

USES = {
    "DEEPSPEED": "use_deepspeed",
    "FSDP": "use_fsdp",
    "MEGATRON_LM": "use_megatron_lm",
    "MULTI_GPU": "multi_gpu",
}
"""Kinds of `distributed_type`, and the switch of the launcher that each stands for."""
_SECTIONS = {
    "fsdp_config": "fsdp_",
    "fp8_config": "fp8_",
    "dynamo_config": "dynamo_",
    "deepspeed_config": "",
    "megatron_lm_config": "",
    "parallelism_config": "",
    "mpirun_config": "",
}
"""Sections of a file, and what is put before their keys where that is missing (`_validate_launch_command`)."""
_FSDP = {
    "fsdp_version": "VERSION",
    "fsdp_sharding_strategy": "SHARDING_STRATEGY",
    "fsdp_min_num_params": "MIN_NUM_PARAMS",
    "fsdp_auto_wrap_policy": "AUTO_WRAP_POLICY",
    "fsdp_transformer_layer_cls_to_wrap": "TRANSFORMER_CLS_TO_WRAP",
    "fsdp_backward_prefetch": "BACKWARD_PREFETCH",
    "fsdp_state_dict_type": "STATE_DICT_TYPE",
    "fsdp_ignored_modules": "IGNORED_MODULES",
}
_FSDP_SWITCHES = {
    "fsdp_reshard_after_forward": "RESHARD_AFTER_FORWARD",
    "fsdp_offload_params": "OFFLOAD_PARAMS",
    "fsdp_forward_prefetch": "FORWARD_PREFETCH",
    "fsdp_use_orig_params": "USE_ORIG_PARAMS",
    "fsdp_cpu_ram_efficient_loading": "CPU_RAM_EFFICIENT_LOADING",
    "fsdp_sync_module_states": "SYNC_MODULE_STATES",
    "fsdp_activation_checkpointing": "ACTIVATION_CHECKPOINTING",
    "fsdp_activation_checkpointing_offload": "ACTIVATION_CHECKPOINTING_OFFLOAD",
}
"""Those that are handed on in small letters."""
_FSDP_USUAL = {
    "fsdp_min_num_params": "100000000",
    "fsdp_use_orig_params": "true",
    "fsdp_cpu_ram_efficient_loading": "true",
    "fsdp_sync_module_states": "true",
}
"""Defaults of the launcher that are not those of the plugin which reads the variables; all others are the same."""
_DEEPSPEED = {
    "zero_stage": "DEEPSPEED_ZERO_STAGE",
    "gradient_accumulation_steps": "GRADIENT_ACCUMULATION_STEPS",
    "deepspeed_config_file": "DEEPSPEED_CONFIG_FILE",
    "deepspeed_moe_layer_cls_names": "DEEPSPEED_MOE_LAYER_CLS_NAMES",
    # The launcher forgets these two, and the plugin reads them.
    "offload_optimizer_nvme_path": "DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
    "offload_param_nvme_path": "DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
}
_DEEPSPEED_SWITCHES = {
    "gradient_clipping": "GRADIENT_CLIPPING",
    "offload_optimizer_device": "DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "zero3_init_flag": "DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
}
OF_DEEPSPEED = (*_DEEPSPEED, *_DEEPSPEED_SWITCHES)
"""Settings that only DeepSpeed's launcher hands on."""
_FIELDS = (
    *OF_DEEPSPEED,
    *("deepspeed_multinode_launcher", "deepspeed_hostfile"),
    *("deepspeed_inclusion_filter", "deepspeed_exclusion_filter", "mixed_precision"),
)
"""What a file may say of DeepSpeed."""
_DYNAMO = {
    "dynamo_backend": "BACKEND",
    "dynamo_mode": "MODE",
    "dynamo_use_fullgraph": "USE_FULLGRAPH",
    "dynamo_use_dynamic": "USE_DYNAMIC",
    "dynamo_use_regional_compilation": "USE_REGIONAL_COMPILATION",
}
_FP8 = {
    **{
        f"fp8_{name}": name.upper()
        for name in (
            *("backend", "use_autocast_during_eval", "margin", "interval", "format", "amax_history_len"),
            *("amax_compute_algo", "opt_level", "enable_fsdp_float8_all_gather", "pad_inner_dim"),
            "use_mxfp8_block_scaling",
        )
    },
    # `accelerate config` writes these, and the launcher hands them on by names that nobody reads.
    "fp8_amax_history_length": "AMAX_HISTORY_LEN",
    "fp8_amax_compute_algorithm": "AMAX_COMPUTE_ALGO",
    "fp8_optimization_level": "OPT_LEVEL",
}
_FP8_OVERRIDE = "fp8_override_linear_precision"
_MEGATRON = tuple(
    f"megatron_lm_{name}"
    for name in (
        *("tp_degree", "pp_degree", "use_custom_fsdp", "no_load_optim", "eod_mask_loss", "no_save_optim"),
        *("optimizer_cpu_offload", "use_precision_aware_optimizer", "overlap_cpu_optimizer_d2h_h2d"),
        *("decoder_last_pipeline_num_layers", "gradient_clipping", "num_micro_batches", "sequence_parallelism"),
        *("recompute_activations", "use_distributed_optimizer", "recompute_granularity", "recompute_method"),
        *("recompute_num_layers", "attention_backend", "expert_model_parallel_size", "context_parallel_size"),
        *("attention_dropout", "hidden_dropout", "attention_softmax_in_fp32", "expert_tensor_parallel_size"),
        *("calculate_per_token_loss", "use_rotary_position_embeddings"),
    )
)
_SIZES = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "cp_backend", "sp_size", "sp_backend")
_SEQUENCE_SETTINGS = ("sp_seq_length", "sp_seq_length_is_variable", "sp_attn_implementation")
_PARALLELISM = "parallelism_config_"


@dataclass(frozen=True)
class AccelerateSetting:
    """What a configuration says by one name."""

    value: Any
    path: PathKey
    """Where."""


@dataclass(frozen=True)
class Variable:
    """A variable of the ranks."""

    name: str
    value: str
    setting: str
    """The setting that it follows from."""


def flattened(config: Mapping[str, Any]) -> dict[str, AccelerateSetting]:
    """Return what a configuration file says, by the names of the launcher's options; without what it leaves empty.

    Args:
        config: the keys of a `ClusterConfig`, as YAML has them.
    """
    found: dict[str, AccelerateSetting] = {}
    for key, value in config.items():
        prefix = _SECTIONS.get(key)
        if prefix is not None and isinstance(value, Mapping):
            for inner, data in value.items():
                name = str(inner)
                found[name if name.startswith(prefix) else prefix + name] = AccelerateSetting(data, (key, inner))
        else:
            found[key] = AccelerateSetting(value, (key,))
    kind = found.get("distributed_type")
    if kind is not None and str(kind.value) in USES:
        found[USES[str(kind.value)]] = AccelerateSetting(True, kind.path)
    if config.get("parallelism_config"):
        found["use_parallelism_config"] = AccelerateSetting(True, ("parallelism_config",))
    if "fp16" in found and "mixed_precision" not in found:  # What an old version wrote.
        found["mixed_precision"] = AccelerateSetting("fp16" if found["fp16"].value else "no", ("fp16",))
    return {name: setting for name, setting in found.items() if setting.value is not None}


def accelerate_environment(settings: Mapping[str, Any], from_file: Collection[str] = ()) -> tuple[Variable, ...]:
    """Return the variables of the ranks.

    Left out is what an `Accelerator` takes without being told; the GPUs that are seen, the address and port of the
    master and the threads of a rank, unless they are asked for, are the business of who starts the ranks.

    Args:
        settings: by the names of the launcher's options, with `use_fsdp`, `use_deepspeed`, `multi_gpu`,
            `use_megatron_lm`, `use_parallelism_config`, `cpu` and `use_cpu` among them; as text, or as YAML has them.
        from_file: names of those that a configuration file says and the command line does not.
    """
    said = {name: value for name, value in settings.items() if value is not None}
    kind = launcher_of(said)
    made = [*_common(said, kind), *_sharding(said, kind, from_file)]
    if is_true(said.get("use_parallelism_config")) and kind != "simple":
        made += _parallelism(said)
    return tuple(made)


def told_by(environment: Mapping[str, str]) -> dict[str, Variable]:
    """Return what variables tell an `Accelerator`, setting by setting: the way back, as far as single variables go."""
    known = {
        **{f"ACCELERATE_{switch.upper()}": switch for switch in (*USES.values(), "use_parallelism_config")},
        **{f"FSDP_{suffix}": name for name, suffix in {**_FSDP, **_FSDP_SWITCHES}.items()},
        **{f"ACCELERATE_{suffix}": name for name, suffix in {**_DEEPSPEED, **_DEEPSPEED_SWITCHES}.items()},
        **{f"ACCELERATE_DYNAMO_{suffix}": name for name, suffix in _DYNAMO.items()},
        **{name.upper(): name for name in (*_MEGATRON, *(f"{_PARALLELISM}{size}" for size in _SIZES))},
        "ACCELERATE_MIXED_PRECISION": "mixed_precision",
    }
    found = ((known[name], Variable(name, value, known[name])) for name, value in environment.items() if name in known)
    return dict(found)


def launcher_of(settings: Mapping[str, Any]) -> str:
    """Return which of its launchers accelerate takes: `deepspeed`, `multi_gpu` or `simple`, of one process."""
    if is_true(settings.get("cpu")):
        return "simple"
    if is_true(settings.get("use_deepspeed")):
        return "deepspeed"
    of_torchrun = ("use_fsdp", "use_megatron_lm", "multi_gpu")
    return "multi_gpu" if any(is_true(settings.get(name)) for name in of_torchrun) else "simple"


def is_true(value: Any) -> bool:
    """Whether a switch is on, as YAML or a command line has it (`str_to_bool` of accelerate/utils/environment.py)."""
    return str(value).casefold() in ("true", "1", "yes", "y", "t", "on")


def _common(said: Mapping[str, Any], kind: str) -> Iterator[Variable]:
    if kind == "simple":
        for name in ("cpu", "use_cpu"):
            if is_true(said.get(name)):
                yield Variable("ACCELERATE_USE_CPU", "True", name)
                yield Variable("KMP_AFFINITY", "granularity=fine,compact,1,0", name)
                yield Variable("KMP_BLOCKTIME", "1", name)
                break
    if is_true(said.get("debug")):
        yield Variable("ACCELERATE_DEBUG_MODE", "true", "debug")
    precision = str(said.get("mixed_precision", "")).casefold()
    if precision:
        yield Variable("ACCELERATE_MIXED_PRECISION", precision, "mixed_precision")
    if precision == "fp8":
        yield from _fp8(said)
    if kind != "deepspeed":
        for name, suffix in _DYNAMO.items():
            if name in said:
                text = str(said[name]).upper() if name == "dynamo_backend" else str(said[name])
                yield Variable(f"ACCELERATE_DYNAMO_{suffix}", text, name)
        if "num_cpu_threads_per_process" in said:
            text = str(said["num_cpu_threads_per_process"])
            yield Variable("OMP_NUM_THREADS", text, "num_cpu_threads_per_process")
    if is_true(said.get("enable_cpu_affinity")):
        yield Variable("ACCELERATE_CPU_AFFINITY", "1", "enable_cpu_affinity")


def _fp8(said: Mapping[str, Any]) -> Iterator[Variable]:
    for name, suffix in _FP8.items():
        if name in said:
            yield Variable(f"ACCELERATE_FP8_{suffix}", str(said[name]), name)
    parts = said.get(_FP8_OVERRIDE)
    parts = parts.split(",") if isinstance(parts, str) else parts
    if isinstance(parts, (list, tuple)) and len(parts) == 3:
        for pass_, value in zip(("FPROP", "DGRAD", "WGRAD"), parts, strict=True):
            yield Variable(f"ACCELERATE_FP8_OVERRIDE_{pass_}", str(value), _FP8_OVERRIDE)


def _sharding(said: Mapping[str, Any], kind: str, from_file: Collection[str]) -> Iterator[Variable]:
    if kind == "deepspeed":
        yield from _deepspeed(said, from_file)
    elif kind == "multi_gpu":
        if is_true(said.get("use_fsdp")):
            yield from _fsdp(said)
        if is_true(said.get("use_megatron_lm")):
            yield Variable("ACCELERATE_USE_MEGATRON_LM", "true", "use_megatron_lm")
            for name in _MEGATRON:
                if name in said:
                    yield Variable(name.upper(), str(said[name]), name)


def _fsdp(said: Mapping[str, Any]) -> Iterator[Variable]:
    yield Variable("ACCELERATE_USE_FSDP", "true", "use_fsdp")
    for name, suffix in {**_FSDP, **_FSDP_SWITCHES}.items():
        value = said.get(name, _FSDP_USUAL.get(name))
        if value is not None:
            text = str(value).lower() if name in _FSDP_SWITCHES else str(value)
            yield Variable(f"FSDP_{suffix}", text, name if name in said else "use_fsdp")


def _deepspeed(said: Mapping[str, Any], from_file: Collection[str]) -> Iterator[Variable]:
    yield Variable("ACCELERATE_USE_DEEPSPEED", "true", "use_deepspeed")
    # A script may import what lies in the directory that it is started from.
    yield Variable("PYTHONPATH", ".", "use_deepspeed")
    for name, suffix in {**_DEEPSPEED, **_DEEPSPEED_SWITCHES}.items():
        if name in said:
            text = str(said[name]).lower() if name in _DEEPSPEED_SWITCHES else str(said[name])
            yield Variable(f"ACCELERATE_{suffix}", text, name)
    # By this alone the plugin refuses what DeepSpeed's own file is to say; without such a file nobody reads it.
    fields = [name for name in said if name in _FIELDS and name in from_file]
    if fields and "deepspeed_config_file" in said:
        yield Variable("ACCELERATE_CONFIG_DS_FIELDS", ",".join(fields), "deepspeed_config_file")


def _parallelism(said: Mapping[str, Any]) -> Iterator[Variable]:
    yield Variable("ACCELERATE_USE_PARALLELISM_CONFIG", "true", "use_parallelism_config")
    names = list(_SIZES)
    if size_of(said, "cp_size") > 1:
        names.append("cp_comm_strategy")
    shares_sequences = size_of(said, "sp_size") > 1
    if shares_sequences:
        names += _SEQUENCE_SETTINGS
    for name in names:
        setting = _PARALLELISM + name
        if setting in said:
            yield Variable(setting.upper(), str(said[setting]), setting)
        elif name == "sp_attn_implementation":  # The launcher's default; the reader has none.
            yield Variable(setting.upper(), "sdpa", f"{_PARALLELISM}sp_size")


def size_of(settings: Mapping[str, Any], name: str) -> int:
    """Return a size of `parallelism_config` by its short name, such as `cp_size`; 1 where nothing says it."""
    text = str(settings.get(_PARALLELISM + name, 1))
    return int(text) if text.isdecimal() and len(text) < 10 else 1
