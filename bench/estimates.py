"""Measured runs of others, in the terms of the estimate; `python bench/accuracy.py` holds estimates against them.

They are in bench/measured_runs: one half of them, `fit`, which the constants may be fitted to, and `end`, which they
may not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from dttui.planning.cost.assumptions import ModelClaim, assume_shape
from dttui.planning.cost.efficiency import efficiency_of
from dttui.planning.cost.hardware import Hardware, Interconnect, default_links, gpu_table
from dttui.planning.cost.layout import Layout, Offload, Recompute, Schedule
from dttui.planning.cost.memory import MemoryEstimate, memory_per_gpu
from dttui.planning.cost.shape import ModelShape, exact_count
from dttui.planning.cost.step_time import TimeEstimate, step_time
from dttui.spec.lora import Lora
from dttui.spec.models import LatentAttention

RUNS = Path(__file__).parent / "measured_runs"
_STAGES = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3, "hsdp": 3, None: 0}
_RECOMPUTES: dict[str | None, Recompute] = {"full": "full", "selective": "selective", "per-op": "selective"}
_PURE = "NeMo AutoModel", "torchtune"
"""Programs that train in the precision of the checkpoint (`torch_dtype: auto`, `dtype: bf16`), moments too."""
_MODULES: dict[str, frozenset[str]] = {
    "layernorm": frozenset({"layernorm"}),
    "moe": frozenset({"moe"}),
    "moe_act": frozenset({"moe_act"}),
    "mlp": frozenset({"mlp"}),
    "mla_up_proj": frozenset({"mla_up_proj"}),
    "norm": frozenset({"layernorm"}),
    "act": frozenset({"mlp_act", "moe_act"}),
    "RMSNorm and MLA up-projections": frozenset({"layernorm", "mla_up_proj"}),
    "per-op": frozenset({"products"}),
    "per op": frozenset({"products"}),
    "minimal_with_context": frozenset({"layernorm", "mlp_act"}),
    "save_dot_with_context_except_mlp": frozenset({"layernorm", "mlp"}),
}
"""What rows say of recomputation by operation; the last two are what MaxText keeps no result of."""
_KEEPS_PARAMETERS = "torchtitan"
"""Program that keeps a layer's parameters from its forward to its backward pass where it has a pipeline."""
_SCHEDULES: dict[str | None, Schedule] = {
    "zero-bubble, memory of 1F1B": "ZB-H1",
    "zero-bubble, memory of 2 × 1F1B": "ZB-H2",
}
_TRANSFORMER_ENGINE = ("NeMo", "Megatron-Bridge", "Megatron Core", "Megatron-LM", "Primus")
"""Programs whose attention is Transformer Engine's."""
_WAITS = ("nanotron", "InternEvo")
"""Programs that reduce gradients after the backward pass."""
_OVERLAPS_TENSORS = ("NeMo", "Megatron-Bridge", "Megatron Core", "Megatron-LM (Megatron Core")
"""Programs whose recipes have `tp_comm_overlap`; of torchtitan's runs those by asynchronous tensor parallelism do."""


@dataclass(frozen=True)
class Run:
    """A row, in the terms of the estimate."""

    name: str
    group: str
    shape: ModelShape
    layout: Layout
    hardware: Hardware
    step_s: float | None
    memory_bytes: float | None
    unsaid: frozenset[str] = frozenset()
    """What of the layout the source does not say, so that the usual is taken."""

    @property
    def time(self) -> TimeEstimate:
        return step_time(self.shape, self.layout, self.hardware)

    @property
    def memory(self) -> MemoryEstimate:
        return memory_per_gpu(self.shape, self.layout)

    @property
    def is_called_impossible(self) -> bool:
        """Whether it fits its GPUs in no way that the source leaves open."""
        least = self.layout
        if "recompute" in self.unsaid:
            least = replace(least, recompute="full")
        if "optimizer" in self.unsaid:
            least = replace(least, optimizer="adam-8bit", gradient_bytes=0)
        return memory_per_gpu(self.shape, least).low > self.hardware.gpu.memory_bytes


def runs(half: str) -> tuple[list[Run], dict[str, int]]:
    """Return the rows that estimates know all of, and how many they do not, by what it is."""
    found: list[Run] = []
    left: dict[str, int] = defaultdict(int)
    for row in yaml.load((RUNS / f"{half}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader):
        if (why := _unknown(row)) is not None:
            left[why] += 1
        elif _beyond_peak(run := _run(row)):
            left["more operations than the GPUs' peak"] += 1
        else:
            found.append(run)
    return found, dict(left)


def _unknown(row: dict[str, Any]) -> str | None:
    layout: dict[str, Any] = row["layout"]
    offload: dict[str, Any] = row.get("offload") or {}
    if layout.get("schedule") == "DualPipe":
        return "DualPipe"
    if "peft" in row and row["peft"]["rank"] is None:
        return "adapters whose rank is not said"
    if "activations_layers" in offload or "expert" in str(offload.get("activations")):
        return "some activations on the host"
    if row["framework"].startswith("NVIDIA DeepLearningExamples") and row.get("seq") == 512:
        # Its README: "Binned pretraining for phase2 with LDDL using a bin size of 64".
        return "sequences of many lengths"
    return None


def _run(row: dict[str, Any]) -> Run:
    model, gpu, layout = row["model"], row["gpu"], row["layout"]
    measured = row["measured"]
    step_s = measured.get("step_s") or (row.get("derived") or {}).get("step_s")
    if "images_per_s" in measured:
        step_s = row["global_batch"] / measured["images_per_s"]
    memory = measured.get("memory_gib", 0) * 2**30 or measured.get("memory_gb", 0) * 1e9
    return Run(
        row["id"],
        row["group"],
        _shape(row, model),
        _layout(row, layout, gpu),
        _hardware(row, gpu),
        step_s,
        memory or None,
        _unsaid(row),
    )


def _beyond_peak(run: Run) -> bool:
    """Whether a row, taken at its word, computes more than its GPUs can."""
    if run.step_s is None:
        return False
    operations = run.shape.flops(run.layout.global_batch, recompute=run.layout.recompute == "full")
    return operations / run.hardware.gpus / run.step_s > run.hardware.gpu.peak_flops(run.layout.precision)


def _unsaid(row: dict[str, Any]) -> frozenset[str]:
    unsaid = set(row["incomplete"])
    if (row.get("recompute") == "selective" and "not said" in (row.get("recompute_detail") or "")) or not _modules(row):
        unsaid.add("recompute")
    if row["task"] != "pretrain" and "optimizer" not in row:
        unsaid.add("optimizer")
    return frozenset(unsaid)


def _shape(row: dict[str, Any], model: dict[str, Any]) -> ModelShape:
    if model["kind"] == "cnn":
        return assume_shape(ModelClaim(name="resnet-50"))[0]
    tied = bool(model.get("tied", True))
    blank = ModelShape(
        model["layers"],
        model["hidden"],
        model["heads"],
        row["seq"],
        model["vocab"],
        1.0,
        model.get("kv_heads"),
        model.get("head_dim"),
        model.get("ffn"),
        bool(model.get("gated")),
        tied,
        row.get("attention") or "flash",
        model["kind"] in ("dense", "moe"),
        dropout=model["kind"] == "encoder",
        lora=_lora(row["peft"]) if "peft" in row else None,
        **_experts(model),
    )
    return replace(blank, parameters=model.get("params") or exact_count(blank))


def _lora(peft: dict[str, Any]) -> Lora:
    """Return the adapters; programs that train all but one product are taken to train all."""
    targets: Literal["all", "attention"] = "attention" if peft["targets"].startswith("attention") else "all"
    return Lora(rank=peft["rank"], targets=targets, bits=4 if peft["bits"] == 4 else None)


def _experts(model: dict[str, Any]) -> dict[str, Any]:
    """Return what a shape has of experts and of compressed attention."""
    told: dict[str, Any] = {}
    if (experts := model.get("experts")) is not None:
        shared, size = experts.get("shared") or 0, experts["ffn"]
        if shared and experts.get("shared_ffn"):
            shared = round(experts["shared_ffn"] / size)
        told = {
            "experts": experts["count"],
            "experts_per_token": experts["per_token"],
            "expert_size": size,
            "shared_experts": shared,
            "dense_layers": experts.get("dense_layers") or 0,
        }
    if (latent := model.get("mla")) is not None:
        told["latent"] = LatentAttention(
            q_rank=latent.get("q_lora_rank"),
            kv_rank=latent["kv_lora_rank"],
            head_size=latent["qk_nope_head_dim"],
            rope_size=latent["qk_rope_head_dim"],
            value_size=latent["v_head_dim"],
        )
    return told


def _layout(row: dict[str, Any], layout: dict[str, Any], gpu: dict[str, Any]) -> Layout:
    tensor, pipeline = layout.get("tp") or 1, layout.get("pp") or 1
    context = layout.get("cp") or 1
    data = layout.get("dp") or gpu["count"] // (tensor * pipeline * context)
    micro = row.get("micro_batch") or 1
    return Layout(
        data,
        tensor,
        pipeline,
        layout.get("vp") or (2 if layout.get("schedule") == "interleaved" else 1),
        micro,
        row.get("global_batch") or data * micro,
        _STAGES[layout.get("sharding")],
        _RECOMPUTES.get(row.get("recompute"), "none"),
        layout.get("sequence_parallel", tensor > 1),
        row["precision"],
        overlap=not row["framework"].startswith(_WAITS),
        tensor_overlap=row["framework"].startswith(_OVERLAPS_TENSORS) or "asynctp" in row["id"],
        context=context,
        expert=layout.get("ep") or 1,
        expert_tensor=layout.get("etp") or (1 if (layout.get("ep") or 1) > 1 else None),
        shard=layout.get("shard_group"),
        schedule=_SCHEDULES.get(layout.get("schedule"), "1F1B"),
        compiled=bool(row.get("compile")),
        reshard=not (row["framework"].startswith(_KEEPS_PARAMETERS) and pipeline > 1),
        recompute_modules=_modules(row),
        offload=_offload(row),
        offload_activations=(row.get("offload") or {}).get("activations") == "cpu",
        optimizer="adam-8bit" if "8bit" in (row.get("optimizer") or "") else "adam",
        weights="pure" if row["framework"].startswith(_PURE) else "master",
        gradient_bytes=_gradient_bytes(row),
        tuned_attention=row["framework"].startswith(_TRANSFORMER_ENGINE) and "zero-bubble" not in row["framework"],
    )


def _offload(row: dict[str, Any]) -> Offload:
    if "params" in (row.get("offload") or {}):
        return "all"
    return "optimizer" if "Paged" in (row.get("optimizer") or "") else "none"


def _gradient_bytes(row: dict[str, Any]) -> int | None:
    """None where each gradient is used up in the backward pass; two where the recipes reduce them in bf16."""
    if "step in the backward pass" in (row.get("optimizer") or ""):
        return 0
    return 2 if "grad_reduce_in_fp32 False" in row.get("notes", "") else None


def _modules(row: dict[str, Any]) -> frozenset[str]:
    if row.get("recompute") != "per-op":
        return frozenset({"core_attn"})
    detail = row.get("recompute_detail") or ""
    told = re.sub(r"\(.*|^modules ", "", detail) if "selective, per op" not in detail else "per op"
    found = [_MODULES[name] for name in _MODULES if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w])", told)]
    return frozenset().union(*found)


def _hardware(row: dict[str, Any], gpu: dict[str, Any]) -> Hardware:
    found = gpu_table().find(gpu["type"], gpu["memory_gb"] * 2**30 if gpu.get("memory_gb") else None)
    if found is None:
        raise LookupError(gpu["type"])
    if "bandwidth_tb_s" in gpu:
        found = found.model_copy(update={"memory_bandwidth": 1000 * gpu["bandwidth_tb_s"]})
    per_node = min(gpu.get("per_node") or 8, gpu["count"])
    intra, inter = default_links(found)
    if (told := _network(row.get("network") or "", per_node)) is not None:
        inter = Interconnect(told, inter.latency_s)
    limit = gpu["power_w"] / found.power if "power_w" in gpu and found.power else 1.0
    return Hardware(found, gpu["count"], per_node, intra, inter, measured=efficiency_of(found.type).limited(limit))


def _network(told: str, per_node: int) -> float | None:
    """Return bytes a second a GPU, where the row says them."""
    told = told.replace(",", "")
    if match := re.search(r"(\d+) × (\d+) Gbit/s", told):
        return int(match[1]) * int(match[2]) * 1e9 / 8 / per_node
    if match := re.search(r"(\d+) Gbit/s a GPU", told):
        return int(match[1]) * 1e9 / 8
    if match := re.search(r"(\d+) Gbit/s a node", told):
        return int(match[1]) * 1e9 / 8 / per_node
    return None
