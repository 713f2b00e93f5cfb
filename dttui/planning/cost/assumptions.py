"""From what is said of a model, a layout and the hardware to all that an estimate needs, with where each came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from dttui.i18n import _
from dttui.planning.cost.correction import Correction, Learned, Provenance
from dttui.planning.cost.hardware import (
    STORAGE_BANDWIDTH,
    GpuTable,
    GpuType,
    Hardware,
    Interconnect,
    default_links,
)
from dttui.planning.cost.layout import KEPT, Layout
from dttui.planning.cost.shape import (
    DEFAULT_SEQ_LENGTH,
    DEFAULT_VOCAB_SIZE,
    Attention,
    ModelShape,
    exact_count,
    fitting_ffn_size,
    parameter_count,
    usual_shape,
)
from dttui.spec.known_models import Convolutions, known_sizes, model_meant
from dttui.spec.lora import Lora
from dttui.spec.models import LatentAttention
from dttui.spec.problems import did_you_mean

Source = Literal["measured", "declared", "default"]


class Input(BaseModel):
    """One number that went into an estimate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float | int | str | bool
    """The number."""
    source: Source
    """Measured on the hosts, declared by a person or a data sheet, or taken by default."""
    measured_at: float | None = None
    """Seconds since the epoch, of what was measured; `None` also where that is not known."""


class UnknownAssumptionError(ValueError):
    """Something cannot be assumed.

    Attributes:
        hint: what to add, and where.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class ModelClaim:
    """What is said of a model; `None` where nothing is."""

    parameters: float | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    seq_length: int | None = None
    vocab_size: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    ffn_size: int | None = None
    gated: bool | None = None
    tied: bool | None = None
    attention: Attention | None = None
    causal: bool | None = None
    dropout: bool | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    expert_size: int | None = None
    shared_experts: int | None = None
    dense_layers: int | None = None
    latent: LatentAttention | None = None
    lora: Lora | None = None
    name: str | None = None
    """Of a known model, which stands for sizes that are not said."""
    convolutions: Convolutions | None = None
    """Of a known model that has them; nobody says so otherwise."""


@dataclass(frozen=True, slots=True)
class HardwareClaim:
    """What is said of the hardware; bandwidths in bytes a second, of links a GPU's, latencies in seconds."""

    gpu: str
    gpus: int
    gpus_per_node: int | None = None
    gpu_memory_bytes: float | None = None
    intra_bandwidth: float | None = None
    intra_latency_s: float | None = None
    inter_bandwidth: float | None = None
    inter_latency_s: float | None = None
    storage_bandwidth: float | None = None
    """At which a node writes its part of a checkpoint."""


Inputs = dict[str, Input]
CLAIMED = tuple(field.name for field in fields(ModelClaim) if field.name not in ("name", "convolutions"))
"""What may be said of a model, as `ModelShape` and a job call it."""
_COUNTED = {
    *("kv_heads", "head_size", "ffn_size", "gated", "tied"),
    *("experts", "expert_size", "shared_experts", "dense_layers", "latent"),
}
"""What else than layers and hidden size the number of parameters follows from."""
_OF_ANY_MODEL = ("attention", "gated", "tied", "causal", "dropout")
"""What a framework says of each of its models, and changes nothing where there is nothing of it."""
_OF_EXPERTS = ("experts_per_token", "shared_experts", "dense_layers")
"""What a shape has of experts even where it has none."""
_LEAST_FFN, _MOST_FFN = 0.5, 8.0
"""Width of a feed-forward part by the hidden size: where parameters ask for another they are another model's."""


def assume_shape(claim: ModelClaim) -> tuple[ModelShape, Inputs]:
    """Return the shape: as said, or one that is usual at the number of parameters.

    Where something is said that parameters follow from, they do; where those are said too, the feed-forward part has
    the width that makes it so many.

    Raises:
        UnknownAssumptionError: neither the number of parameters nor layers and hidden size are said, or heads of keys
            and values do not divide those of queries.
    """
    said = {name: value for name in CLAIMED if (value := getattr(claim, name)) is not None}
    known = known_sizes(claim.name, said)
    if "convolutions" in known and (wrong := [name for name in said if name not in _OF_ANY_MODEL]):
        message = _("{name} is a network of convolutions: it has no {what}").format(
            name=claim.name, what=", ".join(name.replace("_", " ") for name in wrong)
        )
        raise UnknownAssumptionError(message, _("Leave it out: convolutions have images of 224 × 224 pixels."))
    said |= known
    claim = replace(claim, **known)
    if claim.layers and claim.hidden_size:
        s, vocabulary = claim.seq_length or DEFAULT_SEQ_LENGTH, claim.vocab_size or DEFAULT_VOCAB_SIZE
        heads = max(claim.hidden_size // 128, 1)
        count = parameter_count(claim.layers, claim.hidden_size, s, vocabulary)
        usual = ModelShape(claim.layers, claim.hidden_size, heads, s, vocabulary, count)
    elif claim.parameters:
        usual = usual_shape(claim.parameters, claim.seq_length, claim.vocab_size)
        if claim.heads is not None and claim.heads % (usual.kv_heads or 1):
            usual = replace(usual, kv_heads=None)
    else:
        raise UnknownAssumptionError(
            _("the model needs its number of parameters, or layers and hidden size"),
            _hint(claim.name),
        )
    shape = replace(usual, **said)
    if shape.heads % (shape.kv_heads or 1):
        message = _("{heads} attention heads cannot share {kv_heads} of keys and values")
        raise UnknownAssumptionError(
            message.format(heads=shape.heads, kv_heads=shape.kv_heads), _("Take a number that divides them.")
        )
    if shape.convolutions is not None:
        return shape, _of_convolutions(shape, claim, shape.convolutions)
    shape = _counted(shape, claim, is_usual=not said.keys() & _COUNTED)
    values: dict[str, Any] = {name: getattr(shape, name) for name in CLAIMED}
    values |= {
        "kv_heads": shape.kv_heads or shape.heads,
        "head_size": round(shape.query_size / shape.heads),
        "ffn_size": shape.feed_forward_size,
        "latent": shape.latent and ", ".join(f"{name} {size}" for name, size in shape.latent if size is not None),
        "lora": shape.lora and shape.lora.text,
    }
    idle = set() if shape.experts is not None else set(_OF_EXPERTS)
    idle |= {"ffn_size"} if shape.expert_share == 1 else set()
    inputs = {
        f"model.{name}": Input(value=value, source="declared" if name in said else "default")
        for name, value in values.items()
        if value is not None and (name in said or name not in idle)
    }
    if known and claim.name is not None:
        inputs["model.name"] = Input(value=claim.name, source="declared")
    return shape, inputs


def _of_convolutions(shape: ModelShape, claim: ModelClaim, of: Convolutions) -> Inputs:
    """Return what is to be told of a network of convolutions, all of which its name says."""
    told = {
        "name": claim.name or "",
        "parameters": shape.parameters,
        "operations": of.operations,
        "values": of.values,
    }
    return {f"model.{name}": Input(value=value, source="declared") for name, value in told.items()}


def _hint(name: str | None) -> str:
    """Return what helps where nothing is known of a model's size."""
    hint = _("Write model.parameters into the job, or give --parameters, such as 7e9.")
    near = model_meant(name) if name else ""
    return f"{near[:1].upper()}{near[1:]} {hint}" if near else hint


def _counted(shape: ModelShape, claim: ModelClaim, *, is_usual: bool) -> ModelShape:
    """Return a shape with the parameters that it has, or the feed-forward part that parameters as said ask for.

    Args:
        shape: as said, and otherwise as is usual.
        claim: what is said.
        is_usual: whether nothing is said that parameters follow from, but for layers and hidden size.
    """
    if claim.parameters is None:
        return shape if is_usual else replace(shape, parameters=exact_count(shape))
    width = fitting_ffn_size(shape)
    if claim.ffn_size is None and shape.experts is None and _LEAST_FFN <= width / shape.hidden_size <= _MOST_FFN:
        return replace(shape, ffn_size=width)
    return shape


def assume_hardware(
    claim: HardwareClaim, table: GpuTable, learned: Mapping[str, Learned] | None = None
) -> tuple[Hardware, Inputs]:
    """Return the hardware: as said, else as the table has it.

    Args:
        claim: what is said.
        table: types of GPUs.
        learned: name of a type → what jobs have shown of hosts that have it; it counts once a precision is known.

    Raises:
        UnknownAssumptionError: the table has no such GPU.
    """
    gpu = table.find(claim.gpu, claim.gpu_memory_bytes)
    if gpu is None:
        raise unknown_gpu(claim.gpu, table)
    if claim.gpu_memory_bytes is not None:
        gpu = gpu.model_copy(update={"memory_gib": claim.gpu_memory_bytes / 2**30})
    intra, inter = default_links(gpu)
    links = (
        Interconnect(_or(claim.intra_bandwidth, intra.bandwidth), _or(claim.intra_latency_s, intra.latency_s)),
        Interconnect(_or(claim.inter_bandwidth, inter.bandwidth), _or(claim.inter_latency_s, inter.latency_s)),
    )
    per_node = min(claim.gpus_per_node or 8, claim.gpus)
    storage = _or(claim.storage_bandwidth, STORAGE_BANDWIDTH)
    hardware = Hardware(gpu, claim.gpus, per_node, *links, storage=storage, learned=(learned or {}).get(gpu.name))
    return hardware, _hardware_inputs(claim, hardware, gpu)


def unknown_gpu(name: str, table: GpuTable) -> UnknownAssumptionError:
    """Return what to raise for a type of GPU that the table does not have."""
    known = ", ".join(dict.fromkeys(gpu.type for gpu in table.gpus))
    message = _('no GPU type "{gpu}" is known; known are: {known}').format(gpu=name, known=known)
    near = did_you_mean(name, dict.fromkeys(gpu.type for gpu in table.gpus))
    hint = _("Add it to gpus.yaml in dttui's configuration directory.")
    return UnknownAssumptionError(message, f"{near} {hint}" if near else hint)


def _hardware_inputs(claim: HardwareClaim, hardware: Hardware, gpu: GpuType) -> Inputs:
    inputs: Inputs = {
        "gpu.name": Input(value=gpu.name, source="declared"),
        "gpu.source": Input(value=gpu.source, source="declared"),
        "gpu.memory_bytes": Input(value=gpu.memory_bytes, source="declared"),
        "gpu.memory_bandwidth": Input(value=gpu.memory_bandwidth * 1e9, source="declared"),
        "gpus": Input(value=hardware.gpus, source="declared"),
        "nodes": Input(value=hardware.nodes, source="declared"),
        "gpus_per_node": Input(
            value=hardware.gpus_per_node, source="declared" if claim.gpus_per_node is not None else "default"
        ),
    }
    if gpu.power is not None:
        inputs["gpu.power"] = Input(value=gpu.power, source="declared")
    for name, link in (("intra", hardware.intra), ("inter", hardware.inter)):
        for field, value in (("bandwidth", link.bandwidth), ("latency_s", link.latency_s)):
            said = getattr(claim, f"{name}_{field}") is not None
            inputs[f"{name}_{field}"] = Input(value=value, source="declared" if said else "default")
    said = claim.storage_bandwidth is not None
    inputs["storage_bandwidth"] = Input(value=hardware.storage, source="declared" if said else "default")
    reached = hardware.efficiency
    for field in ("matmul", "flash", "fp8_matmul", "memory", "intra_node", "inter_node", "kernel_s", "host_pass_s"):
        inputs[f"efficiency.{field}"] = Input(value=getattr(reached, field), source="default")
    return inputs


def layout_inputs(layout: Layout, said: set[str], hardware: Hardware) -> Inputs:
    """Return the layout as inputs; `said` are the fields that a person gave."""
    inputs: dict[str, Any] = {
        name: getattr(layout, name)
        for name in (
            "data",
            "tensor",
            "pipeline",
            "virtual_stages",
            "micro_batch",
            "global_batch",
            "zero_stage",
            "recompute",
            "sequence_parallel",
            "precision",
            "schedule",
            "overlap",
            "tensor_overlap",
            "offload",
            "tuned_attention",
            "compiled",
            "reshard",
        )
    }
    # What most layouts have nothing of is named in those that have it.
    usual = Layout()
    inputs |= {name: value for name in KEPT if (value := getattr(layout, name)) != getattr(usual, name) or name in said}
    shared = {"context": layout.context, "expert": layout.expert, "expert_tensor": layout.expert_tensor}
    inputs |= {name: degree for name, degree in shared.items() if degree not in (None, 1)}
    inputs |= {"shard": layout.shard_ranks} if layout.shard is not None else {}
    if layout.again not in (frozenset(), usual.recompute_modules):
        inputs["recompute_modules"] = " ".join(sorted(layout.again))
    inputs["bytes_per_gradient"] = layout.bytes_per_gradient
    inputs["peak_flops"] = hardware.gpu.peak_flops(layout.precision)
    return {
        f"layout.{name}": Input(value=value, source="declared" if name in said else "default")
        for name, value in inputs.items()
    }


_CORRECTION = "calibration."
"""Begins the names of inputs that were learned from jobs."""


def with_correction(inputs: Inputs, correction: Correction | None, time_spread: float) -> Inputs:
    """Return inputs with what was learned from jobs that are over, and from which; instead of what was before.

    Args:
        inputs: of an estimate.
        correction: what was learned, where something was.
        time_spread: how far the time of a step is off at most, where that was.
    """
    kept = {name: item for name, item in inputs.items() if not name.startswith(_CORRECTION)}
    if correction is None:
        return kept
    told: dict[str, float | str] = {}
    found: list[tuple[dict[str, float | str], Provenance]] = []
    if (time := correction.time) is not None:
        told = {"compute": time.compute, "traffic": time.traffic, "time_spread": time_spread}
        found.append(({**told, "time_jobs": ", ".join(time.source.jobs)}, time.source))
    if (memory := correction.memory) is not None:
        told = {"memory_factor": memory.factor} if memory.offset_bytes == 0 else {"memory_bytes": memory.offset_bytes}
        told["memory_spread"] = memory.spread
        found.append(({**told, "memory_jobs": ", ".join(memory.source.jobs)}, memory.source))
    for values, source in found:
        for name, value in values.items():
            kept[_CORRECTION + name] = Input(value=value, source="measured", measured_at=source.last_at)
    return kept


def _or(said: float | None, usual: float) -> float:
    return usual if said is None else said
