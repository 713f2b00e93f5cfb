"""Models by name: what `model.name` stands for where a job says no sizes. Arithmetic about them is for estimates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from dttui.spec.models import LatentAttention, Model
from dttui.spec.problems import did_you_mean

_SIZES = ("parameters", "layers", "hidden_size")
"""What a job says where its model's name is a name alone."""
_COUNTED = {
    *("kv_heads", "head_size", "ffn_size", "gated", "tied", "vocab_size", "heads"),
    *("experts", "expert_size", "shared_experts", "dense_layers", "latent"),
}
"""What the number of parameters follows from: where one of them is said, the known number is another model's."""
_ENDINGS = ("hf", "instruct", "chat", "base", "it", "v01", "v10", "4k", "8k", "128k", "cased", "uncased")
"""Of names on the hub, of what has the same sizes."""
_MAKERS = ("meta", "metallama", "mistralai", "google", "microsoft")
"""That names may begin with."""


class Convolutions(BaseModel):
    """What there is to count of a network of convolutions, for an image of 224 × 224 pixels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operations: int
    """Products with a sum of an image's forward pass."""
    values: int
    """Numbers that all convolutions give for an image."""


class KnownModel(BaseModel):
    """A model, with the sizes of its makers' configuration; as `Model` calls them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """In lower case, `llama-3-8b`."""
    parameters: int
    """As its own program counts them."""
    active: int | None = None
    """Those that a token comes by; `None` where that is all."""
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int | None = None
    head_size: int | None = None
    ffn_size: int | None = None
    gated: bool
    tied: bool
    causal: bool | None = None
    """`False` where tokens attend to those after them, too."""
    vocab_size: int
    seq_length: int
    """Of pre-training."""
    experts: int | None = None
    experts_per_token: int | None = None
    expert_size: int | None = None
    shared_experts: int | None = None
    dense_layers: int | None = None
    latent: LatentAttention | None = None
    convolutions: Convolutions | None = None
    """Of what is no transformer: its layers are blocks, its vocabulary is the classes, a sequence is an image."""
    source: str
    """Where the sizes are from."""


@cache
def all_models() -> tuple[KnownModel, ...]:
    """Return the models that are known by name."""
    text = files(__package__).joinpath("known_models.yaml").read_text(encoding="utf-8")
    return tuple(KnownModel.model_validate(item) for item in yaml.safe_load(text)["models"])


def find_model(name: str) -> KnownModel | None:
    """Return the model of a name: `llama-3-8b`, `Llama 3 8B`, `meta-llama/Meta-Llama-3-8B-Instruct`."""
    return _by_name().get(_plain(name))


def model_meant(name: str) -> str:
    """Return `did you mean "…"?` for a name that is none, or nothing where no known one is near."""
    return did_you_mean(name.lower(), [model.name for model in all_models()])


def known_sizes(name: str | None, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a name stands for beside what is said; nothing where it is of no known model, or sizes are said.

    Args:
        name: of the model.
        said: sizes by the names that `Model` has for them; `None` for what is not said.
    """
    model = find_model(name) if name else None
    given = {key for key, value in said.items() if value is not None}
    if model is None or given & {*_SIZES}:
        return {}
    left_out = {"name", "source", "active", *given} | ({"parameters"} if given & _COUNTED else set())
    return {key: value for key, value in model if value is not None and key not in left_out}


def filled(model: Model) -> Model:
    """Return a job's model with the sizes that its name stands for, where that is of a transformer."""
    sizes = known_sizes(model.name, dict(model))
    if "convolutions" in sizes:
        return model
    return model.model_copy(update={key: value for key, value in sizes.items() if key in Model.model_fields})


@cache
def _by_name() -> dict[str, KnownModel]:
    return {_plain(model.name): model for model in all_models()}


def _plain(name: str) -> str:
    """Return a name without maker, marks and what tells kinds of one size apart."""
    words = re.split(r"[\s_-]+", name.rpartition("/")[2].lower().replace("v0.1", "v01").replace("v1.0", "v10"))
    while len(words) > 1 and words[-1] in _ENDINGS:
        words.pop()
    if len(words) > 1 and words[0] in _MAKERS:
        words.pop(0)
    return "".join(words)
