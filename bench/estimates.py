"""Holds estimates against what others have measured: `python bench/estimates.py`.

The rows are in bench/measured_runs: one half of them by default, which the constants may be fitted to; the other half,
`--half end`, is for the end.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from dttui.planning.cost.hardware import Hardware, Interconnect, default_links, gpu_table
from dttui.planning.cost.layout import Layout, Recompute, Schedule
from dttui.planning.cost.memory import MemoryEstimate, memory_per_gpu
from dttui.planning.cost.shape import ModelShape, exact_count
from dttui.planning.cost.step_time import TimeEstimate, step_time
from dttui.spec.models import LatentAttention

RUNS = Path(__file__).parent / "measured_runs"
_STAGES = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3, "hsdp": 3, None: 0}
_RECOMPUTES: dict[str | None, Recompute] = {"full": "full", "selective": "selective", "per-op": "selective"}
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

    @property
    def time(self) -> TimeEstimate:
        return step_time(self.shape, self.layout, self.hardware)

    @property
    def memory(self) -> MemoryEstimate:
        return memory_per_gpu(self.shape, self.layout)


def runs(half: str) -> tuple[list[Run], dict[str, int]]:
    """Return the rows that estimates know all of, and how many they do not, by what it is."""
    found: list[Run] = []
    left: dict[str, int] = defaultdict(int)
    for row in yaml.load((RUNS / f"{half}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader):
        if (why := _unknown(row)) is not None:
            left[why] += 1
        else:
            found.append(_run(row))
    return found, dict(left)


def _unknown(row: dict[str, Any]) -> str | None:
    layout = row["layout"]
    if row["model"]["kind"] == "cnn":
        return "no transformer"
    if layout.get("schedule") == "DualPipe":
        return "DualPipe"
    if row["task"] in ("lora", "qlora"):
        return row["task"]
    if row.get("offload"):
        return "offload"
    return None


def _run(row: dict[str, Any]) -> Run:
    model, gpu, layout = row["model"], row["gpu"], row["layout"]
    measured = row["measured"]
    step_s = measured.get("step_s") or (row.get("derived") or {}).get("step_s")
    memory = measured.get("memory_gib", 0) * 2**30 or measured.get("memory_gb", 0) * 1e9
    return Run(
        row["id"],
        row["group"],
        _shape(row, model),
        _layout(row, layout, gpu),
        _hardware(row, gpu),
        step_s,
        memory or None,
    )


def _shape(row: dict[str, Any], model: dict[str, Any]) -> ModelShape:
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
        **_experts(model),
    )
    return replace(blank, parameters=model.get("params") or exact_count(blank))


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
        layout.get("vp") or 1,
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
        expert_tensor=layout.get("etp") or 1,
        shard=layout.get("shard_group"),
        schedule=_SCHEDULES.get(layout.get("schedule"), "1F1B"),
        compiled=bool(row.get("compile")),
        reshard=not (row["framework"].startswith(_KEEPS_PARAMETERS) and pipeline > 1),
        tuned_attention=row["framework"].startswith(_TRANSFORMER_ENGINE) and "zero-bubble" not in row["framework"],
    )


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
    return Hardware(found, gpu["count"], per_node, intra, inter)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=["fit", "end"], default="fit")
    parser.add_argument("--rows", action="store_true", help="each row")
    options = parser.parse_args()
    found, left = runs(options.half)
    errors: dict[str, list[float]] = defaultdict(list)
    for run in found:
        if run.step_s is not None:
            ratio = run.time.value / run.step_s
            errors[run.group].append(ratio)
            if options.rows:
                parts = " ".join(f"{name}={part / run.time.value:.0%}" for name, part in run.time.parts.items() if part)
                print(f"{ratio:5.2f} {run.step_s:8.2f} s {run.name} {parts}")
    for group, ratios in sorted(errors.items()):
        print(f"{statistics.median(ratios):5.2f} {min(ratios):5.2f} {max(ratios):5.2f} {len(ratios):3} {group}")
    ratios = [item for items in errors.values() for item in items]
    print(f"{len(ratios)} rows: mean error {statistics.mean(abs(item - 1) for item in ratios):.1%}; left out: {left}")


if __name__ == "__main__":
    main()
