"""Tells which variables the launcher of accelerate sets for configurations; run by an interpreter that has it.

stdin: a JSON object of name → text of a configuration file. stdout: `answer ` and name → the variables.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from accelerate.commands import launch as command
from accelerate.utils import launch as launching


def variables(text: str) -> dict[str, str]:
    """Return what the launcher adds to the environment of the ranks."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.yaml"
        path.write_text(text)
        args = command.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
        # It has no public name, and nothing else reads a file into the options.
        args, defaults, precision_is_of_file = command._validate_launch_command(args)  # noqa: SLF001
    args.main_process_port = 0  # Any that is free.
    if args.use_deepspeed and not args.cpu:
        fields = [*defaults.deepspeed_config, *(["mixed_precision"] if precision_is_of_file else [])]
        args.deepspeed_fields_from_accelerate_config = ",".join(fields)
        found = launching.prepare_deepspeed_cmd_env(args)[1]
    elif (args.use_fsdp or args.use_megatron_lm or args.multi_gpu) and not args.cpu:
        found = launching.prepare_multi_gpu_env(args)
    else:
        found = launching.prepare_simple_launcher_cmd_env(args)[1]
    return {name: value for name, value in found.items() if os.environ.get(name) != value}


launching.is_fp8_available = lambda: True
print("answer " + json.dumps({name: variables(text) for name, text in json.load(sys.stdin).items()}))
