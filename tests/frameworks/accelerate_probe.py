"""What an `Accelerator` of an unmodified script sees, as JSON from each rank; `--as-if-gpus` where there are none.

accelerate distributes by FSDP only on GPUs: as if there were some, its state is what it would be there, and the ranks
meet by gloo. DeepSpeed, told to use CPUs, would compile an operator first.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec

import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin, InitProcessGroupKwargs

handlers = []
if "--as-if-gpus" in sys.argv:
    os.environ.pop("ACCELERATE_USE_CPU", None)  # What dttui says to ranks without GPUs, as in the next line.
    os.environ["DS_ACCELERATOR"] = "cuda"
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 8
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda device: None
    torch.cuda.get_device_name = lambda *_: "as if"
    torch.cuda.is_bf16_supported = lambda *_: True
    torch.distributed.init_process_group("gloo")  # DeepSpeed would name a device that there is not.
    handlers = [InitProcessGroupKwargs(backend="gloo")]
if find_spec("transformers") is None:
    DeepSpeedPlugin.set_deepspeed_weakref = lambda self: None  # By which it tells transformers what it was told.
accelerator = Accelerator(kwargs_handlers=handlers)
state = accelerator.state
fsdp = getattr(state, "fsdp_plugin", None)
deepspeed = state.deepspeed_plugin if state.deepspeed_plugins else None
told = {
    "distributed_type": str(state.distributed_type.value),
    "processes": state.num_processes,
    "mixed_precision": state.mixed_precision,
    "compiled": str(state.dynamo_plugin.backend.value),
    "accumulation": accelerator.gradient_accumulation_steps,
}
if fsdp is not None:
    told["fsdp"] = {
        "version": fsdp.fsdp_version,
        "sharding": str(fsdp.sharding_strategy),
        "reshard": str(fsdp.reshard_after_forward),
        "wrap": getattr(fsdp.auto_wrap_policy, "__name__", None),
        "classes": fsdp.transformer_cls_names_to_wrap,
        "least": fsdp.min_num_params,
        "offload": str(fsdp.cpu_offload),
        "state_dict": str(fsdp.state_dict_type),
        "checkpointing": fsdp.activation_checkpointing,
        "prefetch": str(fsdp.backward_prefetch),
        "original": fsdp.use_orig_params,
        "sync": fsdp.sync_module_states,
        "efficient": fsdp.cpu_ram_efficient_loading,
        "precision": str(fsdp.mixed_precision_policy),
    }
if deepspeed is not None:
    told["deepspeed"] = {
        "stage": deepspeed.zero_stage,
        "offload": [deepspeed.offload_optimizer_device, deepspeed.offload_param_device],
        "clipping": deepspeed.gradient_clipping,
        "steps": deepspeed.gradient_accumulation_steps,
        "init": deepspeed.zero3_init_flag,
        "save": deepspeed.zero3_save_16bit_model,
        "config": {
            key: value
            for key, value in deepspeed.deepspeed_config.items()
            if key not in ("distributed", "steps_per_print")
        },
    }
print("told " + json.dumps(told), flush=True)
