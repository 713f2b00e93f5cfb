"""What settings of accelerate are in a job's own words: what plans and estimates go by. Pure.

The ranks themselves go by variables (`accelerate_environment`), which say the same. Settings go by the same names here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dttui.i18n import _
from dttui.spec.dialects.accelerate_environment import OF_DEEPSPEED, is_true, launcher_of, size_of
from dttui.spec.problems import PathKey

PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
SHARDING = {
    "FULL_SHARD": 3,
    "1": 3,
    "SHARD_GRAD_OP": 2,
    "2": 2,
    "NO_SHARD": 0,
    "3": 0,
    "HYBRID_SHARD": 3,
    "4": 3,
    "HYBRID_SHARD_ZERO2": 2,
    "5": 2,
}
"""Sharding strategies of FSDP 1, by name and number, and the ZeRO stage that each amounts to."""
_IN_NODES = ("HYBRID_SHARD", "4", "HYBRID_SHARD_ZERO2", "5")
"""Those that shard inside nodes and keep a copy on each."""
_WRAPS = {"TRANSFORMER_BASED_WRAP": "layers", "SIZE_BASED_WRAP": "size", "NO_WRAP": "whole"}
_STATE_DICTS = {
    **dict.fromkeys(("FULL_STATE_DICT", "1"), "full"),
    **dict.fromkeys(("LOCAL_STATE_DICT", "2", "SHARDED_STATE_DICT", "3"), "sharded"),
}
_REDUCED = {"fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
"""In what FSDP sums gradients, by the precision; else it leaves them as they are."""
_IN_ITS_FILE = (
    *("zero_stage", "gradient_accumulation_steps", "gradient_clipping", "offload_optimizer_device"),
    *("offload_param_device", "zero3_save_16bit_model", "mixed_precision"),
)
"""What DeepSpeed's own file is to say where there is one (`DeepSpeedPlugin._deepspeed_config_checks`)."""
_DEVICES = ("none", "cpu", "nvme")
_OPTIONS = "framework_options"


@dataclass(frozen=True)
class JobValue:
    """A value of the job."""

    target: PathKey
    value: Any
    setting: str
    """The setting that it follows from."""
    is_implied: bool = False
    """Whether it is what accelerate takes where nothing is said."""


@dataclass(frozen=True)
class SettingRemark:
    """What of a setting does not become what one may expect."""

    setting: str
    message: str
    hint: str = ""
    is_warning: bool = False


def job_values(settings: Mapping[str, Any]) -> Iterator[JobValue]:
    """Yield the job's values.

    Args:
        settings: as of `accelerate_environment`.
    """
    said = {name: value for name, value in settings.items() if value is not None}
    framework, setting = _framework(said)
    yield JobValue(("framework",), framework, setting)
    precision = str(said.get("mixed_precision", "")).casefold()
    if precision in PRECISIONS:
        yield JobValue(("model", "precision"), PRECISIONS[precision], "mixed_precision")
    if str(said.get("dynamo_backend", "no")).casefold() != "no" and launcher_of(said) != "deepspeed":
        yield JobValue(("strategy", "compiled"), True, "dynamo_backend")
    if framework == "deepspeed":
        yield from _deepspeed(said)
    elif framework == "pytorch-fsdp":
        yield from _fsdp(said)
    elif _uses(said, "use_megatron_lm"):
        yield from _megatron(said)
    tensors = size_of(said, "tp_size")
    if is_true(said.get("use_parallelism_config")) and tensors > 1:
        yield JobValue(("strategy", "tensor_parallel_size"), tensors, "parallelism_config_tp_size")


def remarks(settings: Mapping[str, Any]) -> Iterator[SettingRemark]:
    """Yield what is to be said about settings that the job has no words for; the arguments are as of `job_values`."""
    said = {name: value for name, value in settings.items() if value is not None}
    if _uses(said, "use_megatron_lm"):
        message = _("carried over as pytorch-ddp: accelerate itself gives Megatron-LM its arguments")
        hint = _("The framework megatron-lm is for scripts that parse Megatron's arguments.")
        yield SettingRemark("use_megatron_lm", message, hint)
    kind, version = launcher_of(said), str(said.get("fsdp_version", 1))
    if kind == "multi_gpu" and _uses(said, "use_fsdp"):
        if version != "2" and "fsdp_reshard_after_forward" in said:
            message = _("with FSDP 1 accelerate goes by fsdp_sharding_strategy alone, FULL_SHARD where it is not said")
            hint = _("Write fsdp_sharding_strategy where another was meant.")
            yield SettingRemark(
                "fsdp_reshard_after_forward", message, hint, is_warning="fsdp_sharding_strategy" not in said
            )
        if version == "2" and "fsdp_sharding_strategy" in said:
            message = _("accelerate goes by fsdp_reshard_after_forward with FSDP 2, and passes over this")
            yield SettingRemark("fsdp_sharding_strategy", message)
        if said.get("fsdp_sharding_strategy") in ("NO_SHARD", 3, "3") and version != "2":
            yield SettingRemark(
                "use_fsdp", _("carried over as pytorch-ddp: with NO_SHARD each rank keeps the whole model")
            )
    yield from _remarks_on_sizes(said)
    for name in said:
        message = _pointless(name, said, kind)
        if message:
            yield SettingRemark(name, message)
    if kind == "deepspeed" and "deepspeed_config_file" in said:
        for name in (name for name in _IN_ITS_FILE if name in said):
            message = _("accelerate refuses this beside deepspeed_config_file, and ends at its start")
            yield SettingRemark(name, message, _("Say it in DeepSpeed's own file alone."), is_warning=True)


def _uses(said: Mapping[str, Any], switch: str) -> bool:
    return is_true(said.get(switch)) and not is_true(said.get("cpu"))


def _framework(said: Mapping[str, Any]) -> tuple[str, str]:
    """Return the framework, and the setting by which it is that."""
    for switch, name in (("use_deepspeed", "deepspeed"), ("use_fsdp", "pytorch-fsdp")):
        if _uses(said, switch):
            keeps_all = name == "pytorch-fsdp" and _stage(said) == 0
            return "pytorch-ddp" if keeps_all else name, switch
    switches = ("use_megatron_lm", "multi_gpu", "cpu", "use_cpu")
    return "pytorch-ddp", next((name for name in switches if is_true(said.get(name))), "distributed_type")


def _stage(said: Mapping[str, Any]) -> int:
    """Return the ZeRO stage that FSDP amounts to."""
    if str(said.get("fsdp_version", 1)) == "2":
        return 2 if str(said.get("fsdp_reshard_after_forward")).casefold() == "false" else 3
    return SHARDING.get(str(said.get("fsdp_sharding_strategy", "FULL_SHARD")).upper(), 3)


def _fsdp(said: Mapping[str, Any]) -> Iterator[JobValue]:
    is_second = str(said.get("fsdp_version", 1)) == "2"
    name = "fsdp_reshard_after_forward" if is_second else "fsdp_sharding_strategy"
    yield JobValue(("strategy", "zero_stage"), _stage(said), name if name in said else "use_fsdp")
    reads: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
        ("fsdp_auto_wrap_policy", "wrap", lambda value: _WRAPS.get(str(value).upper())),
        ("fsdp_transformer_layer_cls_to_wrap", "layer_classes", _names),
        ("fsdp_min_num_params", "min_parameters", _count),
        ("fsdp_offload_params", "cpu_offload", is_true),
        ("fsdp_state_dict_type", "state_dict", lambda value: _STATE_DICTS.get(str(value).upper())),
    )
    for setting, option, read in reads:
        value = read(said[setting]) if setting in said else None
        if value is not None:
            yield JobValue((_OPTIONS, option), value, setting)
    if "fsdp_state_dict_type" not in said and not is_second:
        yield JobValue((_OPTIONS, "state_dict"), "full", "use_fsdp", is_implied=True)
    precision = str(said.get("mixed_precision", "")).casefold()
    if precision in _REDUCED:
        yield JobValue((_OPTIONS, "reduce_dtype"), _REDUCED[precision], "mixed_precision", is_implied=True)
    if "fsdp_activation_checkpointing" in said:
        kind = "full" if is_true(said["fsdp_activation_checkpointing"]) else "none"
        yield JobValue(("strategy", "recomputation"), kind, "fsdp_activation_checkpointing")
    if not is_second and str(said.get("fsdp_sharding_strategy", "")).upper() in _IN_NODES:
        yield JobValue((_OPTIONS, "shard_group"), "node", "fsdp_sharding_strategy")
    elif is_second and _keeps_copies_a_node(said):
        yield JobValue((_OPTIONS, "shard_group"), "node", "parallelism_config_dp_replicate_size")


def _keeps_copies_a_node(said: Mapping[str, Any]) -> bool:
    """Whether there are as many copies as nodes, each inside of one."""
    machines, processes = _count(said.get("num_machines")) or 1, _count(said.get("num_processes"))
    copies = size_of(said, "dp_replicate_size")
    inside = size_of(said, "dp_shard_size") * size_of(said, "cp_size")
    by_sizes = is_true(said.get("use_parallelism_config")) and copies > 1 and copies == machines
    return by_sizes and (processes is None or inside * copies == processes)


def _deepspeed(said: Mapping[str, Any]) -> Iterator[JobValue]:
    yield JobValue((_OPTIONS, "config_for"), "accelerate", "use_deepspeed")
    stage = _whole(said.get("zero_stage"))
    if stage is not None:
        yield JobValue(("strategy", "zero_stage"), stage, "zero_stage")
    elif "deepspeed_config_file" not in said:
        yield JobValue(("strategy", "zero_stage"), 2, "use_deepspeed", is_implied=True)
    steps, clipping = _count(said.get("gradient_accumulation_steps")), _number(said.get("gradient_clipping"))
    if steps is not None:
        yield JobValue((_OPTIONS, "gradient_accumulation_steps"), steps, "gradient_accumulation_steps")
    if clipping is not None:
        yield JobValue((_OPTIONS, "gradient_clipping"), clipping, "gradient_clipping")
    for name in ("offload_optimizer", "offload_param"):
        device = str(said.get(f"{name}_device", "")).casefold()
        if device in _DEVICES and device != "none":
            yield JobValue((_OPTIONS, name), device, f"{name}_device")
        if device == "nvme" and f"{name}_nvme_path" in said:
            path = str(said[f"{name}_nvme_path"])
            yield JobValue((_OPTIONS, "nvme_path"), path, f"{name}_nvme_path")
    if is_true(said.get("zero3_save_16bit_model")):
        target = (_OPTIONS, "config", "zero_optimization", "stage3_gather_16bit_weights_on_model_save")
        yield JobValue(target, True, "zero3_save_16bit_model")
    shared = size_of(said, "sp_size")
    if is_true(said.get("use_parallelism_config")) and shared > 1:
        yield JobValue((_OPTIONS, "config", "sequence_parallel_size"), shared, "parallelism_config_sp_size")


def _megatron(said: Mapping[str, Any]) -> Iterator[JobValue]:
    for setting, target in (
        ("megatron_lm_tp_degree", "tensor_parallel_size"),
        ("megatron_lm_pp_degree", "pipeline_parallel_size"),
    ):
        degree = _count(said.get(setting))
        if degree is not None:
            yield JobValue(("strategy", target), degree, setting)
    if "megatron_lm_sequence_parallelism" in said:
        is_on = is_true(said["megatron_lm_sequence_parallelism"])
        yield JobValue(("strategy", "sequence_parallel"), is_on, "megatron_lm_sequence_parallelism")
    if "megatron_lm_recompute_activations" in said:
        # Its own --recompute-activations is the selective kind.
        kind = "selective" if is_true(said["megatron_lm_recompute_activations"]) else "none"
        yield JobValue(("strategy", "recomputation"), kind, "megatron_lm_recompute_activations")


def _remarks_on_sizes(said: Mapping[str, Any]) -> Iterator[SettingRemark]:
    if not is_true(said.get("use_parallelism_config")):
        return
    context = size_of(said, "cp_size")
    if context > 1:
        message = _("told to accelerate alone: the plan takes the {count} ranks that share a sequence for replicas")
        yield SettingRemark("parallelism_config_cp_size", message.format(count=context), is_warning=True)
    if size_of(said, "sp_size") > 1 and launcher_of(said) != "deepspeed":
        message = _("accelerate shares out sequences with DeepSpeed alone")
        yield SettingRemark("parallelism_config_sp_size", message, is_warning=True)
    if size_of(said, "dp_replicate_size") > 1 and _uses(said, "use_fsdp") and not _keeps_copies_a_node(said):
        message = _("told to accelerate alone: the plan knows copies a node, and takes it that all ranks share one")
        yield SettingRemark("parallelism_config_dp_replicate_size", message, is_warning=True)


def _pointless(name: str, said: Mapping[str, Any], kind: str) -> str:
    """Return why the launcher hands a setting to nobody; nothing where it does, or where that is not known here."""
    if name.startswith("fp8_") and str(said.get("mixed_precision")).casefold() != "fp8":
        return _("accelerate passes over this without {what}").format(what="mixed_precision: fp8")
    if name.startswith("dynamo_") and kind == "deepspeed":
        return _("accelerate passes over this with DeepSpeed")
    is_deepspeed = name in OF_DEEPSPEED
    for belongs, switch, label in (
        (name.startswith("fsdp_"), "use_fsdp", "FSDP"),
        (name.startswith("megatron_lm_"), "use_megatron_lm", "Megatron-LM"),
        (is_deepspeed, "use_deepspeed", "DeepSpeed"),
    ):
        if belongs and not _uses(said, switch):
            return _("accelerate passes over this without {what}").format(what=label)
    if name.startswith("parallelism_config_") and kind == "simple":
        return _("accelerate passes over this without {what}").format(what="MULTI_GPU, FSDP, DeepSpeed")
    return ""


def _names(value: Any) -> Sequence[str] | None:
    parts = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return tuple(text for part in parts if (text := str(part).strip())) or None


def _whole(value: Any) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < 16 else None


def _count(value: Any) -> int | None:
    return _whole(value) or None


def _number(value: Any) -> float | int | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None
