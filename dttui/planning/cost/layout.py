"""How a model is laid out over ranks, and whether such a layout can be: degrees, batches, schedule, recomputation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dttui.i18n import _
from dttui.planning.cost.hardware import Precision
from dttui.planning.cost.optimizers import Optimizer, Weights, moment_bytes
from dttui.planning.cost.shape import ModelShape

Recompute = Literal["none", "selective", "full"]
Offload = Literal["none", "optimizer", "gradients", "parameters", "all"]
OFFLOADED: dict[Offload, frozenset[str]] = {
    "none": frozenset(),
    "optimizer": frozenset({"optimizer"}),
    "gradients": frozenset({"optimizer", "gradients"}),
    "parameters": frozenset({"parameters"}),
    "all": frozenset({"optimizer", "gradients", "parameters"}),
}
"""Parts of memory that the host keeps: ZeRO-Offload has gradients beside the states they change (Ren et al. 2021)."""
KEPT = (
    "optimizer", "weights", "fused", "bucketed", "offload", "offload_activations",
    "secondary_shard", "quantized_weights", "quantized_gradients",
)  # fmt: skip
"""What of a layout is not searched but said, of a job by itself or its framework."""
Schedule = Literal["1F1B", "GPipe", "ZB-H1", "ZB-H2", "ZB-V"]
"""Order of forward and backward passes of a pipeline. Those of zero bubbles compute gradients of weights apart, when a
stage would idle: H1 with the memory of 1F1B, H2 with twice that (Qi et al. 2023), V with two chunks a stage, the
second way back, and the memory of 1F1B (Qi et al. 2024)."""
IMAGES = 256
"""A GPU at once, where nobody says: as NVIDIA's own runs of ResNet-50 have it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of parallelism, batches, and what is traded for memory.

    Ranks of a tensor are next to each other, then those of a sequence, then replicas, then stages.
    """

    data: int = 1
    """Replicas, each with sequences of its own."""
    tensor: int = 1
    pipeline: int = 1
    virtual_stages: int = 1
    """Chunks of layers a rank; more than 1 is the interleaved schedule."""
    micro_batch: int = 1
    """Sequences a rank works on at once."""
    global_batch: int = 1
    """Sequences a step."""
    zero_stage: int = 0
    """0 to 3, as DeepSpeed counts; 3 is fully sharded data parallel."""
    recompute: Recompute = "none"
    sequence_parallel: bool = False
    precision: Precision = "bf16"
    gradient_bytes: int | None = None
    """A parameter's; `None` for as the usual framework keeps them, see `bytes_per_gradient`."""
    schedule: Schedule = "1F1B"
    offload: Offload = "none"
    """What is kept in the host's memory; see `OFFLOADED`."""
    overlap: bool = True
    """Whether gradients travel while the backward pass makes others, and what chunks of layers send while they compute.
    """
    tensor_overlap: bool = False
    """Whether tensor-parallel ranks that split the sequence send parts of a product while they compute others."""
    context: int = 1
    """Ranks that share out each sequence, and pass keys and values on (Liu et al. 2023)."""
    expert: int = 1
    """Ranks that share out the experts, among those of a stage; each token is sent to where its experts are."""
    expert_tensor: int | None = None
    """Ranks that share each expert; `None` for as many as share a layer."""
    shard: int | None = None
    """Ranks over which ZeRO shards, one such group being a replica of the next (hybrid sharding); `None` for all."""
    reshard: bool = True
    """Whether ZeRO stage 3 lets go of a layer's parameters after its forward pass, and gathers them once more."""
    tuned_attention: bool = False
    """Whether flash attention is by kernels made for the GPU, as Transformer Engine takes them."""
    compiled: bool = False
    """Whether element-wise operations are fused into few kernels, as torch.compile does."""
    optimizer: Optimizer = "adam"
    weights: Weights = "master"
    fused: bool = True
    """Whether gates, loss and optimizer are fused kernels, as Megatron-LM's; else they are PyTorch's operators."""
    bucketed: bool = False
    """Whether gradients are there a second time, in buckets, as of PyTorch's DDP without gradient_as_bucket_view."""
    offload_activations: bool = False
    """Whether the host keeps what layers keep for the backward pass."""
    recompute_modules: frozenset[str] = frozenset({"core_attn"})
    """What `selective` computes again, by Megatron-LM's names: `core_attn` (attention between its products),
    `layernorm`, `mla_up_proj`, `mlp`, `moe`, `moe_act`, `shared_experts`. Also `mlp_act`, which is `moe_act` of layers
    without experts, and `products`, all but the result of every second product, as torchtitan's `op` has it. Others
    count nothing."""
    secondary_shard: int | None = None
    """Ranks that share out a second copy of all parameters, from which ZeRO stage 3 gathers for the backward pass
    (hpZ of ZeRO++, Wang et al. 2023); `None` where there is none."""
    quantized_weights: bool = False
    """Whether ZeRO stage 3 sends parameters for the forward pass in 8 bits (qwZ, likewise)."""
    quantized_gradients: bool = False
    """Whether gradients travel in 4 bits (qgZ, likewise)."""

    @property
    def ranks(self) -> int:
        """World size."""
        return self.data * self.context * self.tensor * self.pipeline

    def tokens(self, shape: ModelShape) -> float:
        """Return how many tokens a rank works on at once."""
        return shape.seq_length * self.micro_batch / self.context

    @property
    def again(self) -> frozenset[str]:
        """Parts of a layer that are computed again, where not all of it is."""
        return self.recompute_modules if self.recompute == "selective" else frozenset()

    @property
    def replicas(self) -> int:
        """Ranks that have the same parameters, and sum their gradients: those of a sequence as well."""
        return self.data * self.context

    @property
    def tensor_of_experts(self) -> int:
        """Ranks that share each expert."""
        return self.expert_tensor if self.expert_tensor is not None else self.tensor

    @property
    def expert_replicas(self) -> int:
        """Ranks that have the same experts."""
        return max(self.replicas * self.tensor // (self.expert * self.tensor_of_experts), 1)

    @property
    def shard_ranks(self) -> int:
        """Ranks over which ZeRO shards."""
        return min(self.shard or self.replicas, self.replicas)

    @property
    def micro_batches(self) -> int:
        """Micro-batches a rank sees in one step."""
        return max(self.global_batch // (self.data * self.micro_batch), 1)

    @property
    def bytes_per_parameter(self) -> int:
        """Of the copy that is computed with."""
        return 4 if self.precision in ("fp32", "tf32") else 2

    @property
    def casts(self) -> bool:
        """Whether weights in fp32 are cast for each product."""
        return self.weights == "autocast" and self.bytes_per_parameter < 4

    @property
    def bytes_per_kept_parameter(self) -> int:
        """Of the copy that is there between steps."""
        return 4 if self.casts else self.bytes_per_parameter

    @property
    def residual_bytes(self) -> int:
        """Of a number that goes from layer to layer: autocast leaves what is added up in fp32."""
        return self.bytes_per_kept_parameter

    @property
    def bytes_per_gradient(self) -> int:
        """Four where tensors or stages are split, since Megatron-LM sums gradients in fp32; else the parameter's."""
        if self.gradient_bytes is not None:
            return self.gradient_bytes
        return 4 if self.tensor * self.pipeline > 1 and self.weights != "pure" else self.bytes_per_kept_parameter

    @property
    def bytes_per_reduced_gradient(self) -> int:
        """As it travels: what is kept, except that Megatron-LM reduces gradients in fp16 before it widens them."""
        if self.gradient_bytes is None and self.precision == "fp16":
            return 2
        return min(self.bytes_per_gradient, 4)

    @property
    def bytes_per_optimizer_state(self) -> float:
        """Moments, and a master copy beside half precision: with Adam 12 in all (Rajbhandari et al. 2020)."""
        is_half = self.bytes_per_parameter < 4
        weights: Weights = self.weights if is_half else "autocast"
        return moment_bytes(self.optimizer, weights) + (4 if weights == "master" else 0)


def usual_micro_batch(shape: ModelShape) -> int:
    """Return sequences, or images, that a rank works on at once where nobody says."""
    return 1 if shape.convolutions is None else IMAGES


def usual_batch(data: int, micro_batch: int, pipeline: int) -> int:
    """Return sequences a step where nobody says: a micro-batch a replica, and four a stage to fill a pipeline."""
    return data * micro_batch * (4 * pipeline if pipeline > 1 else 1)


@dataclass(frozen=True, slots=True)
class Fault:
    """What keeps a layout from running a model."""

    field: str
    """Of `Layout`, whose number does not fit; `layers` where stages are only unlike each other."""
    message: str


def faults(layout: Layout, shape: ModelShape, gpus: int, gpus_per_node: int) -> Iterator[Fault]:
    """Yield what keeps a layout from running a model on so many GPUs.

    A tensor-parallel group may span nodes, only slowly; that is for the time to say.
    """
    if layout.ranks != gpus:
        text = _("{degrees} makes {ranks} ranks, and there are {gpus} GPUs")
        degrees = [(_("data"), layout.data), (_("tensor"), layout.tensor), (_("pipeline"), layout.pipeline)]
        degrees += [(_("context"), layout.context)] if layout.context > 1 else []
        told = " × ".join(f"{name} {degree}" for name, degree in degrees)
        yield Fault("data", text.format(degrees=told, ranks=layout.ranks, gpus=gpus))
    if shape.convolutions is not None:
        for field, degree in (("tensor", layout.tensor), ("pipeline", layout.pipeline)):
            if degree > 1:
                yield Fault(field, _("convolutions are not split: each rank has all of them"))
    elif shape.heads % layout.tensor:
        message = _("{heads} heads cannot be divided by tensor {tensor}").format(
            heads=shape.heads, tensor=layout.tensor
        )
        yield Fault("tensor", message)
    yield from _of_sequence(layout, shape)
    yield from _of_experts(layout, shape)
    chunks = layout.pipeline * layout.virtual_stages
    # Of chunks of a layer each the first and the last may have none: embedding and output layer count as one.
    if chunks > shape.layers + (2 if layout.virtual_stages > 1 else 0) or not evens_out(shape.layers, layout):
        text = _("{layers} layers cannot be divided by pipeline {pipeline} × {chunks} chunks")
        message = text.format(layers=shape.layers, pipeline=layout.pipeline, chunks=layout.virtual_stages)
        yield Fault("pipeline" if chunks > shape.layers else "layers", message)
    if layout.global_batch % (layout.data * layout.micro_batch):
        text = _("the global batch {batch} cannot be divided by data {data} × micro-batch {micro}")
        message = text.format(batch=layout.global_batch, data=layout.data, micro=layout.micro_batch)
        yield Fault("global_batch", message)
    elif layout.virtual_stages > 1 and layout.micro_batches % layout.pipeline:
        text = _("the interleaved schedule needs the {count} micro-batches to be a multiple of pipeline {pipeline}")
        yield Fault("global_batch", text.format(count=layout.micro_batches, pipeline=layout.pipeline))
    if layout.virtual_stages > 1 and layout.pipeline == 1:
        yield Fault("virtual_stages", _("chunks of layers need a pipeline of two stages or more"))
    if layout.zero_stage >= 2 and layout.pipeline > 1:
        message = _("ZeRO stage {stage} does not go with a pipeline").format(stage=layout.zero_stage)
        yield Fault("zero_stage", message)
    if (
        gpus_per_node > 1
        and layout.tensor > 1
        and max(layout.tensor, gpus_per_node) % min(layout.tensor, gpus_per_node)
    ):
        text = _("tensor {tensor} does not fit the {gpus} GPUs of a node evenly")
        yield Fault("tensor", text.format(tensor=layout.tensor, gpus=gpus_per_node))


def evens_out(layers: int, layout: Layout) -> bool:
    """Whether all stages have as many layers, where embedding and output layer may count as one each.

    So Llama 3 has 126 layers on 16 stages: the first and the last one have seven (Llama Team 2024, §3.3.2).
    """
    chunks = layout.pipeline * layout.virtual_stages
    return layout.pipeline == 1 or any((layers + more) % chunks == 0 for more in (0, 1, 2))


def stage_layers(layers: int, layout: Layout) -> tuple[int, int, int]:
    """Return how many layers the first, a middle and the last stage have: the middle ones have most."""
    most = -(-layers // layout.pipeline)
    lacking = most * layout.pipeline - layers
    return most - (lacking >= 2), most, most - (lacking >= 1)


def _of_sequence(layout: Layout, shape: ModelShape) -> Iterator[Fault]:
    if layout.context > 1 and shape.seq_length % (2 * layout.context):
        text = _("{count} tokens cannot be shared out among context {context}: that takes a multiple of {multiple}")
        message = text.format(count=shape.seq_length, context=layout.context, multiple=2 * layout.context)
        yield Fault("context", message)


def _of_experts(layout: Layout, shape: ModelShape) -> Iterator[Fault]:
    if layout.expert == 1:
        return
    if shape.experts is None:
        yield Fault("expert", _("the model has no experts to share out"))
        return
    if shape.experts % layout.expert:
        message = _("{count} experts cannot be divided by expert {expert}").format(
            count=shape.experts, expert=layout.expert
        )
        yield Fault("expert", message)
    ranks = layout.replicas * layout.tensor
    if ranks % (layout.expert * layout.tensor_of_experts):
        text = _("the {ranks} ranks of a stage cannot be divided by expert {expert} × tensor {tensor} of an expert")
        yield Fault("expert", text.format(ranks=ranks, expert=layout.expert, tensor=layout.tensor_of_experts))
