"""Calculon and llm-analysis, asked for the measured rows in their own terms; nothing of them is kept here.

Both get a row's shape, batches, degrees, recomputation, GPU and links as ours does; a row with what one does not know
is left to it, and why is told. Where it is open how to say a thing to one, it is said so that it misses the half `fit`
least.

Calculon has its shipped a100_80g or h100_80g_nvl8, whichever peak is nearer: peaks and bandwidths times what our table
has of the row's GPU by what it has of theirs (1 for the very GPU), efficiencies as shipped, between nodes the row's own
network. `feedforward` is such that a layer's weights, and so its operations, are the row's: 1.5 × ffn with a gate, less
what fewer heads of keys and values save. float16 stands for bf16. It knows no vocabulary (logits cost nothing), no
mask and no flash attention: of a row with that, memory is as if attention were computed again (`attn_only`), which
keeps no s² matrix either, and time as if it were not, which is nearer. ZeRO 1 and 2 are its sharded optimizer, and so
is ZeRO 3, which it lacks: such rows are told by themselves too, and not judged by memory. Activations are fused;
sequence parallelism is `rs_ag` with the gathering done again, as in its own validation; overlap of tensor parallelism
is `ring`; gradients do not overlap, as in all its examples: it takes longer with overlap where memory bounds a layer.
As in its own validation memory has no limit, so that a step that does not fit has a time too.

llm-analysis has the GPUs' figures by our table, which to three digits are those that it ships (A100, H100, V100), a
node's network being that of its GPUs together; ZeRO by stage, replicas of shards, dropout, and flash attention as the
row has them. It has no bubble, so that schedules and virtual stages do not count. Its efficiencies are 1 by default.
"""

from __future__ import annotations

import importlib
import json
import logging
import re
import sys
from copy import deepcopy
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.estimates import Run
from dttui.planning.cost.hardware import GpuType, gpu_table

SHIPPED = {"A100-80GB": "a100_80g.json", "H100-80GB": "h100_80g_nvl8.json"}
"""Calculon's systems by our name of their GPU."""
ZERO_3 = "ZeRO 3 as a sharded optimizer"
NO_LIMIT_GIB = 8e10
"""Memory in Calculon's own a100_80e, by which it is validated."""


@dataclass(frozen=True)
class Answer:
    """What an estimator says of a row."""

    step_s: float
    memory_bytes: float
    nearest: str | None = None
    """What of the row it knows only something near of."""


class Estimator(Protocol):
    """Another's estimate of a row, or why it has none."""

    def answer(self, run: Run) -> Answer | str: ...


class Calculon:
    """Calculon, of a directory."""

    def __init__(self, directory: Path) -> None:
        self._package = _imported(directory, "calculon", "https://github.com/calculon-ai/calculon")
        self._shipped: dict[str, Any] = {}
        for gpu, name in SHIPPED.items():
            path = directory / "systems" / name
            if not path.is_file():
                sys.exit(f"{path} is missing: give --calculon a whole clone of github.com/calculon-ai/calculon")
            self._shipped[gpu] = json.loads(path.read_text(encoding="utf-8"))

    def answer(self, run: Run) -> Answer | str:
        if (why := self._unknown(run)) is not None:
            return why
        recompute = {"none": "none", "selective": "attn_only", "full": "full"}[run.layout.recompute]
        keeps_no_scores = recompute == "none" and run.shape.attention == "flash"
        try:
            model = self._model(run, recompute)
            kept = self._model(run, "attn_only") if keeps_no_scores else model
        except (AssertionError, self._package.llm.Llm.Error) as error:
            return f"its own check: {_without_figures(error)}"
        nearest = ZERO_3 if run.layout.zero_stage == 3 and run.layout.data > 1 else None
        return Answer(model.get_total_time(), kept.get_mem_tier1_cap_req(), nearest)

    def _model(self, run: Run, recompute: str) -> Any:
        llm = self._package.llm.Llm
        model = llm(llm.Application(self._application(run)), logging.getLogger("calculon"))
        system = self._package.System(self._system(run))
        model.compile(system, llm.Execution.from_json(self._execution(run, recompute)))
        model.run(system)
        return model

    @staticmethod
    def _unknown(run: Run) -> str | None:
        if run.shape.experts is not None:
            return "experts"
        if run.layout.schedule != "1F1B":
            return "zero-bubble schedules"
        return _unknown_to_both(run)

    @staticmethod
    def _application(run: Run) -> dict[str, int]:
        shape, tensor = run.shape, run.layout.tensor
        attention = 4 * shape.hidden_size * shape.query_size
        feed_forward = (shape.layer_weights - attention) / (2 * shape.hidden_size)
        return {
            "hidden": shape.hidden_size,
            "feedforward": round(feed_forward / tensor) * tensor,
            "seq_size": shape.seq_length,
            "attn_heads": shape.heads,
            "attn_size": round(shape.query_size / shape.heads),
            "num_blocks": shape.layers,
        }

    @staticmethod
    def _execution(run: Run, recompute: str) -> dict[str, Any]:
        layout, linked = run.layout, run.hardware.linked
        sequence = layout.sequence_parallel and layout.tensor > 1
        return {
            "num_procs": layout.ranks,
            "tensor_par": layout.tensor,
            "pipeline_par": layout.pipeline,
            "data_par": layout.data,
            "tensor_par_net": int(layout.tensor > linked),
            "pipeline_par_net": int(layout.ranks > linked),
            "data_par_net": int(layout.tensor * layout.data > linked),
            "batch_size": layout.global_batch,
            "microbatch_size": layout.micro_batch,
            "datatype": "float8" if layout.precision == "fp8" else "float16",
            "fused_activation": True,
            "attention_type": "multihead",
            "activation_recompute": recompute,
            "pipeline_interleaving": layout.virtual_stages,
            "optimizer_sharding": layout.zero_stage > 0 and layout.data > 1,
            "tensor_par_comm_type": "rs_ag" if sequence else "ar",
            "tensor_par_overlap": "ring" if layout.tensor_overlap and sequence else "none",
            "seq_par_ag_redo": sequence and recompute != "full",
            "data_par_overlap": False,
            "weight_offload": False,
            "activations_offload": False,
            "optimizer_offload": False,
            "training": True,
        }

    def _system(self, run: Run) -> dict[str, Any]:
        gpu = run.hardware.gpu
        base = min((_known(name) for name in SHIPPED), key=lambda known: abs(log(_peak(gpu) / _peak(known))))
        system: dict[str, Any] = deepcopy(self._shipped[base.name])
        peaks = {"float16": _peak(gpu) / _peak(base), "float8": gpu.peak_flops("fp8") / base.peak_flops("fp8")}
        for name, kind in system["matrix"].items():
            kind["tflops"] *= peaks[name]
        for kind in system["vector"].values():
            kind["tflops"] *= gpu.fp32 / base.fp32
        system["mem1"]["GBps"] *= gpu.memory_bandwidth / base.memory_bandwidth
        system["mem1"]["GiB"] = NO_LIMIT_GIB
        link, network = system["networks"]
        link["bandwidth"] *= run.hardware.intra.bandwidth / (base.link_bandwidth * 1e9)
        link["size"] = run.hardware.linked
        link["must_be_filled"] = gpu.domain is None
        network["bandwidth"] = run.hardware.inter.bandwidth / 1e9
        return system


class LlmAnalysis:
    """llm-analysis, of a directory, with an efficiency of what it computes."""

    def __init__(self, directory: Path, flops_efficiency: float = 1.0) -> None:
        self._module = _imported(directory, "llm_analysis.analysis", "https://github.com/cli99/llm-analysis")
        self._efficiency = flops_efficiency

    def answer(self, run: Run) -> Answer | str:
        if (why := self._unknown(run)) is not None:
            return why
        module, layout = self._module, run.layout
        recompute = {"none": 0, "selective": 1, "full": 4}[layout.recompute]
        shards = layout.shard_ranks if layout.zero_stage else 1
        try:
            told = module.LLMAnalysis(
                self._model(run),
                self._gpu(run),
                parallelism_config=module.ParallelismConfig(
                    tp_size=layout.tensor,
                    pp_size=layout.pipeline,
                    dp_size=shards,
                    rdp_size=layout.data // shards,
                    ep_size=layout.expert,
                    sp_size=layout.tensor if layout.sequence_parallel else 1,
                ),
                flops_efficiency=self._efficiency,
            ).training(
                batch_size_per_gpu=layout.micro_batch,
                global_batch_size=layout.global_batch,
                seq_len=run.shape.seq_length,
                activation_recomputation=module.ActivationRecomputation(recompute),
                ds_zero=module.DSZeRO(layout.zero_stage),
                flash_attn=run.shape.attention == "flash",
                softmax_dropout=run.shape.dropout,
                **({"master_weights_dtype_bytes": 2, "other_op_bytes": 2} if layout.weights == "pure" else {}),
            )
        except AssertionError as error:
            return f"its own check: {_without_figures(error) or 'operations of attention with all heads, ffn ≠ 4 × h'}"
        return Answer(told["latency_per_iter"], told["estimated_peak_memory_per_gpu"])

    @staticmethod
    def _unknown(run: Run) -> str | None:
        shape, layout = run.shape, run.layout
        if layout.precision == "fp8":
            return "fp8"
        if shape.latent is not None or shape.shared_experts or shape.dense_layers:
            return "compressed attention, shared experts, or layers without"
        if shape.experts is not None and (layout.tensor_of_experts != layout.tensor or layout.expert > layout.data):
            return "experts over other ranks than layers"
        if shape.query_size != shape.hidden_size:
            return "heads wider than the hidden size"
        return _unknown_to_both(run)

    def _model(self, run: Run) -> Any:
        shape = run.shape
        return self._module.ModelConfig(
            name=run.name,
            num_layers=shape.layers,
            n_head=shape.heads,
            hidden_dim=shape.hidden_size,
            vocab_size=shape.vocab_size,
            max_seq_len=shape.seq_length,
            num_key_value_heads=shape.kv_heads,
            ffn_embed_dim=shape.feed_forward_size if shape.experts is None else shape.width_of_expert,
            moe_num_experts=shape.experts or 1,
            moe_top_k=shape.experts_per_token if shape.experts is not None else 1,
            mlp_gated_linear_units=shape.gated,
        )

    def _gpu(self, run: Run) -> Any:
        hardware = run.hardware
        return self._module.GPUConfig(
            name=hardware.gpu.name,
            mem_per_GPU_in_GB=hardware.gpu.memory_gib,
            hbm_bandwidth_in_GB_per_sec=hardware.gpu.memory_bandwidth,
            intra_node_bandwidth_in_GB_per_sec=hardware.intra.bandwidth / 1e9,
            intra_node_min_message_latency=8e-6,
            peak_fp16_TFLOPS=_peak(hardware.gpu) / 1e12,
            inter_node_bandwidth_in_GB_per_sec=hardware.inter.bandwidth / 1e9 * hardware.gpus_per_node,
        )


def _imported(directory: Path, module: str, address: str) -> Any:
    root = module.partition(".")[0]
    if not (directory / root / "__init__.py").is_file():
        sys.exit(f"{directory} holds no {root}: give a clone of {address}")
    sys.path.insert(0, str(directory))
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        sys.exit(f"{root} needs {error.name}: {sys.executable} -m pip install {error.name}")


def _unknown_to_both(run: Run) -> str | None:
    if run.layout.context > 1:
        return "context parallelism"
    if run.layout.recompute == "selective" and "core_attn" not in run.layout.recompute_modules:
        return "recomputation of single operations"
    return None


def _without_figures(error: Exception) -> str:
    return re.sub(r"\d[\d.]*", "…", str(error))


def _known(name: str) -> GpuType:
    found = gpu_table().find(name)
    if found is None:
        raise LookupError(name)
    return found


def _peak(gpu: GpuType) -> float:
    return gpu.peak_flops("fp16")
