"""Reads command lines as Megatron-LM does: a JSON list of {argv, env} comes in, what each became goes out.

Runs in an interpreter with torch, with megatron-core and its `megatron.training` on the path. The names that the parser
knows go out as well.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator  # noqa: E402 - after the filter
from megatron.training import arguments  # noqa: E402 - after the filter


def read(argv: list[str], env: dict[str, str]) -> dict[str, Any]:
    """Parse and validate; make the model's configuration and the number of micro-batches of it, as a training would."""
    os.environ.update(env)
    sys.argv = ["pretrain_gpt.py", *argv]
    args = arguments.validate_args(arguments.parse_args())
    config = arguments.core_transformer_config_from_args(args)
    batches = ConstantNumMicroBatchesCalculator(
        args.global_batch_size, args.micro_batch_size, args.data_parallel_size, False, args.rank
    )
    plain = {key: value for key, value in vars(args).items() if isinstance(value, (str, int, float, list, type(None)))}
    return {
        **plain,
        "params_dtype": str(config.params_dtype),
        "num_micro_batches": batches.get(),
        "config": {"tensor": config.tensor_model_parallel_size, "recompute": config.recompute_granularity},
    }


def main() -> None:
    # Asked of the GPU; 9 is Hopper.
    arguments.get_device_arch_version = lambda: 9
    answers: list[dict[str, Any]] = []
    with contextlib.redirect_stdout(sys.stderr):
        for line in json.load(sys.stdin):
            try:
                answers.append(read(**line))
            except (AssertionError, ValueError, SystemExit) as error:
                answers.append({"refused": f"{type(error).__name__}: {error}"})
        parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    names = {
        option.removeprefix("--"): action.nargs != 0
        for action in parser._actions  # noqa: SLF001 - argparse tells them nowhere else
        for option in action.option_strings
        if option.startswith("--") and option != "--help"
    }
    json.dump({"answers": answers, "takes_value": names}, sys.stdout)


if __name__ == "__main__":
    main()
