"""Where the settings of a run come from: the command line, else DTTUI_CONFIG, else the defaults here."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

OWN = ("steps", "epochs", "seed", "checkpoint_every")
"""Settings of a job that are options here; recipe.py reads the others."""
OF_JOB: dict[str, Any] = {}
"""What the job says, where dttui does not start this: `dttui init --from` writes it here."""


def refuse(message: str) -> NoReturn:
    """End this process with exit code 2: what was asked for cannot be done."""
    print(f"train.py: error: {message}", file=sys.stderr)
    raise SystemExit(2)


def read_options() -> argparse.Namespace:
    """Read and check the settings of this run."""
    parser = argparse.ArgumentParser(prog="train.py", description="Train a small GPT on the bytes of a text.")
    add = parser.add_argument
    add("--text", type=Path, default=Path(__file__).parent, help="a text file, or a directory with a corpus.txt")
    add("--steps", type=_positive, help="optimizer steps of the whole run (100)")
    add("--epochs", type=_positive, help="how often the whole text is gone through, where nothing says the steps")
    add("--batch-size", type=_positive, default=16, help="samples a step, shared out among all ranks (%(default)s)")
    add("--shares", type=_shares, help="samples of each rank in a step, 6,2,8; without it as equal as can be")
    add("--tell-speed", action="store_true", help="report how many samples a second each rank computes by itself")
    add("--block-size", type=_positive, default=64, help="bytes a sample (%(default)s)")
    add("--layers", type=_positive, default=2, help="(%(default)s)")
    add("--heads", type=_positive, default=4, help="(%(default)s)")
    add("--width", type=_positive, default=96, help="a multiple of --heads (%(default)s)")
    add("--lr", type=float, help="highest learning rate, after the warm-up (0.005)")
    add("--seed", type=int, default=0, help="of the first weights, and of the data without --data-seed (%(default)s)")
    add("--data-seed", type=int, help="of the choice of samples")
    add("--sharding", type=_sharding, default="random", help="how samples are chosen: random or sequential")
    add("--checkpoint-dir", type=Path, default=os.environ.get("DTTUI_CHECKPOINT_DIR") or None)
    add("--checkpoint-every", type=_positive, help="steps; the last step is always kept (50)")
    add("--checkpoint-interval", type=float, help="seconds, where --checkpoint-every is not given")
    add("--keep-checkpoints", type=_positive, default=3, help="how many, the newest (%(default)s)")
    add("--resume", action="store_true", help="go on from the newest complete checkpoint, if there is one")
    add("--log-every", type=_positive, default=10, help="steps (%(default)s)")
    add("--collective-timeout", type=float, help="seconds a rank waits for the others; without it, as torch does")
    add("--sample", type=int, default=0, help="bytes of text to write at the end (%(default)s)")
    add("--fail-at-step", type=int, help="fault injection: fail before this step, in the first attempt")
    add("--fail-rank", type=int, default=0, help="the rank that fails (%(default)s)")
    add("--exit-code", type=int, help="what it exits with; without it, it raises an exception")
    parser.set_defaults(**_of_job())
    options = parser.parse_args()
    if options.width % options.heads:
        parser.error(f"--width {options.width} is not a multiple of --heads {options.heads}")
    if options.shares is not None and sum(options.shares) != options.batch_size:
        parser.error(f"--shares make {sum(options.shares)} samples, and --batch-size says {options.batch_size}")
    if options.steps is None and options.epochs is None:
        options.steps = 100
    if options.checkpoint_every is None and options.checkpoint_interval is None:
        options.checkpoint_every = 50
    if options.data_seed is None:
        options.data_seed = options.seed
    if os.environ.get("DTTUI_ATTEMPT", "0") != "0":
        options.fail_at_step = None
    return options


def _of_job() -> dict[str, Any]:
    """What the job says, by the names of the options, and its `settings` and `precision`.

    It is in the file that DTTUI_CONFIG names; keys that mean nothing to this script are left alone.
    """
    told = os.environ.get("DTTUI_CONFIG")
    try:
        config: dict[str, Any] = json.loads(Path(told).read_text(encoding="utf-8")) if told else OF_JOB
        model, settings = config.get("model") or {}, config.get("settings") or {}
        # As text, which argparse checks.
        options = {name: str(value) for name, value in _options(config, model, settings).items() if value is not None}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        refuse(f"DTTUI_CONFIG names {told}, which is not a JSON object of settings: {error}")
    return {**options, "settings": settings, "precision": model.get("precision")}


def _options(config: dict[str, Any], model: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    data = (config.get("strategy") or {}).get("data_parallel") or {}
    sharding, dataset = config.get("data_sharding") or {}, config.get("dataset")
    checkpoint = config.get("checkpoint") or {}
    return {
        "batch_size": config.get("batch_size"),
        "shares": ",".join(map(str, config.get("shares") or [])) or None,
        "sharding": sharding.get("method") or sharding.get("strategy"),
        "data_seed": sharding.get("seed"),
        "collective_timeout": (config.get("distributed") or {}).get("timeout_s"),
        "checkpoint_interval": checkpoint.get("interval_s"),
        "keep_checkpoints": checkpoint.get("keep"),
        "tell_speed": data.get("shares") not in (None, "equal") or None,
        "text": dataset.get("path") if isinstance(dataset, dict) else None,
        "layers": model.get("layers"),
        "width": model.get("hidden_size"),
        "heads": model.get("heads"),
        "block_size": model.get("seq_length"),
        **{name: settings.get(name) for name in OWN},
    }


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _shares(text: str) -> list[int]:
    return [_positive(part.strip()) for part in text.split(",")]


def _sharding(text: str) -> str:
    kind = text.removesuffix("_shuffle")
    if kind not in ("random", "sequential"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither random nor sequential")
    return kind
