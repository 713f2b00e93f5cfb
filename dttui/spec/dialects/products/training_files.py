"""Files that a trainer's own command reads: LLaMA-Factory, axolotl, torchtune, litgpt. It is started once a node."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from dttui.i18n import _
from dttui.spec.dialects.products.gpus import COUNT, number
from dttui.spec.dialects.products.product_kind import Outside, text_at
from dttui.spec.dialects.translation import Translated, Translation
from dttui.spec.known_models import find_model
from dttui.spec.problems import DocumentError, PathKey, printable, shown
from dttui.spec.yaml_source import YamlSource

_COMMAND: PathKey = ("run", "command")
_PRECISION: PathKey = ("model", "precision")
_TUNE = re.compile(r"#.*?\btune run\b(?P<options>(?:\s+--?[\w-]+(?:[= ]\d+)?)*)\s+(?P<recipe>[a-z]\w+)")
_EACH = re.compile(r"--nproc[-_]per[-_]node[= ]([0-9]{1,4})")
_WORDS = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}


def translate(source: YamlSource, _outside: Outside) -> Translated:
    """Carry such a file over: the command that reads it. Raises DocumentError where that is not known."""
    translation = Translation(source)
    data: Mapping[str, object] = source.data
    if "base_model" in data:
        _carry(translation, ("axolotl", "train", source.name), ("base_model",))
    elif "model_name_or_path" in data or "adapter_name_or_path" in data:
        first: PathKey = ("model_name_or_path",) if "model_name_or_path" in data else ("adapter_name_or_path",)
        _carry(translation, ("llamafactory-cli", "train", source.name), first)
        # Without it, it starts no ranks where a node has one GPU.
        translation.put(("run", "env", "FORCE_TORCHRUN"), "1", first)
    elif any("torchtune" in text_at(data, key, "_component_") for key in data):
        _carry_tune(translation)
    else:
        _carry_litgpt(translation)
    _carry_precision(translation)
    _note_deepspeed(translation)
    _carry_settings(translation)
    for key in data:
        translation.use((key,))  # The program reads the file itself.
    return translation.finish()


def _carry(translation: Translation, command: tuple[str, ...], origin: PathKey) -> None:
    """Put the command into the job."""
    stem = posixpath.splitext(posixpath.basename(translation.source.name))[0]
    translation.put(("name",), printable(stem)[:120].strip() or "job", origin, is_implied=True)
    translation.put(("framework",), "command", origin)
    translation.put(_COMMAND, command, origin)
    translation.put(("run", "per"), "node", origin)


def _carry_tune(translation: Translation) -> None:
    """Put `tune run` into the job, with the recipe that a comment of the file names: nothing else in it does."""
    source = translation.source
    named = next((match for line in source.lines if (match := _TUNE.search(line)) is not None), None)
    if named is None:
        message = _("this is a torchtune configuration, which does not say what recipe it is for")
        hint = _("Import the command: dttui import -- tune run RECIPE --config {file}.").format(
            file=printable(source.name)
        )
        raise DocumentError([source.problem(("model",), source.key_mark(("model",)), message, hint)])
    recipe = named["recipe"]
    _carry(translation, ("tune", "run", recipe, "--config", source.name), ("model",))
    each = _EACH.search(named["options"])
    if "single_device" in recipe:
        translation.put(COUNT, 1, ("model",))
    elif each is not None and number(each[1]):
        translation.put(COUNT, number(each[1]), ("model",), is_implied=True)
    message = _("the recipe {recipe} is that of a comment in the file").format(recipe=recipe)
    translation.note(("model", "_component_"), message)


def _carry_litgpt(translation: Translation) -> None:
    """Put litgpt's command into the job: which one, is told by the keys that only one has."""
    data: Mapping[str, object] = translation.source.data
    verb = "finetune_full"
    if "lora_r" in data:
        verb = "finetune_lora"
    elif "model_name" in data or "initial_checkpoint_dir" in data or "checkpoint_dir" not in data:
        verb = "pretrain"
    origin: PathKey = ("train",)
    _carry(translation, ("litgpt", verb, "--config", translation.source.name), origin)
    message = _("the command {command} is told by the keys of the file").format(command=f"litgpt {verb}")
    translation.note(next(translation.leaves()), message)
    devices = number(data.get("devices"))
    if devices:
        translation.carry(("devices",), COUNT, devices)
    nodes = number(data.get("num_nodes"), 100_000)
    if nodes and nodes > 1:
        translation.expect_nodes(("num_nodes",), nodes)


def _carry_precision(translation: Translation) -> None:
    for key in ("bf16", "fp16"):
        if translation.said((key,)) is True and not translation.has(_PRECISION):
            translation.carry((key,), _PRECISION, key)
    for key in ("dtype", "precision"):
        said = translation.said((key,))
        word = said.split("-")[0].casefold() if isinstance(said, str) else ""
        if word in _WORDS and not translation.has(_PRECISION):
            translation.carry((key,), _PRECISION, _WORDS[word])


def _note_deepspeed(translation: Translation) -> None:
    said = translation.said(("deepspeed",))
    if isinstance(said, str) and said:
        message = _("the program reads DeepSpeed's configuration itself: {file}").format(file=shown(said))
        translation.note(("deepspeed",), message, _("It has to be below run.workdir, or on the hosts."))


def _carry_settings(translation: Translation) -> None:
    """Carry over what the estimate reads of a job and the file says under a name of its own."""
    targets: dict[str, PathKey] = {
        "base_model": ("model", "name"),
        "model_name_or_path": ("model", "name"),
        "cutoff_len": ("model", "seq_length"),
        "sequence_len": ("model", "seq_length"),
        "max_seq_length": ("model", "seq_length"),
    }
    for key, target in targets.items():
        said = translation.said((key,))
        if target[-1] == "seq_length" and number(said, 10**9):
            translation.carry((key,), target, number(said, 10**9))
        elif target[-1] == "name" and isinstance(said, str) and find_model(said) is not None:
            translation.carry((key,), target)
