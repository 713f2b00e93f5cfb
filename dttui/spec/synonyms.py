"""Other words for keys and values of a job file: abbreviations, those of other programs, and Chinese ones."""

from __future__ import annotations

from collections.abc import Iterable

from dttui.spec.entry_points import ALSO_CALLED

_WORDS = {
    "data_parallel": ("ddp", "dp", "数据并行"),
    "model_parallel": ("模型并行",),
    "pipeline_parallel": ("流水线并行",),
    "hybrid": ("混合并行", "3d"),
    "data_parallel_size": ("dp", "dp_size"),
    "tensor_parallel_size": ("tp", "tp_size", "张量并行"),
    "pipeline_parallel_size": ("pp", "pp_size"),
    "recomputation": ("activation_checkpointing", "gradient_checkpointing", "checkpointing"),
    "virtual_stages": ("vpp", "chunks"),
    "micro_batch_size": ("mbs",),
    "batch_size": ("gbs", "批次大小"),
    "master": ("chief", "head", "leader", "主节点"),
    "worker": ("slave", "工作节点", "训练节点"),
    "parameter_server": ("ps", "参数服务器"),
    "id": ("name", "host", "hostname", "node"),
    "count": ("gpus", "num", "number"),
    "ids": ("gpu_ids", "indices", "indexes", "devices", "cuda_visible_devices"),
    "fp32": ("float32", "float", "full"),
    "fp16": ("float16", "half", "16"),
    "bf16": ("bfloat16",),
    "WARN": ("error", "警告"),
    "args": ("arguments", "argv"),
    "workdir": ("cwd", "dir", "directory"),
    "max_restarts": ("retries", "restarts"),
    "settings": ("training", "hyperparameters", "hparams", "params", "训练"),
    "name": ("title", "job_name", "名称"),
    "framework": ("launcher", "框架"),
    "cluster": ("集群",),
    "nodes": ("hosts", "节点"),
    "strategy": ("parallelism", "策略"),
    "communication": ("通信",),
    "resources": ("资源",),
    "monitoring": ("监控",),
    "model": ("模型",),
    "dataset": ("data", "数据集"),
    **ALSO_CALLED,
    "lost": ("dead", "down", "gone", "offline"),
    "failed": ("crashed", "dead", "died", "error"),
}


def meant(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that another is a name for; `None` where it is of none."""
    folded = word.casefold().replace("-", "_")
    return next((item for item in known if folded in _WORDS.get(item, ())), None)
