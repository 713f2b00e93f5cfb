"""Words that several forms have for the same thing, and what the job calls it."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator

from dttui.i18n import _
from dttui.spec.communication import CompressionName
from dttui.spec.dialects.translation import Translation
from dttui.spec.problems import PathKey, did_you_mean, shown, with_hint

_PROTOCOLS = {"nccl": "NCCL", "mpi": "MPI", "grpc": "gRPC", "gloo": None}
_SCALES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_SIZE = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([KMBT]?)\s*(?:parameters|params)?\s*", re.IGNORECASE)


def _backend(text: str) -> str:
    if text.casefold() not in _PROTOCOLS:
        told = _("expected one of {choices}, found {value}").format(choices=", ".join(_PROTOCOLS), value=shown(text))
        near = did_you_mean(text, _PROTOCOLS)
        raise ValueError(with_hint(told, near))
    return text


def _model_size(text: str) -> str:
    if not _SIZE.fullmatch(text):
        raise ValueError(_("expected a number of parameters, such as 175B, found {value}").format(value=shown(text)))
    return text


Backend = Annotated[str, AfterValidator(_backend)]
"""What the ranks talk by, in small letters or large."""
ModelSize = Annotated[str, AfterValidator(_model_size)]
"""A number of parameters as people write it, `175B parameters`."""
Algorithm = Literal["ring", "tree", "butterfly"]
"""Algorithm of all-reduce."""


def parameter_count(text: str) -> float:
    """Return the number that a ModelSize stands for."""
    match = _SIZE.fullmatch(text)
    return float(Decimal(match[1]) * _SCALES[match[2].casefold()]) if match else 0.0


def carry_backend(translation: Translation, origin: PathKey) -> None:
    """Carry a Backend over to the job's protocol."""
    said = translation.said(origin)
    if said is None:
        return
    protocol = _PROTOCOLS[str(said).casefold()]
    if protocol is not None:
        translation.carry(origin, ("communication", "protocol"), protocol)
    else:
        translation.note(origin, _("not carried over: gloo is what is taken where not every rank has a CUDA GPU"))


def carry_compression(translation: Translation, origin: PathKey, *settings: str) -> None:
    """Carry what gradients are sent as over to the job; a word that it does not know goes to the script.

    Args:
        translation: of the document.
        origin: where it says that.
        settings: where the script finds it then, as of `hand_over`.
    """
    name = str(translation.said(origin)).casefold()
    if name in get_args(CompressionName):
        translation.carry(origin, ("communication", "compression"), name)
    else:
        translation.hand_over(origin, *settings)


def carry_recomputation(translation: Translation, origin: PathKey, kind: str = "full") -> None:
    """Carry over whether activations are computed again; what is said of it first counts."""
    said = translation.said(origin)
    target, value = ("strategy", "recomputation"), kind if said else "none"
    if not isinstance(said, bool):
        return
    translation.use(origin)
    if not translation.has(target):
        translation.carry(origin, target, value)
    elif translation.carried(target) != value:
        translation.note(origin, _("not carried over: this is given before"), is_warning=True)


def check_product(translation: Translation, origin: PathKey, told: str, product: int, total: int) -> None:
    """Say where numbers of a document that have to agree do not."""
    translation.use(origin)
    if product != total:
        message = _("{told} makes {product}, and the document says {total}")
        translation.note(origin, message.format(told=told, product=product, total=total), is_warning=True)
