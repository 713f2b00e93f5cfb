"""Megatron-LM: torchrun on every node; degrees, batches and sizes of the job as the arguments that Megatron takes."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator

from dttui.frameworks.base import Framework, JobLayout, NodeLayout, Rank
from dttui.frameworks.bundle import PlannedFile, PlannedProcess
from dttui.frameworks.option_costs import CHECKPOINTS, COUNTED, Uncounted
from dttui.frameworks.parts.collective_settings import in_vain
from dttui.frameworks.parts.config_file import config_file
from dttui.frameworks.parts.megatron_arguments import SWITCHES, WITH_VALUE
from dttui.frameworks.parts.megatron_rules import Shape, check_shape
from dttui.frameworks.parts.torchrun import check_run, torchrun
from dttui.frameworks.traits import TOLD, GroupForming, ProcessGroup, ScriptImports, SettingReach, SizeGuide, Spread
from dttui.i18n import N_, _
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.known_models import filled
from dttui.spec.models import Job, Model, PipelineParallel
from dttui.spec.problems import PathKey, PlacedValueError, did_you_mean, format_path, printable, with_hint
from dttui.spec.section import Section

ARGUMENTS_FILE = "megatron_args.txt"
"""The arguments, one a line: each is a word of the command line."""
_TRAINING_LOOP_FINDING = "megatron-cuda"
"""Code of what is said of Megatron's own training loop, which pretrain_gpt.py and scripts like it import."""
_KEYS = {name.replace("_", "-"): name for name in (*sorted(SWITCHES), *sorted(WITH_VALUE))}
_OWN = {
    "tensor-model-parallel-size": "strategy.tensor_parallel_size",
    "pipeline-model-parallel-size": "strategy.pipeline_parallel_size",
    "num-virtual-stages-per-pipeline-rank": "strategy.pipeline_parallel.virtual_stages",
    "context-parallel-size": "framework_options.context_parallel_size",
    "expert-model-parallel-size": "framework_options.expert_parallel_size",
    "sequence-parallel": "strategy.sequence_parallel",
    "use-distributed-optimizer": "strategy.zero_stage",
    "micro-batch-size": "strategy.pipeline_parallel.micro_batch_size",
    "global-batch-size": "strategy.data_parallel.batch_size",
    "recompute-granularity": "strategy.recomputation",
    "recompute-activations": "strategy.recomputation",
    "fp16": "model.precision",
    "bf16": "model.precision",
    "num-layers": "model.layers",
    "hidden-size": "model.hidden_size",
    "num-attention-heads": "model.heads",
    "seq-length": "model.seq_length",
    "vocab-size": "model.vocab_size",
    "save": "recovery.checkpoint.dir",
    "save-interval": "framework_options.save_interval",
    "distributed-backend": "communication.protocol",
}
"""Arguments that come from a key of the job, and from nowhere else: what is checked must be what runs."""
_OTHER_SIZES = {"use-checkpoint-args", "yaml-cfg", "hybrid-layer-pattern", "encoder-num-layers"}
"""Arguments by which Megatron learns the model's sizes from elsewhere."""
_OVERLAPS = "overlap-grad-reduce"
_FSDP = {"use-torch-fsdp2", "use-megatron-fsdp", "use-custom-fsdp"}
_USUAL_TIMEOUT_MINUTES = 10
"""Megatron's own."""
_NEEDED = ("layers", "hidden_size", "heads", "seq_length")


class MegatronOptions(Section):
    """What the job's own sections cannot say (megatron/training/arguments.py)."""

    context_parallel_size: Annotated[int, Field(gt=0)] = 1
    """Ranks that share out each sequence."""
    expert_parallel_size: Annotated[int, Field(gt=0)] = 1
    """Ranks that share out the experts of a mixture; say how many there are by `model.experts`."""
    save_interval: Annotated[int, Field(gt=0)] = 500
    """Iterations from one checkpoint to the next, where `recovery.checkpoint` says where they go."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Any other arguments of Megatron-LM, `{lr: 1.0e-4, train_iters: 1000, mock_data: true}`; a list is several values.

    Those of the script alone go into `run.args`.
    """

    @field_validator("arguments")
    @classmethod
    def _known(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        faults = [(key, fault) for key, value in arguments.items() if (fault := _fault(key, value))]
        if faults:
            raise PlacedValueError(*(((key,), fault) for key, fault in faults))
        return arguments


def _fault(key: str, value: Any) -> str:
    """Return what is wrong with an argument of the options; nothing where it can be passed on."""
    name = key.replace("_", "-")
    if name in _OWN:
        return _("write {key} instead, which dttui passes on").format(key=_OWN[name])
    known = _KEYS.get(name)
    if known is None:
        near = did_you_mean(key, sorted(each.replace("-", "_") for each in _KEYS))
        hint = near or _("An argument of the script alone goes into run.args.")
        return with_hint(_("Megatron-LM has no argument {name}").format(name=printable(key)), hint)
    if known in SWITCHES:
        return "" if isinstance(value, bool) else _("is a switch: expected true or false")
    values = value if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(item, bool) or not isinstance(item, (str, int, float)) for item in values) or not values:
        return _("takes a value: expected text or a number, or a list of them")
    return "" if all(str(item).isprintable() for item in values) else _("must be printable text on one line")


class MegatronLm(Framework):
    """Launches torchrun on every node, with Megatron's arguments after the script's own."""

    name = "megatron-lm"
    label = "Megatron-LM"
    requires: Sequence[str] = ("torch", "megatron-core")
    options: type[Section] = MegatronOptions
    rank = Rank.SLOT
    needs_ports = False
    verdicts: Sequence[str] = ("torchrun", "megatron")
    process_group = ProcessGroup(GroupForming.EXPECTED)
    timeout_call = None
    context_option = "context_parallel_size"
    expert_option = "expert_parallel_size"
    spreads: Mapping[Spread, int] = {Spread.REPLICAS: 2, Spread.ZERO_1: 1, Spread.STAGES: 0, Spread.TENSORS: 0}
    option_costs: Mapping[str, str | Uncounted] = {
        "context_parallel_size": COUNTED,
        "expert_parallel_size": COUNTED,
        "save_interval": Uncounted(CHECKPOINTS),
        "arguments": Uncounted(
            N_(
                "arguments of Megatron-LM's own are not looked at, but for attention, dropout, `tp_comm_overlap`, "
                "`expert_tensor_parallel_size`, `grad_reduce_in_bf16`, `optimizer`, `optimizer_cpu_offload` and "
                "`recompute_modules`"
            )
        ),
    }
    collective_reach: Mapping[str, SettingReach] = {
        "buffer_size": TOLD,
        "compression.bf16": TOLD,
        "compression": SettingReach(reason=N_("Megatron-LM compresses gradients to bf16 alone")),
        "overlap": TOLD,
        "overlap.false": SettingReach(
            reason=N_("Megatron-LM reduces after the backward pass unless it is told otherwise")
        ),
    }
    findings_of_imports: Mapping[str, str] = {_TRAINING_LOOP_FINDING: "megatron.training"}
    available = True
    overlaps_gradients = False

    def usual_model(self, job: Job) -> Mapping[str, Any]:
        """Return that there is dropout unless its arguments say otherwise, and which attention they choose."""
        said = _said(job)
        drops = any(str(said.get(f"{part}-dropout", 0.1)) not in ("0", "0.0") for part in ("attention", "hidden"))
        is_plain = said.get("attention-backend") in ("unfused", "local") or (
            said.get("transformer-impl") == "local" and "use-flash-attn" not in said
        )
        return {"dropout": drops, "attention": "plain" if is_plain else "flash"}

    def usual_layout(self, job: Job) -> Mapping[str, Any]:
        """Return how its arguments share out experts, sum gradients and offload, which optimizer, and whose attention.

        Its kernels are fused; of a layer's parts it computes attention again, unless its arguments name others.
        """
        said = _said(job)
        split = str(said.get("expert-tensor-parallel-size", ""))
        modules = said.get("recompute-modules", "core_attn")
        named = modules if isinstance(modules, list | tuple) else str(modules).split()
        return {
            "recompute_modules": frozenset(map(str, named)),
            "fused": True,
            "optimizer": "momentum" if said.get("optimizer") == "sgd" else "adam",
            "offload": "optimizer" if "optimizer-cpu-offload" in said else "none",
            "expert_tensor": int(split) if split.isdigit() and int(split) else None,
            "gradient_bytes": 2 if "grad-reduce-in-bf16" in said else None,
            "tuned_attention": said.get("transformer-impl") != "local",
        }

    def overlaps_tensors(self, job: Job) -> bool:
        """Whether tensor-parallel ranks send while they compute, as its arguments say."""
        return "tp-comm-overlap" in _said(job)

    @property
    def script_imports(self) -> ScriptImports:
        """What a script written for it imports."""
        return ScriptImports(
            ("megatron", "nemo"),
            _("Megatron-LM's arguments are put after its own, and nothing reads them"),
        )

    @property
    def size_guide(self) -> SizeGuide:
        """For which sizes of models it is the usual one (seed 004's guide)."""
        return SizeGuide(math.inf, _("above 100 B parameters layers and tensors have to be split"))

    @property
    def summary(self) -> str:
        """Its kind of parallelism."""
        return _("NVIDIA, GPT")

    @property
    def description(self) -> str:
        """What it is for."""
        return _("Above 100 B parameters: GPT-like models.")

    @property
    def features(self) -> Sequence[str]:
        """What it offers."""
        return (
            _("tensor parallelism"),
            _("pipeline parallelism"),
            _("ZeRO's sharded optimizer, by zero_stage: 1"),
            _("made for Transformers"),
            _("very large training"),
        )

    @property
    def directory_args(self) -> Sequence[str]:
        """Where it saves; of what a command line says twice, its parser takes the last."""
        return ("--save={own}",)

    @property
    def resume_args(self) -> Sequence[str]:
        """Where it loads: it looks there for the file that names the last iteration."""
        return ("--load={directory}",)

    def check(self, job: Job) -> list[Finding]:
        """Return what in the job does not go with Megatron, or is said twice."""
        findings = check_run(job, self.label)
        for index, token in enumerate(job.run.args if job.run is not None else ()):
            name = _name_of(token)
            if name in _OWN:
                message = _("{argument} is for dttui to pass on, so that what it checks is what runs")
                hint = _("Take it out of run.args and write {key}.").format(key=_OWN[name])
                place: PathKey = ("run", "args", index)
                findings.append(
                    error("megatron-argument", "run.args", message.format(argument=token), hint, path=place)
                )
        findings += _check_schedule(job.strategy.pipeline_parallel or PipelineParallel())
        if (job.strategy.zero_stage or 0) > 1:
            message = _("Megatron-LM shards the optimizer states alone: ZeRO stage 1 or 0, not {stage}")
            hint = _("Write zero_stage: 1, or choose pytorch-fsdp or deepspeed.")
            message = message.format(stage=job.strategy.zero_stage)
            findings.append(error("zero-stage", "strategy.zero_stage", message, hint))
        return findings + _check_sizes(job)

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return what the chosen nodes cannot be divided into, with numbers that work."""
        findings = [*check_shape(_shape(layout)), *_check_reduction(layout)]
        if layout.backend == "mpi":
            message = _("Megatron-LM talks by nccl or gloo, not mpi")
            findings.append(error("backend", "communication.protocol", message, _("Write protocol: NCCL.")))
        elif layout.backend == "gloo":
            message = _(
                "Megatron-LM's own training loop, pretrain_gpt.py, runs on CUDA GPUs alone, and this job has none"
            )
            hint = _("A script on megatron-core can do without: see `dttui init --framework megatron-lm`.")
            findings.append(info(_TRAINING_LOOP_FINDING, "framework", message, hint))
        return findings

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return the script's settings, and Megatron's arguments."""
        return layout.shared_file(config_file), layout.shared_file(_arguments_file)

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return the one torchrun of a node."""
        # Megatron asks for it so that communication starts in the order of its calls; its FSDP asks for the contrary.
        own = {} if _FSDP & _extra(layout.options_as(MegatronOptions)).keys() else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        return (torchrun(layout, node, arguments=_arguments(layout), own=own),)


def _check_schedule(stages: PipelineParallel) -> list[Finding]:
    """Return errors for a schedule that Megatron does not have, or that its number of chunks contradicts."""
    chunks, path = stages.virtual_stages, "strategy.pipeline_parallel"
    if stages.schedule not in (None, "1F1B", "Interleaved"):
        message = _("Megatron-LM runs its pipelines by 1F1B or Interleaved, not {schedule}")
        hint = _("Write schedule: 1F1B.")
        return [error("schedule", f"{path}.schedule", message.format(schedule=stages.schedule), hint)]
    if stages.schedule == "Interleaved" and (chunks or 1) < 2:
        message = _("the interleaved schedule needs two chunks of layers or more on each rank")
        return [error("schedule", f"{path}.schedule", message, _("Write virtual_stages: 2, or schedule: 1F1B."))]
    if stages.schedule == "1F1B" and (chunks or 1) > 1:
        message = _("{chunks} chunks of layers on each rank are for the schedule Interleaved, not 1F1B")
        hint = _("Write schedule: Interleaved, or leave virtual_stages out.")
        return [error("schedule", f"{path}.virtual_stages", message.format(chunks=chunks), hint)]
    return []


def _check_sizes(job: Job) -> list[Finding]:
    """Warn of sizes that Megatron's own scripts insist on and the job does not give."""
    model = filled(job.model or Model())
    missing = [f"model.{name}" for name in _NEEDED if getattr(model, name) is None]
    given = {str(key).replace("_", "-") for key in _raw_arguments(job)}
    given |= {_name_of(token) for token in (job.run.args if job.run is not None else ())}
    if not missing or given & _OTHER_SIZES:
        return []
    message = _("Megatron-LM's own scripts do not start without these: {keys}").format(keys=", ".join(missing))
    return [warning("model-sizes", "model", message, _("Add them, unless the script has sizes of its own."))]


def _raw_arguments(job: Job) -> Mapping[str, Any]:
    said = job.framework_options.get("arguments")
    return said if isinstance(said, dict) else {}


def _said(job: Job) -> dict[str, Any]:
    """Return the arguments that a job gives, in its options or after its script; `True` for one without a value."""
    said = {str(key).replace("_", "-"): value for key, value in _raw_arguments(job).items() if value is not False}
    tokens = job.run.args if job.run is not None else ()
    for token, after in zip(tokens, [*tokens[1:], ""], strict=False):
        if name := _name_of(token):
            said[name] = token.partition("=")[2] or (after if after and not after.startswith("--") else True)
    return said


def _extra(options: MegatronOptions) -> dict[str, Any]:
    """Return the arguments of the options by Megatron's names, without switches that are off."""
    return {_KEYS[key.replace("_", "-")]: value for key, value in options.arguments.items() if value is not False}


def _name_of(token: str) -> str:
    """Return the name of an argument of a command line, empty for anything else."""
    return token[2:].partition("=")[0] if token.startswith("--") else ""


def _shape(layout: JobLayout) -> Shape:
    """Return the numbers that have to go into each other."""
    strategy, model = layout.job.strategy, filled(layout.job.model or Model())
    options = layout.options_as(MegatronOptions)
    stages = strategy.pipeline_parallel or PipelineParallel()
    extra = _extra(options)
    uneven = any(name.startswith("decoder-") or "layout" in name or "account-for" in name for name in extra)
    experts = extra.get("expert-tensor-parallel-size")
    tensor = strategy.tensor_parallel_size or 1
    return Shape(
        slots=tuple(node.slots for node in layout.nodes),
        tensor=tensor,
        pipeline=strategy.pipeline_degree or 1,
        pipeline_key=format_path(strategy.pipeline_path),
        context=options.context_parallel_size,
        expert=options.expert_parallel_size,
        expert_tensor=experts if type(experts) is int and experts > 0 else tensor,
        chunks=stages.virtual_stages or 1,
        layers=None if uneven or _OTHER_SIZES & extra.keys() else model.layers,
        heads=model.heads,
        seq_length=model.seq_length,
        sequence_parallel=bool(strategy.sequence_parallel),
        batch=strategy.data_parallel.batch_size if strategy.data_parallel is not None else None,
        micro_batch=stages.micro_batch_size,
    )


def _arguments(layout: JobLayout) -> tuple[str, ...]:
    """Return what follows the script's own arguments; what a person says in the options or there is not said again."""
    ours = {**_degrees(layout), **_of_model(layout), **_of_run(layout), **_of_reduction(layout)}
    extra = _extra(layout.options_as(MegatronOptions))
    twice = {_name_of(token) for token in layout.run.args} - extra.keys()
    arguments: list[str] = []
    for name, value in {**ours, **extra}.items():
        if value is None or value is False or name in twice:
            continue
        if isinstance(value, (list, tuple)):
            arguments += [f"--{name}", *map(str, value)]
        else:
            arguments.append(f"--{name}" if value is True else f"--{name}={value}")
    return tuple(arguments)


def _degrees(layout: JobLayout) -> dict[str, Any]:
    shape, strategy = _shape(layout), layout.job.strategy
    batches = shape.batches
    again = strategy.recomputation if strategy.recomputation != "none" else None
    return {
        "tensor-model-parallel-size": shape.tensor,
        "pipeline-model-parallel-size": shape.pipeline,
        "num-virtual-stages-per-pipeline-rank": shape.chunks if shape.chunks > 1 else None,
        "context-parallel-size": shape.context,
        "expert-model-parallel-size": shape.expert if shape.expert > 1 else None,
        "sequence-parallel": shape.sequence_parallel and shape.tensor > 1,
        "use-distributed-optimizer": strategy.zero_stage == 1,
        "micro-batch-size": batches.micro if batches is not None else None,
        "global-batch-size": batches.total if batches is not None else None,
        "recompute-granularity": again,
        # All layers, one by one: what the job's `full` means.
        "recompute-method": "uniform" if again == "full" else None,
        "recompute-num-layers": 1 if again == "full" else None,
    }


def _of_model(layout: JobLayout) -> dict[str, Any]:
    model = filled(layout.job.model or Model())
    return {
        "num-layers": model.layers,
        "hidden-size": model.hidden_size,
        "num-attention-heads": model.heads,
        "seq-length": model.seq_length,
        "max-position-embeddings": model.seq_length,
        "vocab-size": model.vocab_size,
        **{name: value for name, value in _of_layers(model).items() if value is not None and value is not False},
        "fp16": model.precision == "fp16",
        "bf16": model.precision in ("bf16", "fp8"),
        "fp8-format": "hybrid" if model.precision == "fp8" else None,
    }


def _of_layers(model: Model) -> dict[str, Any]:
    """Return the arguments for what layers have otherwise than GPT's, where the job says it."""
    dropout = 0.0 if model.dropout is False else None
    return {
        "group-query-attention": model.kv_heads not in (None, model.heads),
        "num-query-groups": model.kv_heads if model.kv_heads != model.heads else None,
        "kv-channels": model.head_size,
        "ffn-hidden-size": model.ffn_size,
        "swiglu": model.gated,
        "untie-embeddings-and-output-weights": model.tied is False,
        "attention-backend": {"flash": "flash", "plain": "unfused"}.get(model.attention or ""),
        "num-experts": model.experts,
        "moe-router-topk": model.experts_per_token if model.experts is not None else None,
        "moe-ffn-hidden-size": model.expert_size if model.experts is not None else None,
        "moe-shared-expert-intermediate-size": (model.shared_experts or 0) * (model.expert_size or 0) or None,
        "attention-dropout": dropout,
        "hidden-dropout": dropout,
    }


def _of_run(layout: JobLayout) -> dict[str, Any]:
    checkpoint = layout.job.recovery.checkpoint
    directory = posixpath.join(layout.cwd, checkpoint.dir) if checkpoint is not None else None
    options = layout.options_as(MegatronOptions)
    # Ranks meet within this time as well: it must not be shorter than that in which dttui names who is missing.
    limit_s = layout.job.communication.collective_timeout_s
    minutes = max(_USUAL_TIMEOUT_MINUTES, math.ceil(2 * layout.job.communication.rendezvous_timeout_s / 60))
    return {
        "save": directory,
        "load": directory,
        "save-interval": options.save_interval if directory is not None else None,
        "distributed-backend": layout.backend,
        "distributed-timeout-minutes": minutes,
        "distributed-timeout-seconds-after-init": None if limit_s is None else math.ceil(limit_s),
    }


def _of_reduction(layout: JobLayout) -> dict[str, Any]:
    """Return how gradients are reduced (megatron/core/distributed): it has buckets only where it overlaps."""
    talk = layout.job.communication
    named = _named(layout)
    overlaps = (talk.overlap or _OVERLAPS in named) and "ddp-num-buckets" not in named
    halves = talk.compression == "bf16" and _keeps_bf16(layout)
    # The job counts bytes, and Megatron elements: it sums in fp32 what it computes in bf16.
    width = 2 if halves or (layout.job.model or Model()).precision == "fp16" else 4
    elements = max(layout.bucket_bytes // width, 1) if layout.bucket_bytes is not None and overlaps else None
    return {_OVERLAPS: talk.overlap, "ddp-bucket-size": elements, "grad-reduce-in-bf16": halves}


def _named(layout: JobLayout) -> set[str]:
    """Return the names of the arguments that the person gives, wherever they do."""
    given = [token[2:].partition("=")[0] for token in layout.run.args if token.startswith("--")]
    return {*_extra(layout.options_as(MegatronOptions)), *given}


def _keeps_bf16(layout: JobLayout) -> bool:
    return (layout.job.model or Model()).precision in ("bf16", "fp8")


def _check_reduction(layout: JobLayout) -> list[Finding]:
    """Return what the job says of its gradients that Megatron cannot do as things are."""
    talk, found = layout.job.communication, []
    overlaps = _OVERLAPS in _named(layout)
    if talk.overlap is False and _OVERLAPS in _extra(layout.options_as(MegatronOptions)):
        path = ("framework_options", "arguments", _OVERLAPS.replace("-", "_"))
        message = _("this is not what {other} says; give it once").format(other="communication.overlap")
        found.append(error("framework-option", format_path(path), message, path=path))
    if talk.all_reduce is not None and talk.all_reduce.buffer_size is not None and not (talk.overlap or overlaps):
        message = _("Megatron-LM has buckets only where it overlaps: write communication.overlap: true")
        found.append(in_vain(f"{talk.all_reduce_place}.buffer_size", message))
    if talk.compression == "bf16" and not _keeps_bf16(layout):
        found.append(
            in_vain("compression", _("Megatron-LM sends gradients as bf16 only where model.precision is bf16"))
        )
    return found


def _arguments_file(layout: JobLayout) -> PlannedFile:
    return PlannedFile(path=ARGUMENTS_FILE, text="".join(f"{token}\n" for token in _arguments(layout)))
