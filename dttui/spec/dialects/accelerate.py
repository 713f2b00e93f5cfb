"""A configuration of Hugging Face accelerate, `default_config.yaml`: FSDP, DeepSpeed, Megatron-LM or plain DDP.

Keys as `ClusterConfig` has them (accelerate/commands/config/config_args.py); more are known there than here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from dttui.i18n import _
from dttui.spec.dialects.terms import carry_recomputation
from dttui.spec.dialects.translation import Translated, Translation
from dttui.spec.document import validate
from dttui.spec.models import Section
from dttui.spec.problems import did_you_mean, shown, with_hint
from dttui.spec.yaml_source import YamlSource

_FRAMEWORKS = {
    "NO": "pytorch-ddp",
    "MULTI_GPU": "pytorch-ddp",
    "MULTI_CPU": "pytorch-ddp",
    "FSDP": "pytorch-fsdp",
    "DEEPSPEED": "deepspeed",
    "MEGATRON_LM": "megatron-lm",
}
_PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
_SHARDING = {
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
_OFF = {
    "compute_environment": ("LOCAL_MACHINE",),
    "debug": (False,),
    "downcast_bf16": ("no", False),
    "enable_cpu_affinity": (False,),
    "gpu_ids": ("all",),
    "machine_rank": (0,),
    "main_training_function": ("main",),
    "rdzv_backend": ("static",),
    "same_network": (True, False),
    "tpu_use_cluster": (False,),
    "tpu_use_sudo": (False,),
    "use_cpu": (False,),
    "fsdp_config.fsdp_offload_params": (False,),
    "deepspeed_config.offload_optimizer_device": ("none",),
    "deepspeed_config.offload_param_device": ("none",),
    "deepspeed_config.zero3_init_flag": (False,),
    "deepspeed_config.gradient_accumulation_steps": (1,),
}
"""What says that something is off, or as it is with dttui anyway."""
_DEEPSPEED_OPTIONS = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "gradient_clipping",
    "offload_optimizer_device": "offload_optimizer",
    "offload_param_device": "offload_param",
    "offload_optimizer_nvme_path": "nvme_path",
}
"""Keys of DeepSpeed's section, and the options that the framework has for them."""


def _sharding_strategy(text: str) -> str:
    if text not in _SHARDING:
        message = _("expected one of {choices}, found {value}").format(choices=", ".join(_SHARDING), value=shown(text))
        near = did_you_mean(text, _SHARDING)
        raise ValueError(with_hint(message, near))
    return text


class _Loose(Section):
    """Keys that are not known here become notes: every version of accelerate has more of them."""

    model_config = ConfigDict(extra="allow")


class FsdpConfig(_Loose):
    """Settings of FSDP."""

    fsdp_sharding_strategy: Annotated[str, AfterValidator(_sharding_strategy)] | None = None
    """FSDP 1: what is sharded."""
    fsdp_reshard_after_forward: bool | str | None = None
    """FSDP 2: whether parameters are sharded again after the forward pass."""
    fsdp_version: int | None = None
    """Version of FSDP."""


class DeepSpeedPlugin(_Loose):
    """Settings of DeepSpeed."""

    zero_stage: int | None = Field(default=None, ge=0, le=3)
    """ZeRO stage."""


class MegatronPlugin(_Loose):
    """Settings of Megatron-LM."""

    megatron_lm_tp_degree: int | None = Field(default=None, gt=0)
    """Tensor parallel degree."""
    megatron_lm_pp_degree: int | None = Field(default=None, gt=0)
    """Pipeline parallel degree."""


class TensorParallelPlugin(_Loose):
    """Settings of tensor parallelism."""

    tp_size: int | None = Field(default=None, gt=0)
    """Tensor parallel degree."""


class AccelerateConfig(_Loose):
    """The configuration."""

    compute_environment: str = "LOCAL_MACHINE"
    """Whose machines."""
    distributed_type: str = "NO"
    """What makes it parallel."""
    num_machines: int = Field(default=1, gt=0)
    """How many nodes."""
    num_processes: int | None = None
    """Ranks in all; -1 for what Slurm says."""
    mixed_precision: Literal["no", "fp16", "bf16", "fp8"] | None = None
    """Precision."""
    use_cpu: bool = False
    """Whether there are no GPUs."""
    main_process_ip: str | None = None
    """Address of the master."""
    fsdp_config: FsdpConfig | None = None
    """Settings of FSDP."""
    deepspeed_config: DeepSpeedPlugin | None = None
    """Settings of DeepSpeed."""
    megatron_lm_config: MegatronPlugin | None = None
    """Settings of Megatron-LM."""
    tp_config: TensorParallelPlugin | None = None
    """Settings of tensor parallelism."""

    @field_validator("compute_environment")
    @classmethod
    def _here(cls, environment: str) -> str:
        if environment != "LOCAL_MACHINE":
            raise ValueError(_("dttui runs jobs on hosts you can SSH to, not on {name}").format(name=environment))
        return environment


def translate(source: YamlSource) -> Translated:
    """Carry a configuration over. Raises DocumentError with every problem of it."""
    config = validate(source, AccelerateConfig)
    translation = Translation(source)
    for key, values in _OFF.items():
        translation.expect(tuple(key.split(".")), *values)
    framework = _FRAMEWORKS.get(config.distributed_type)
    if framework is not None:
        translation.carry(("distributed_type",), ("framework",), framework)
    else:
        message = _("not carried over: dttui has no framework for {name}").format(name=config.distributed_type)
        translation.note(("distributed_type",), message, is_warning=True)
    _carry_ranks(translation, config)
    if config.mixed_precision is not None:
        translation.carry(("mixed_precision",), ("model", "precision"), _PRECISIONS[config.mixed_precision])
    _carry_sharding(translation, config)
    for key in translation.said(("fsdp_config",)) or ():
        if not translation.is_used(("fsdp_config", key)) and key != "fsdp_activation_checkpointing":
            translation.hand_over(("fsdp_config", key))
    translation.carry_all(
        (),
        {
            "deepspeed_config.zero_stage": "strategy.zero_stage",
            "megatron_lm_config.megatron_lm_tp_degree": "strategy.tensor_parallel_size",
            "megatron_lm_config.megatron_lm_pp_degree": "strategy.pipeline_parallel_size",
            "megatron_lm_config.megatron_lm_sequence_parallelism": "strategy.sequence_parallel",
            "tp_config.tp_size": "strategy.tensor_parallel_size",
        },
    )
    if framework == "deepspeed":
        for key, option in _DEEPSPEED_OPTIONS.items():
            if not translation.is_used(("deepspeed_config", key)):
                translation.carry(("deepspeed_config", key), ("framework_options", option))
    carry_recomputation(translation, ("fsdp_config", "fsdp_activation_checkpointing"))
    # Its own --recompute-activations is the selective kind.
    carry_recomputation(translation, ("megatron_lm_config", "megatron_lm_recompute_activations"), "selective")
    message = _("not carried over: the file it names is read only where it is imported too")
    for key, hint in (
        ("deepspeed_config_file", _("Import it together with this one: dttui import CONFIG DS_CONFIG")),
        ("deepspeed_hostfile", _("Import it together with this one: dttui import CONFIG HOSTFILE")),
    ):
        translation.note(("deepspeed_config", key), message, hint, is_warning=True)
    return translation.finish()


def _carry_ranks(translation: Translation, config: AccelerateConfig) -> None:
    machines, processes = config.num_machines, config.num_processes
    if machines > 1:
        translation.expect_nodes(("num_machines",), machines)
    translation.use(("num_machines",))
    if config.main_process_ip is not None:
        translation.expect_master(("main_process_ip",), config.main_process_ip)
    message = _("not carried over: the port is chosen at the start, from the master's port_range")
    translation.note(("main_process_port",), message)
    if processes is None or processes < 1:
        translation.expect(("num_processes",), -1)
    elif config.use_cpu:
        message = _("not carried over: a node without GPUs runs one process")
        translation.note(("num_processes",), message, is_warning=processes > machines)
        translation.carry(("use_cpu",), ("resources", "gpu", "count"), 0)
    elif processes % machines:
        message = _("{processes} processes cannot be shared out evenly among {machines} machines")
        message = message.format(processes=processes, machines=machines)
        translation.note(("num_processes",), message, _("Write resources.gpu.count of each node."), is_warning=True)
    else:
        translation.carry(("num_processes",), ("resources", "gpu", "count"), processes // machines)


def _carry_sharding(translation: Translation, config: AccelerateConfig) -> None:
    fsdp = config.fsdp_config
    if config.distributed_type != "FSDP" or fsdp is None:
        return
    target = ("strategy", "zero_stage")
    strategy = ("fsdp_config", "fsdp_sharding_strategy")
    reshard = ("fsdp_config", "fsdp_reshard_after_forward")
    if fsdp.fsdp_version == 2:
        keeps = str(fsdp.fsdp_reshard_after_forward).casefold() == "false"
        translation.use(("fsdp_config", "fsdp_version"))
        if fsdp.fsdp_reshard_after_forward is not None:
            translation.carry(reshard, target, 2 if keeps else 3)
        else:
            translation.put(target, 3, ("fsdp_config",))
        return
    translation.expect(("fsdp_config", "fsdp_version"), 1)
    if fsdp.fsdp_sharding_strategy is None:
        translation.put(target, 3, ("fsdp_config",))
        return
    translation.carry(strategy, target, _SHARDING[fsdp.fsdp_sharding_strategy])
    if fsdp.fsdp_sharding_strategy in ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "4", "5"):
        message = _("carried over as zero_stage {stage} across all ranks: the job knows no sharding inside nodes alone")
        message = message.format(stage=_SHARDING[fsdp.fsdp_sharding_strategy])
        translation.note(strategy, message, is_warning=True)
