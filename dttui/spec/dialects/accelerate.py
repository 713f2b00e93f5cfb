"""A configuration of Hugging Face accelerate, `default_config.yaml`: FSDP, DeepSpeed, Megatron-LM or plain DDP.

Keys as `ClusterConfig` has them (accelerate/commands/config/config_args.py); more are known there than here. The ranks
go by the variables of `accelerate_environment`, under `run.env`; plans go by the values of `accelerate_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator

from dttui.i18n import N_, _
from dttui.spec.cluster import gpu_ids_of
from dttui.spec.dialects.accelerate_environment import USES, AccelerateSetting, accelerate_environment, flattened
from dttui.spec.dialects.accelerate_options import SHARDING, job_values, remarks
from dttui.spec.dialects.translation import NamedFile, Translated, Translation
from dttui.spec.document import validate
from dttui.spec.models import Section
from dttui.spec.problems import PathKey, did_you_mean, shown, with_hint
from dttui.spec.yaml_source import YamlSource

DS_CONFIG = "${DIRECTORY}/ds_config.json"
"""DeepSpeed's configuration as dttui writes it, in words of `run.env`."""
_ENV: PathKey = ("run", "env")
_KINDS = ("NO", "MULTI_CPU", *USES)
"""Kinds of `distributed_type` that dttui has a launcher for."""
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
    "dynamo_backend": ("NO", "no"),
}
"""What says that something is off, or as it is with dttui anyway."""
_NOT_OURS = {
    "machine_rank": N_("not carried over: dttui numbers the nodes, in the order of cluster.nodes"),
    "gpu_ids": N_("not carried over: each node takes GPUs that are free, unless resources.gpu.ids says which"),
    "rdzv_backend": N_("not carried over: dttui gives every node its rank, and needs no rendezvous of it"),
    "main_process_port": N_("not carried over: the port is chosen at the start, from the master's port_range"),
    "mpirun_config.mpirun_hostfile": N_("not carried over: torchrun starts the ranks, and not mpirun"),
    "mpirun_config.mpirun_ccl": N_("not carried over: torchrun starts the ranks, and not mpirun"),
    "deepspeed_config.deepspeed_multinode_launcher": N_("not carried over: dttui starts the ranks on every node"),
}
"""What is for dttui to decide, and why."""


def _sharding_strategy(text: str) -> str:
    if text not in SHARDING:
        message = _("expected one of {choices}, found {value}").format(choices=", ".join(SHARDING), value=shown(text))
        near = did_you_mean(text, SHARDING)
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
    if config.distributed_type not in _KINDS:
        message = _("not carried over: dttui has no framework for {name}").format(name=config.distributed_type)
        translation.note(("distributed_type",), message, is_warning=True)
    _carry_ranks(translation, config)
    said = flattened(source.data)
    if config.distributed_type in _KINDS:
        _carry_settings(translation, said)
    translation.carry(("tp_config", "tp_size"), ("strategy", "tensor_parallel_size"))
    for key, text in _NOT_OURS.items():
        if not translation.is_used(tuple(key.split("."))):
            translation.note(tuple(key.split(".")), _(text))
    message = _("not carried over: the file it names is read only where it is imported too")
    hint = _("Import it together with this one: dttui import CONFIG HOSTFILE")
    translation.note(("deepspeed_config", "deepspeed_hostfile"), message, hint, is_warning=True)
    return translation.finish()


def _carry_settings(translation: Translation, said: Mapping[str, AccelerateSetting]) -> None:
    """Carry over what the settings make of the job, and of the variables of its ranks."""
    values = {name: setting.value for name, setting in said.items()}
    translation.use(("distributed_type",))
    for item in job_values(values):
        _put(translation, _path(said, item.setting), item.target, item.value, is_implied=item.is_implied)
    for variable in accelerate_environment(values, from_file=said):
        _put(translation, _path(said, variable.setting), (*_ENV, variable.name), variable.value)
    named, target = said.get("deepspeed_config_file"), (*_ENV, "ACCELERATE_DEEPSPEED_CONFIG_FILE")
    if named is not None and translation.has(target):
        translation.expect_file(NamedFile(str(named.value), named.path, target, DS_CONFIG))
    for remark in remarks(values):
        translation.note(_path(said, remark.setting), remark.message, remark.hint, is_warning=remark.is_warning)


def _put(translation: Translation, origin: PathKey, target: PathKey, value: Any, *, is_implied: bool = False) -> None:
    translation.put(target, value, origin, is_implied=is_implied)
    if not isinstance(translation.said(origin), Mapping):  # Else every key below would count as looked at.
        translation.use(origin)


def _path(said: Mapping[str, AccelerateSetting], name: str) -> PathKey:
    return said[name].path if name in said else ("distributed_type",)


def _carry_ranks(translation: Translation, config: AccelerateConfig) -> None:
    machines, processes = config.num_machines, config.num_processes
    named = gpu_ids_of(str(translation.said(("gpu_ids",))))
    if machines > 1:
        translation.expect_nodes(("num_machines",), machines)
    translation.use(("num_machines",))
    if config.main_process_ip is not None:
        translation.expect_master(("main_process_ip",), config.main_process_ip)
    if machines == 1 and not config.use_cpu and named and processes in (None, len(named)):
        translation.use(("num_processes",))
        translation.carry(("gpu_ids",), ("resources", "gpu", "ids"), named)
    elif processes is None or processes < 1:
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
