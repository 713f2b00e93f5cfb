"""What an estimate speaks of and rests upon, in words with units. Keys as programs read them are no words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dttui.i18n import _, ngettext
from dttui.planning.cost.estimate import Estimate
from dttui.planning.cost_text import is_of_images, seconds
from dttui.sanitize import clean
from dttui.words import listed, parameters

_TOLD_BY_DEFAULT = (
    *("layout.precision", "layout.zero_stage", "layout.micro_batch", "layout.global_batch", "layout.recompute"),
    *("intra_bandwidth", "inter_bandwidth", "inter_latency_s", "gpus_per_node", "storage_bandwidth"),
    *("model.layers", "model.hidden_size", "model.heads", "model.kv_heads", "model.ffn_size", "model.seq_length"),
    *("model.vocab_size", "model.experts_per_token", "model.attention", "model.causal", "model.dropout", "model.tied"),
)
"""Inputs that decide most, in the order in which they are told; the screen has all others, too."""
MOST_JOBS = 3
"""That a line names; the others are counted."""
_UNSAID: Mapping[str, object] = {
    **{"tensor": 1, "pipeline": 1, "virtual_stages": 1},
    **{"recompute": "none", "offload": "none", "sequence_parallel": False},
}
"""Of a layout, what goes without saying."""


def input_text(name: str, value: float | int | str | bool) -> str:
    """Return an input in words: `inside a node 450 GB/s a GPU`, `ZeRO 1`.

    Args:
        name: as `Estimate.inputs` calls it.
        value: in the units of `Estimate.inputs`: bytes, bytes a second, seconds, FLOP/s, watts.
    """
    words = WORDS.get(name)
    return words(value) if words is not None else f"{name.rpartition('.')[2].replace('_', ' ')} {clean(str(value))}"


def model_line(estimate: Estimate) -> str:
    """Return the model that an estimate speaks of, its sequences and its precision."""
    said = {name: item.value for name, item in estimate.inputs.items()}
    if is_of_images(estimate):
        shown = ("model.name", "model.parameters", "model.operations", "layout.precision")
        return ", ".join(input_text(name, said[name]) for name in shown if name in said)
    family = _("Llama-like") if said.get("model.gated") else _("GPT-like")
    name = f"{clean(str(said.get('model.name') or family))}, {parameters(float(said['model.parameters']))}"
    told = [_("{layers} layers of {width}").format(layers=said["model.layers"], width=f"{said['model.hidden_size']:,}")]
    shown = ("model.experts", "model.experts_per_token", "model.seq_length", "layout.precision")
    return f"{name}: " + ", ".join([*told, *(input_text(name, said[name]) for name in shown if name in said)])


def layout_line(estimate: Estimate) -> str:
    """Return the GPUs and the layout that an estimate speaks of."""
    said = {name: item.value for name, item in estimate.inputs.items()}
    nodes = int(said["nodes"])
    places = ngettext("{gpus} × {gpu} on {nodes} node", "{gpus} × {gpu} on {nodes} nodes", nodes)
    shown = ("data", "tensor", "context", "expert", "pipeline", "virtual_stages", "zero_stage", "shard")
    again = "recompute_modules" if "layout.recompute_modules" in said else "recompute"
    more = ("micro_batch", "global_batch", again, "sequence_parallel", "offload")
    told = [
        _told(estimate, f"layout.{name}", value)
        for name in (*shown, *more)
        if (value := said.get(f"layout.{name}")) not in (None, _UNSAID.get(name))
    ]
    return f"{places.format(gpus=said['gpus'], gpu=said['gpu.name'], nodes=nodes)} · {', '.join(told)}"


def _told(estimate: Estimate, name: str, value: Any) -> str:
    """Return an input in words, where what is spoken of decides some of them."""
    if name == "layout.global_batch" and is_of_images(estimate):
        return ngettext("{count} image a step", "{count} images a step", value).format(count=f"{value:,}")
    return input_text(name, value)


def default_texts(estimate: Estimate) -> list[str]:
    """Return in short what is taken by default and decides most: of the layout, the links, the model."""
    usual = {name: item.value for name, item in estimate.inputs.items() if item.source == "default"}
    told = [_told(estimate, name, usual[name]) for name in _TOLD_BY_DEFAULT if name in usual]
    reached = any(name.startswith("efficiency.") for name in usual)
    return [*told, _("what kernels and links usually reach of their peaks")] if reached else told


def _learned_from(jobs: str) -> str:
    return _("learned from {jobs}").format(jobs=listed(jobs.split(", "), MOST_JOBS))


def _share(value: float) -> str:
    return f"{value:.3g}" if value < 0.01 else f"{value:.0%}"


def _rate(value: float) -> str:
    return f"{value / 1e9:.4g}"


_Words = Mapping[str, Callable[[Any], str]]
_MODEL: _Words = {
    "model.name": lambda name: clean(name),
    "model.parameters": lambda count: _("{count} parameters").format(count=parameters(count)),
    "model.layers": lambda count: ngettext("{count} layer", "{count} layers", count).format(count=count),
    "model.hidden_size": lambda size: _("hidden {size}").format(size=f"{size:,}"),
    "model.heads": lambda count: _("{count} attention heads").format(count=count),
    "model.seq_length": lambda count: _("{count} tokens a sequence").format(count=f"{count:,}"),
    "model.vocab_size": lambda count: _("vocabulary of {count}").format(count=f"{count:,}"),
    "model.kv_heads": lambda count: _("{count} heads of keys and values").format(count=count),
    "model.head_size": lambda size: _("heads of {size}").format(size=size),
    "model.ffn_size": lambda size: _("feed-forward {size}").format(size=f"{size:,}"),
    "model.gated": lambda is_so: _("gated") if is_so else _("not gated"),
    "model.tied": lambda is_so: _("tied embeddings") if is_so else _("an output layer of its own"),
    "model.attention": lambda kind: _("{kind} attention").format(kind=kind),
    "model.causal": lambda is_so: _("causal") if is_so else _("not causal"),
    "model.dropout": lambda is_so: _("dropout") if is_so else _("no dropout"),
    "model.experts": lambda count: _("{count} experts a layer").format(count=count),
    "model.experts_per_token": lambda count: _("{count} of them a token").format(count=count),
    "model.expert_size": lambda size: _("experts of {size}").format(size=f"{size:,}"),
    "model.shared_experts": lambda count: _("{count} shared experts").format(count=count),
    "model.dense_layers": lambda count: _("{count} layers without experts").format(count=count),
    "model.lora": lambda said: _("LoRA: {said}").format(said=said),
    "model.operations": lambda count: _("{count} GMAC an image forward").format(count=f"{count / 1e9:.3g}"),
    "model.values": lambda count: _("convolutions give {count} numbers an image").format(count=parameters(count, 3)),
    "model.latent": lambda sizes: _("latent attention: {sizes}").format(sizes=sizes.replace("_", " ")),
}
_HARDWARE: _Words = {
    "gpu.name": lambda name: clean(name),
    "gpu.source": lambda source: _("figures of {source}").format(source=clean(source)),
    "gpu.memory_bytes": lambda size: _("{size} GB of memory").format(size=f"{size / 1e9:.1f}"),
    "gpu.memory_bandwidth": lambda rate: _("memory at {rate} GB/s").format(rate=f"{rate / 1e9:,.0f}"),
    "gpu.power": lambda power: _("{power} W of board power").format(power=f"{power:g}"),
    "gpus": lambda count: ngettext("{count} GPU", "{count} GPUs", count).format(count=count),
    "nodes": lambda count: ngettext("{count} node", "{count} nodes", count).format(count=count),
    "gpus_per_node": lambda count: _("{count} GPUs a node").format(count=count),
    "intra_bandwidth": lambda rate: _("inside a node {rate} GB/s a GPU").format(rate=_rate(rate)),
    "intra_latency_s": lambda delay: _("latency inside a node {time}").format(time=seconds(delay)),
    "inter_bandwidth": lambda rate: _("inter-node {rate} GB/s a GPU").format(rate=_rate(rate)),
    "inter_latency_s": lambda delay: _("inter-node latency {time}").format(time=seconds(delay)),
    "storage_bandwidth": lambda rate: _("checkpoints written at {rate} GB/s a node").format(rate=_rate(rate)),
}
_EFFICIENCY: _Words = {
    "efficiency.matmul": lambda share: _("matrix products {share} of the peak").format(share=_share(share)),
    "efficiency.flash": lambda share: _("fused attention {share} of the peak").format(share=_share(share)),
    "efficiency.fp8_matmul": lambda share: _("fp8 products {share} of the peak").format(share=_share(share)),
    "efficiency.memory": lambda share: _("{share} of the memory bandwidth").format(share=_share(share)),
    "efficiency.intra_node": lambda share: _("{share} of the link inside a node").format(share=_share(share)),
    "efficiency.inter_node": lambda share: _("{share} of the network").format(share=_share(share)),
    "efficiency.kernel_s": lambda time: _("{time} to start a kernel").format(time=seconds(time)),
    "efficiency.host_pass_s": lambda time: _("{time} of the host for a pass over a layer").format(time=seconds(time)),
}
_LAYOUT: _Words = {
    "layout.data": lambda count: ngettext("{count} replica", "{count} replicas", count).format(count=count),
    "layout.tensor": lambda degree: _("tensor {value}").format(value=degree),
    "layout.pipeline": lambda degree: _("pipeline {value}").format(value=degree),
    "layout.virtual_stages": lambda count: _("{value} chunks of layers a stage").format(value=count),
    "layout.micro_batch": lambda size: _("micro-batch {size}").format(size=size),
    "layout.global_batch": lambda count: ngettext("{count} sequence a step", "{count} sequences a step", count).format(
        count=f"{count:,}"
    ),
    "layout.zero_stage": lambda stage: _("ZeRO {value}").format(value=stage),
    "layout.recompute": lambda kind: {
        "none": _("nothing recomputed"),
        "selective": _("attention recomputed"),
        "full": _("all activations recomputed"),
    }[kind],
    "layout.recompute_modules": lambda names: _("{names} recomputed").format(names=names.replace(" ", ", ")),
    "layout.sequence_parallel": lambda is_so: _("sequence parallel") if is_so else _("not sequence parallel"),
    "layout.precision": str,
    "layout.schedule": lambda name: _("schedule {name}").format(name=name),
    "layout.context": lambda degree: _("each sequence over {count} ranks").format(count=degree),
    "layout.expert": lambda degree: _("experts over {count} ranks").format(count=degree),
    "layout.expert_tensor": lambda degree: _("each expert over {count} ranks").format(count=degree),
    "layout.shard": lambda count: _("shards of {count} ranks").format(count=count),
    "layout.reshard": lambda is_so: (
        _("parameters gathered again backwards") if is_so else _("parameters kept for the backward pass")
    ),
    "layout.tuned_attention": lambda is_so: (
        _("attention by Transformer Engine") if is_so else _("attention by PyTorch or FlashAttention 2")
    ),
    "layout.compiled": lambda is_so: _("compiled") if is_so else _("not compiled"),
    "layout.optimizer": lambda name: _("optimizer {name}").format(name=name),
    "layout.weights": lambda kind: {
        "master": _("a copy of weights in fp32"),
        "autocast": _("weights in fp32, cast for products"),
        "pure": _("no weights in fp32"),
    }[kind],
    "layout.fused": lambda is_so: _("fused kernels") if is_so else _("PyTorch's own operators"),
    "layout.secondary_shard": lambda count: _("a second copy over {count} ranks").format(count=count),
    "layout.quantized_weights": lambda is_so: _("parameters sent in 8 bits") if is_so else _("parameters sent whole"),
    "layout.quantized_gradients": lambda is_so: _("gradients sent in 4 bits") if is_so else _("gradients sent whole"),
    "layout.bucketed": lambda is_so: _("gradients in buckets besides") if is_so else _("no buckets besides"),
    "layout.offload": lambda kind: {
        "none": _("nothing in host memory"),
        "optimizer": _("optimizer in host memory"),
        "gradients": _("optimizer and gradients in host memory"),
        "parameters": _("parameters in host memory"),
        "all": _("optimizer, gradients and parameters in host memory"),
    }[kind],
    "layout.offload_activations": lambda is_so: (
        _("activations in host memory") if is_so else _("activations on the GPU")
    ),
    "layout.overlap": lambda is_so: (
        _("gradients travel while others are made") if is_so else _("gradients travel last")
    ),
    "layout.tensor_overlap": lambda is_so: (
        _("tensors travel during products") if is_so else _("tensors travel between products")
    ),
    "layout.bytes_per_gradient": lambda size: _("{size} bytes a gradient").format(size=size),
    "layout.peak_flops": lambda rate: _("peak {rate} TFLOP/s").format(rate=f"{rate / 1e12:,.4g}"),
}
_LEARNED: _Words = {
    "calibration.compute": lambda times: _("computing ×{factor}").format(factor=f"{times:.3g}"),
    "calibration.traffic": lambda times: _("traffic ×{factor}").format(factor=f"{times:.3g}"),
    "calibration.time_spread": lambda spread: _("steps ±{spread}").format(spread=f"{spread:.0%}"),
    "calibration.time_jobs": lambda jobs: _learned_from(jobs),
    "calibration.memory_factor": lambda times: _("memory ×{factor}").format(factor=f"{times:.3g}"),
    "calibration.memory_bytes": lambda size: _("memory {size} GB").format(size=f"{size / 1e9:+.2f}"),
    "calibration.memory_spread": lambda spread: _("memory ±{spread}").format(spread=f"{spread:.0%}"),
    "calibration.memory_jobs": lambda jobs: _learned_from(jobs),
}
WORDS: _Words = {**_MODEL, **_HARDWARE, **_EFFICIENCY, **_LAYOUT, **_LEARNED}
"""By the input's name; one without words is told by its name."""
