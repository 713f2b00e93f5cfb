"""What DeepSpeed itself knows: the keys of its configuration, its optimizers and schedules, as of 0.19.8."""

from __future__ import annotations

from typing import Literal

BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""Samples a step, samples a micro-batch and micro-batches a step: the product of the last two and the ranks is one."""
BLOCKS = (
    "activation_checkpointing",
    "aio",
    "autotuning",
    "bf16",
    "checkpoint",
    "comet",
    "comms_logger",
    "compile",
    "csv_monitor",
    "data_efficiency",
    "data_types",
    "datastates_ckpt",
    "expert_parallel",
    "flops_profiler",
    "fp16",
    "hybrid_engine",
    "optimizer",
    "pipeline",
    "scheduler",
    "tensor_parallel",
    "tensorboard",
    "timers",
    "torch_autocast",
    "wandb",
    "weight_quantization",
    "zero_optimization",
)
"""Keys whose value is a mapping. DeepSpeed 0.19.8: deepspeed/runtime/config.py, and what it imports."""
VALUES = (
    *BATCH_KEYS,
    "communication_data_type",
    "data_parallel_size",
    "dataloader_drop_last",
    "disable_allgather",
    "disable_python_gc",
    "dump_state",
    "gradient_allreduce_op",
    "gradient_clipping",
    "gradient_predivide_factor",
    "log_level",
    "managed_gradient_accumulation",
    "memory_breakdown",
    "prescale_gradients",
    "seq_parallel_communication_data_type",
    "sequence_parallel_size",
    "steps_per_print",
    "use_data_before_expert_parallelism",
    "vocabulary_size",
    "wall_clock_breakdown",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
)
"""Keys whose value is a single one. DeepSpeed 0.19.8: deepspeed/runtime/config.py and deepspeed/__init__.py."""
KNOWN_KEYS = tuple(sorted((*BLOCKS, *VALUES)))
"""All keys at the top of a ds_config.json that DeepSpeed reads; it passes over any other without a word."""

OptimizerType = Literal[
    "Adagrad",
    "Adam",
    "AdamW",
    "Lamb",
    "Lion",
    "MuAdam",
    "MuAdamW",
    "MuSGD",
    "Muon",
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
]
"""Optimizers of DeepSpeed (DEEPSPEED_OPTIMIZERS of deepspeed/runtime/config.py), then those of torch.optim."""
SchedulerType = Literal["LRRangeTest", "OneCycle", "WarmupCosineLR", "WarmupDecayLR", "WarmupLR"]
"""Schedules (VALID_LR_SCHEDULES of deepspeed/runtime/lr_schedules.py)."""
