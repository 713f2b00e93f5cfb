"""PyTorch FSDP2: torchrun, or `accelerate launch` where the script wants it, and the sharding's settings as files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from dttui.frameworks.base import Framework, JobLayout, NodeLayout, Rank
from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess
from dttui.frameworks.option_costs import ALL_PRESENT, COUNTED, NEUTRAL, Uncounted
from dttui.frameworks.parts.batches import check_shares
from dttui.frameworks.parts.collective_settings import in_vain
from dttui.frameworks.parts.config_file import config_file
from dttui.frameworks.parts.elastic import ElasticOptions, check_elastic, elastic_of
from dttui.frameworks.parts.environment import process_environment
from dttui.frameworks.parts.nccl import torch_environment
from dttui.frameworks.parts.run_checks import check_cold_run
from dttui.frameworks.parts.torchrun import RANK, check_run, program, torchrun
from dttui.frameworks.traits import TOLD, GroupForming, ProcessGroup, ScriptImports, SettingReach, SizeGuide, Spread
from dttui.i18n import N_, _
from dttui.spec.findings import Finding, error, warning
from dttui.spec.models import Job
from dttui.spec.section import Section
from dttui.spec.text import Text
from dttui.spec.yaml_writer import dump_yaml

CONFIG_FILE = "fsdp_config.json"
"""The sharding's settings, for the script."""
ACCELERATE_FILE = "accelerate_config.yaml"
"""The same in the form of accelerate."""
_DTYPES = {"fp32": None, "tf32": None, "fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16"}
"""In what parameters are gathered, by the model's precision; `None` for as they are."""
_REDUCED = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_ACCELERATE_PRECISIONS = {"fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}


class FsdpOptions(ElasticOptions):
    """What can be told about sharding (torch.distributed.fsdp.fully_shard)."""

    launcher: Literal["torchrun", "accelerate"] = "torchrun"
    """Program that starts the ranks; accelerate's sets what a script with an `Accelerator` reads."""
    wrap: Literal["layers", "size", "whole"] = "layers"
    """What is sharded as a unit: each layer of `layer_classes`, modules of `min_parameters` and more, or the whole."""
    layer_classes: tuple[Text, ...] = ()
    """Names of the classes of layers, such as LlamaDecoderLayer; without any, what the script takes for layers."""
    min_parameters: Annotated[int, Field(gt=0)] = 100_000_000
    """Parameters from which on a module is a unit, for wrap: size."""
    reshard_after_forward: bool | None = None
    """Whether parameters are freed after the forward pass; by default as `strategy.zero_stage` says: 3 yes, 2 no."""
    shard_group: Literal["all", "node"] = "all"
    """Share out among all ranks, or among those of a node and keep a copy on each node (HSDP)."""
    reduce_dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    """In what gradients are summed."""
    cpu_offload: bool = False
    """Keep parameters, gradients and optimizer states in the host's memory."""
    state_dict: Literal["sharded", "full"] = "sharded"
    """Form of checkpoints."""


_SHARDS = Uncounted(N_("two layers are taken to be gathered at a time"))


def _widens(job: Job, reduced: object) -> bool:
    """Whether gradients kept in half precision travel in fp32, as FSDP sends them where nobody says otherwise."""
    precision = job.model.precision if job.model is not None else None
    is_fp32 = reduced == "fp32" and job.communication.compression not in ("fp16", "bf16")
    return is_fp32 and precision not in ("fp32", "tf32")


class PytorchFsdp(Framework):
    """Launches torchrun, or accelerate's launcher, on every node."""

    name = "pytorch-fsdp"
    label = "PyTorch FSDP"
    options: type[Section] = FsdpOptions
    requires: Sequence[str] = ("torch",)
    rank = Rank.SLOT
    needs_ports = False
    verdicts: Sequence[str] = ("torchrun", "accelerate")
    process_group = ProcessGroup(GroupForming.EXPECTED)
    when_split = N_(
        "the mesh that dttui writes for {framework} shards among all ranks, and the job splits tensors or"
        " stages: that is left to the script"
    )
    may_share_unequally = True
    usual_zero_stage = 3
    spreads: Mapping[Spread, int] = {Spread.ZERO_2: 1, Spread.ZERO_3: 0}
    option_costs: Mapping[str, str | Uncounted] = {
        "elastic": ALL_PRESENT,
        "launcher": NEUTRAL,
        "wrap": _SHARDS,
        "layer_classes": _SHARDS,
        "min_parameters": _SHARDS,
        "reshard_after_forward": COUNTED,
        "shard_group": COUNTED,
        "reduce_dtype": Uncounted(N_("gradients are taken to travel as they are kept"), matters_unsaid=_widens),
        "cpu_offload": COUNTED,
        "state_dict": Uncounted(N_("each rank is taken to write its own part of a checkpoint")),
    }
    collective_reach: Mapping[str, SettingReach] = {
        "buffer_size": SettingReach(
            reason=N_("fully_shard gathers and reduces the units that framework_options.wrap makes")
        ),
        **dict.fromkeys(("compression.fp16", "compression.bf16"), TOLD),
        "compression": SettingReach(reason=N_("fully_shard compresses gradients to fp16 or bf16 alone")),
        "overlap": SettingReach(reason=N_("fully_shard talks while it computes, and has no switch for that")),
        "overlap.false": SettingReach(reason=N_("fully_shard talks while it computes, and has no switch for that")),
    }
    available = True

    def usual_layout(self, job: Job) -> Mapping[str, Any]:
        """Return what CPUOffloadPolicy keeps on the host, all that is sharded, and whether parameters stay after use.

        Where it is said that they do, or do not, all else is ZeRO's stage 3.
        """
        said = job.framework_options.get("reshard_after_forward")
        kept = {} if said is None else {"zero_stage": 3, "reshard": said}
        return {"fused": False, "offload": "all" if job.framework_options.get("cpu_offload") else "none", **kept}

    def shards_within_nodes(self, job: Job) -> bool:
        """Whether its option says so."""
        return job.framework_options.get("shard_group") == "node"

    @property
    def script_imports(self) -> ScriptImports:
        """What a script written for it imports."""
        return ScriptImports(
            (
                *("torch.distributed.fsdp", "torch.distributed._composable", "torchtitan"),
                *("accelerate", "transformers", "lightning", "pytorch_lightning", "trl"),
            ),
            _("nothing shards the model, and every rank holds all of it"),
        )

    @property
    def size_guide(self) -> SizeGuide:
        """For which sizes of models it is the usual one (seed 004's guide)."""
        return SizeGuide(10e9, _("from 1 to 10 B parameters sharding is enough"))

    @property
    def summary(self) -> str:
        """Its kind of parallelism."""
        return _("fully sharded")

    @property
    def description(self) -> str:
        """What it is for."""
        return _("1 to 10 B parameters: model, gradients and optimizer are shared out among the ranks.")

    @property
    def features(self) -> Sequence[str]:
        """What it offers."""
        return (
            _("sharded parameters"),
            _("less GPU memory"),
            _("ZeRO-style optimisation"),
            _("very large models"),
        )

    def check(self, job: Job) -> list[Finding]:
        """Return what in the job does not go with sharding, or with the launcher."""
        by_accelerate = job.framework_options.get("launcher") == "accelerate"
        findings = (check_cold_run if by_accelerate else check_run)(job, self.label)
        if job.strategy.zero_stage in (0, 1):
            stage = job.strategy.zero_stage
            message = _("FSDP shards parameters or gradients: ZeRO stage 3 or 2, not {stage}").format(stage=stage)
            hint = _("Write zero_stage: 3 or 2, or choose pytorch-ddp (0) or deepspeed (1).")
            findings.append(error("zero-stage", "strategy.zero_stage", message, hint))
        return findings

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return what accelerate is not told, and an error where the nodes cannot be shared out as the options ask."""
        options = _options(layout)
        found = [*_check_accelerate(layout), *_check_compression(layout), *check_elastic(layout)]
        found += check_shares(layout.job.strategy, layout.world_size)
        if len({node.slots for node in layout.nodes}) == 1:
            return found
        least = min(node.slots for node in layout.nodes)
        hint = _("Use {count} on each: resources.gpu.count.").format(count=least)
        if options.shard_group == "node":
            message = _("shard_group: node needs the same number of GPUs on every node")
            return [error("unequal-slots", "framework_options.shard_group", message, hint), *found]
        if options.launcher == "accelerate":
            message = _("accelerate launch starts the same number of processes on every node")
            return [error("unequal-slots", "framework_options.launcher", message, hint), *found]
        return found

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return the script's settings, and the sharding's in both forms."""
        return layout.shared_file(config_file), layout.shared_file(_settings_file), _accelerate_file(layout, node)

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return the one launcher of a node."""
        own = {"DTTUI_FSDP_CONFIG": f"{Hole.DIRECTORY}/{CONFIG_FILE}"}
        if _options(layout).launcher == "torchrun":
            return (torchrun(layout, node, own=own),)
        if layout.backend != "nccl":
            own["ACCELERATE_USE_CPU"] = "true"
        argv = (
            *layout.run.prefix,
            str(Hole.PYTHON),
            "-m",
            "accelerate.commands.launch",
            f"--config_file={Hole.DIRECTORY}/{ACCELERATE_FILE}",
            RANK,
            *program(layout.run),
        )
        environment = process_environment(layout, node, {**torch_environment(layout, node), **own})
        return (PlannedProcess(name="launcher", argv=argv, env=environment, cwd=layout.cwd),)


def _check_accelerate(layout: JobLayout) -> list[Finding]:
    """Return what accelerate's configuration has no place for; it sums gradients as it computes."""
    options, model = _options(layout), layout.job.model
    if options.launcher != "accelerate":
        return []
    found: list[Finding] = []
    if elastic_of(layout) is not None:
        message = _("accelerate launch cannot go on without a node that is lost")
        path = ("framework_options", "elastic")
        hint = _("Write launcher: torchrun, or leave elastic out.")
        found.append(error("framework-option", "framework_options.elastic", message, hint, path=path))
    if options.shard_group == "node" and len(layout.nodes) > 1:
        message = _("shard_group: node is not passed on to accelerate, which would share out among all ranks")
        hint = _("Write launcher: torchrun, or leave it out and give the script's Accelerator a ParallelismConfig.")
        path = ("framework_options", "shard_group")
        found.append(error("framework-option", "framework_options.shard_group", message, hint, path=path))
    precision = model.precision if model is not None else None
    its_own = {"fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}.get(precision or "", "fp32")
    if "reduce_dtype" in options.model_fields_set and options.reduce_dtype != its_own:
        message = _("accelerate sums gradients in {dtype}, by model.precision: reduce_dtype is not passed on to it")
        message, hint = message.format(dtype=its_own), _("Leave it out, or write launcher: torchrun.")
        path = ("framework_options", "reduce_dtype")
        found.append(warning("framework-option", "framework_options.reduce_dtype", message, hint, path=path))
    return found


def _check_compression(layout: JobLayout) -> list[Finding]:
    """Return what becomes of the type in which the job has gradients sent, where it is not `reduce_dtype`."""
    options, asked = _options(layout), layout.job.communication.compression
    if asked not in _REDUCED:
        return []
    if "reduce_dtype" in options.model_fields_set and options.reduce_dtype != asked:
        path = ("framework_options", "reduce_dtype")
        message = _("this is not what {other} says; give it once").format(other="communication.compression")
        return [error("framework-option", "framework_options.reduce_dtype", message, path=path)]
    if options.launcher == "accelerate":
        return [in_vain("compression", _("accelerate sums gradients as it computes, by model.precision"))]
    return []


def _reduce_dtype(layout: JobLayout) -> str:
    """Return in what gradients are summed: as the options say, else as the job has them sent."""
    options, asked = _options(layout), layout.job.communication.compression
    is_open = "reduce_dtype" not in options.model_fields_set
    return _REDUCED[asked if is_open and asked in _REDUCED else options.reduce_dtype]


def _options(layout: JobLayout) -> FsdpOptions:
    return layout.options_as(FsdpOptions)


def _reshards(layout: JobLayout) -> bool:
    said = _options(layout).reshard_after_forward
    return layout.job.strategy.zero_stage != 2 if said is None else said


def _settings_file(layout: JobLayout) -> PlannedFile:
    """Return what `fully_shard` can be told, by its own names where it has them."""
    options = _options(layout)
    model = layout.job.model
    per_node = layout.nodes[0].slots
    in_node = options.shard_group == "node" and len(layout.nodes) > 1
    # How many nodes an elastic job has is known by torchrun alone.
    node_count, size = (len(layout.nodes), layout.world_size) if elastic_of(layout) is None else (-1, -1)
    document: dict[str, Any] = {
        "wrap": options.wrap,
        "layer_classes": list(options.layer_classes),
        "min_parameters": options.min_parameters,
        "reshard_after_forward": _reshards(layout),
        "mesh": [node_count, per_node] if in_node else [size],
        "mesh_dim_names": ["replicate", "shard"] if in_node else ["shard"],
        "mp_policy": {
            "param_dtype": _DTYPES[model.precision] if model is not None and model.precision is not None else None,
            "reduce_dtype": _reduce_dtype(layout),
        },
        "cpu_offload": options.cpu_offload,
        "activation_checkpointing": layout.job.strategy.recomputation not in (None, "none"),
        "state_dict": options.state_dict,
    }
    return PlannedFile(path=CONFIG_FILE, text=json.dumps(document, ensure_ascii=False, indent=2) + "\n")


def _accelerate_file(layout: JobLayout, node: NodeLayout) -> PlannedFile:
    """Return accelerate's configuration of this node (accelerate/commands/config/config_args.py)."""
    options, model = _options(layout), layout.job.model
    policies = {"layers": "TRANSFORMER_BASED_WRAP", "size": "SIZE_BASED_WRAP", "whole": "NO_WRAP"}
    fsdp: dict[str, Any] = {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": policies[options.wrap],
        "fsdp_reshard_after_forward": _reshards(layout),
        "fsdp_offload_params": options.cpu_offload,
        "fsdp_state_dict_type": {"sharded": "SHARDED_STATE_DICT", "full": "FULL_STATE_DICT"}[options.state_dict],
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_activation_checkpointing": layout.job.strategy.recomputation not in (None, "none"),
    }
    if options.wrap == "layers" and options.layer_classes:
        fsdp["fsdp_transformer_layer_cls_to_wrap"] = ",".join(options.layer_classes)
    if options.wrap == "size":
        fsdp["fsdp_min_num_params"] = options.min_parameters
    document = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP",
        "mixed_precision": _ACCELERATE_PRECISIONS.get(model.precision or "", "no") if model is not None else "no",
        "use_cpu": False,
        "num_machines": len(layout.nodes),
        "num_processes": layout.world_size,
        "machine_rank": node.node_rank,
        "main_process_ip": layout.master_address,
        "main_process_port": "PORT",
        "rdzv_backend": "static",
        "same_network": True,
        "main_training_function": "main",
        "fsdp_config": fsdp,
    }
    # A number, and not known yet.
    text = dump_yaml(document).replace("main_process_port: PORT", f"main_process_port: {Hole.MASTER_PORT}")
    return PlannedFile(path=ACCELERATE_FILE, text=text)
