"""How shipped scripts are told what a job says where dttui starts none: by options, files and a literal. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dttui.frameworks.example_scripts import RECIPE, resnet_blocks
from dttui.frameworks.parts.environment import CONFIG_FILE
from dttui.spec.models import Job

_FSDP_FILE, _ARGUMENTS_FILE = "fsdp_config.json", "megatron_args.txt"
_WRITTEN = (CONFIG_FILE, _FSDP_FILE, "ds_config.json", _ARGUMENTS_FILE)
"""Files of a node that scripts read by themselves."""
_OF_START = ("--distributed-backend=",)
"""Arguments by which dttui starts a script, and a person may otherwise."""
_ARGUMENTS = {"lr": "learning_rate", "train_iters": "steps", "seed": "seed"}
"""Megatron-LM's arguments, and what settings call them."""


def by_hand(texts: Mapping[str, str], cwd: str) -> dict[str, str]:
    """Return those of a node's files that scripts read by themselves, by path, without what only dttui fills in.

    Args:
        texts: of all files, by path.
        cwd: how paths begin that are below the working directory.
    """
    found = {path: texts[path] for path in _WRITTEN if path in texts}
    if _ARGUMENTS_FILE in found:
        lines = [line.replace(cwd, "") for line in found[_ARGUMENTS_FILE].splitlines()]
        kept = [line for line in lines if not line.startswith(_OF_START) and "${" not in line]
        found[_ARGUMENTS_FILE] = "".join(f"{line}\n" for line in kept)
    return found


def told_by(template: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return what is written into the scripts of a template; that of FSDP reads two files, by variable."""
    told: dict[str, Any] = json.loads(texts.get(CONFIG_FILE, "{}"))
    if template != "pytorch-fsdp":
        return told
    sharding = json.loads(texts.get(_FSDP_FILE, "{}"))
    if sharding:
        sharding["mesh"] = [*sharding["mesh"][:-1], -1]  # As many as there are, also where dttui starts nothing.
    return {"DTTUI_CONFIG": told, "DTTUI_FSDP_CONFIG": sharding}


def moved(job: Job, name: str) -> dict[str, Any]:
    """Return settings and options of a job, with settings where the framework of the script reads them."""
    settings, options = dict(job.settings), dict(job.framework_options)
    if name == "resnet" and not {"layers", "width"} & settings.keys():
        blocks = resnet_blocks((job.model.name or "") if job.model is not None else "")
        known = {"layers": blocks, "width": 64, "image_size": 224, "classes": 1000}
        settings = known | settings if blocks is not None else settings
    if name == "megatron-lm":
        given = dict(options.get("arguments") or {})
        said = {str(key).replace("-", "_") for key in given}
        taken = {key: _taken(settings, word) for key, word in _ARGUMENTS.items() if key not in said}
        if taken := {key: value for key, value in taken.items() if value is not None}:
            options["arguments"] = {**given, **taken}
    if name == "deepspeed":
        options |= _options_of_deepspeed(settings, options)
    made = {"settings": settings, "framework_options": options}
    return {key: value for key, value in made.items() if value != getattr(job, key)}


def _options_of_deepspeed(settings: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what settings say by DeepSpeed's own options, and an optimizer; take them out of the settings."""
    made: dict[str, Any] = {}
    if options.get("optimizer") is None:
        rate, decay = _taken(settings, "learning_rate"), _taken(settings, "weight_decay")
        params = {"lr": 0.003 if rate is None else rate, "weight_decay": 0.01 if decay is None else decay}
        made["optimizer"] = {"type": "AdamW", "params": params}
        scheduled = {word for key in ("scheduler", "min_lr") for word in (key, *RECIPE[key])}
        is_open = options.get("scheduler") is None and not scheduled & settings.keys()
        if is_open and (rising := _taken(settings, "warmup_steps")):
            params = {"warmup_max_lr": params["lr"], "warmup_num_steps": rising, "warmup_type": "linear"}
            made["scheduler"] = {"type": "WarmupLR", "params": params}
    for option, name in (
        ("gradient_clipping", "gradient_clipping"),
        ("gradient_accumulation_steps", "accumulation_steps"),
    ):
        if options.get(option) is None and (value := _taken(settings, name)) is not None:
            made[option] = value
    return made


def _taken(settings: dict[str, Any], name: str) -> Any:
    """Take a setting out, by whichever of its words it is there; return `None` where it is not."""
    found = [settings.pop(word) for word in (name, *RECIPE.get(name, ())) if word in settings]
    return found[0] if found else None
