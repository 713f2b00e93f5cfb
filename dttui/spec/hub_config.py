"""The config.json that a model has on Hugging Face's hub: its sizes, by the names that `Model` has for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.spec.models import MOST_COUNT, Job, LatentAttention
from dttui.spec.problems import DocumentError, shown
from dttui.spec.yaml_reader import decode, read_bytes

FILE = "config.json"
MOST_TOKENS = 4096
"""A sequence, where nobody says: models allow many more than they are mostly trained with."""
_GLU = ("silu", "swish")
"""Activations of a feed-forward part that are had with gates alone (Shazeer 2020: SwiGLU)."""
_GATED = ("gemma", "t5gemma")
"""Kinds of models that are gated by another activation."""
_BOTH_WAYS = ("bert", "roberta", "xlm-roberta", "distilbert", "electra", "modernbert", "deberta", "albert", "camembert")
"""Kinds of models whose tokens attend to those after them."""
_OF_IMAGES = ("vit", "deit", "beit", "dinov2")
"""Kinds of models whose tokens are patches of an image, and one that stands for all of it."""
_CLASSES = 1000
"""That an image may be of, where nobody says: ImageNet's."""
_TIED = ("gpt2", "gpt_bigcode", "gpt_neo", "gemma", "falcon", "opt", "bloom", "mpt", "phi4", "cohere", *_BOTH_WAYS)
"""Kinds of models whose output layer is the token embedding, where their configuration does not say."""
_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_size": ("head_dim",),
    "ffn_size": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "vocab_size": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok", "experts_per_token", "num_experts_per_token"),
    "expert_size": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "dense_layers": ("first_k_dense_replace",),
    "seq_length": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"),
}
"""Key of `Model` → those of configurations, the usual one first."""
_NEEDED = ("layers", "hidden_size", "heads", "vocab_size")
_MAY_BE_ZERO = ("shared_experts", "dense_layers", "ffn_size", "experts")
_OPTIONS = {"layers": "--layers", "hidden_size": "--hidden-size", "heads": "--heads", "vocab_size": "--vocab-size"}
_DROPOUTS = ("attn_pdrop", "resid_pdrop", "attention_dropout", "hidden_dropout", "hidden_dropout_prob")
_LATENT = {
    "q_rank": "q_lora_rank",
    "kv_rank": "kv_lora_rank",
    "head_size": "qk_nope_head_dim",
    "rope_size": "qk_rope_head_dim",
    "value_size": "v_head_dim",
}


def is_config(name: str) -> bool:
    """Whether what is given for a model's name is the path of a configuration."""
    return name.endswith(".json") or Path(name).expanduser().is_dir()


def read_config(path: Path) -> dict[str, Any]:
    """Return the sizes that a configuration says, by the names of `Model`.

    Args:
        path: of the file, or of a directory with a config.json.

    Raises:
        UsageError: it cannot be read, or says something that is no size; with its place and what helps.
    """
    path = path.expanduser()
    path = path / FILE if path.is_dir() else path
    try:
        document = json.loads(decode(read_bytes(path, str(path)), str(path)))
    except DocumentError as error:
        raise UsageError(str(error), _("Name a config.json, as models have on Hugging Face's hub.")) from error
    except json.JSONDecodeError as error:
        message = _("{file}:{line}:{column}: no JSON: {reason}")
        told = message.format(file=path, line=error.lineno, column=error.colno, reason=error.msg)
        raise UsageError(told, _("Fetch the file again, or correct it.")) from error
    except (RecursionError, ValueError) as error:
        raise UsageError(_("{file}: no JSON that can be read").format(file=path), _("Fetch the file again.")) from error
    return sizes_of(document, str(path))


def with_config(job: Job, base: Path) -> Job:
    """Return a job with the sizes of `model.config` where it says none. Raises UsageError, as `read_config`.

    Args:
        job: the job.
        base: directory that its relative paths start from.
    """
    if job.model is None or job.model.config is None:
        return job
    sizes = read_config(base / Path(job.model.config).expanduser())
    said = {key for key, value in job.model if value is not None}
    fresh = {key: value for key, value in sizes.items() if key not in said}
    return job.model_copy(update={"model": job.model.model_copy(update={**fresh, "config": None})})


def sizes_of(document: object, file: str) -> dict[str, Any]:
    """Return the sizes that a configuration says. Raises UsageError.

    Args:
        document: what is in the file.
        file: what messages call it.
    """
    if not isinstance(document, Mapping):
        message = _("{file}: expected an object, {{…}}, found {found}").format(file=file, found=shown(document))
        raise UsageError(message, _("Name a config.json, as models have on Hugging Face's hub."))
    config: Mapping[str, Any] = document
    if isinstance(inner := config.get("text_config"), Mapping):
        config = {**config, **inner}
    kind = str(config.get("model_type", "")).lower()
    if config.get("is_encoder_decoder") is True:
        message = _("{file}: is_encoder_decoder: models of two stacks are not known to estimates").format(file=file)
        raise UsageError(message, _("Give --parameters for an estimate of a decoder of that size."))
    if "depths" in config:
        message = _("{file}: depths: estimates are of transformers whose layers are alike, and not of convolutions")
        hint = _("Launch it without: nothing but the estimate needs the sizes.")
        if kind == "resnet":
            hint = _("Name it instead, such as resnet-50.")
        raise UsageError(message.format(file=file), hint)
    sizes: dict[str, Any] = _of_images(config, file) if kind in _OF_IMAGES else {}
    for name, keys in _NAMES.items():
        if (value := _count(config, keys, file, least=0 if name in _MAY_BE_ZERO else 1)) is not None:
            sizes[name] = value
    for name in _NEEDED:
        if name not in sizes:
            message = _("{file}: {key} is missing").format(file=file, key=_NAMES[name][0])
            raise UsageError(message, _("Add it, or give {option}.").format(option=_OPTIONS[name]))
    sizes["seq_length"] = min(sizes.get("seq_length", MOST_TOKENS), MOST_TOKENS)
    sizes |= _experts(config, sizes, file)
    sizes |= _layers(config, kind, file)
    _check_heads(sizes, file)
    return sizes


def _of_images(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return how many patches an image has, and of how many classes it may be, as tokens of a sequence."""
    side, patch = (_count(config, (key,), file) for key in ("image_size", "patch_size"))
    classes = config.get("id2label")
    count = len(classes) if isinstance(classes, Mapping) else _count(config, ("num_labels",), file)
    patches = {"seq_length": (side // patch) ** 2 + 1} if side and patch else {}
    return {"vocab_size": count or _CLASSES, **patches}


def _layers(config: Mapping[str, Any], kind: str, file: str) -> dict[str, Any]:
    """Return what layers have that is no size."""
    act = str(config.get("hidden_act") or config.get("activation_function") or config.get("hidden_activation") or "")
    tied = config.get("tie_word_embeddings", kind.startswith(_TIED))
    if not isinstance(tied, bool):
        message = _("{file}: tie_word_embeddings: {found} is neither true nor false")
        raise UsageError(message.format(file=file, found=shown(tied)), _("Correct it, or leave it out."))
    found: dict[str, Any] = {
        "gated": act in _GLU or kind.startswith(_GATED),
        "tied": tied,
        "causal": kind not in (*_BOTH_WAYS, *_OF_IMAGES),
        "dropout": any(isinstance(rate := config.get(key), float) and rate > 0 for key in _DROPOUTS),
    }
    ranks = {name: _count(config, (key,), file) for name, key in _LATENT.items()}
    if ranks["kv_rank"] is not None:
        missing = next((key for name, key in _LATENT.items() if name != "q_rank" and ranks[name] is None), None)
        if missing is not None:
            message = _("{file}: {key} is missing").format(file=file, key=missing)
            raise UsageError(message, _("Add it: kv_lora_rank says that there is latent attention."))
        found["latent"] = LatentAttention.model_validate(ranks)
    return found


def _experts(config: Mapping[str, Any], sizes: dict[str, Any], file: str) -> dict[str, Any]:
    """Return what is said of experts by other sizes than `Model`'s; what is zero is taken out of the sizes."""
    for name in ("ffn_size", "experts"):
        if sizes.get(name) == 0:
            del sizes[name]
    if "experts" not in sizes:
        for name in ("experts_per_token", "expert_size", "shared_experts", "dense_layers"):
            sizes.pop(name, None)
        return {}
    if sizes.get("experts_per_token", 1) > sizes["experts"]:
        message = _("{file}: a token cannot go through {count} of {experts} experts")
        told = message.format(file=file, count=sizes["experts_per_token"], experts=sizes["experts"])
        raise UsageError(told, _("Correct num_experts_per_tok."))
    shared = _count(config, ("shared_expert_intermediate_size",), file, least=0)
    if shared and "shared_experts" not in sizes and (one := sizes.get("expert_size", sizes.get("ffn_size"))):
        return {"shared_experts": max(round(shared / one), 1)}
    return {}


def _check_heads(sizes: Mapping[str, Any], file: str) -> None:
    heads, shared = sizes["heads"], sizes.get("kv_heads")
    if shared is not None and heads % shared:
        message = _("{file}: num_key_value_heads: {shared} does not divide the {heads} attention heads")
        raise UsageError(message.format(file=file, shared=shared, heads=heads), _("Take a number that divides them."))


def _count(config: Mapping[str, Any], keys: tuple[str, ...], file: str, least: int = 1) -> int | None:
    """Return the number of the first of these keys that there is; `None` for none, or null."""
    key = next((key for key in keys if config.get(key) is not None), None)
    if key is None:
        return None
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_COUNT:
        message = _("{file}: {key}: {found} is no whole number from {least} to {most}")
        told = message.format(file=file, key=key, found=shown(value), least=least, most=f"{MOST_COUNT:,}")
        raise UsageError(told, _("Correct it, or fetch the file again."))
    return value
