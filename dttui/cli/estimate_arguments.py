"""Options of `estimate` and `recommend`: numbers as people write them, in base units inside."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dttui.i18n import _
from dttui.spec import shown

if TYPE_CHECKING:
    from dttui.spec import Lora

_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_LEAST, _MOST = 1e-12, 1e18
"""Bounds of rates (bytes a second) and times (seconds)."""
_LEAST_PARAMETERS = 1e5
_RATES = {"b/s": 1.0, "bps": 1 / 8}


def add_arguments(parser: ArgumentParser, *, recommends: bool) -> None:
    """Add the options of `estimate`, or of `recommend`, where they fix what would be searched."""
    parser.add_argument(
        "file", nargs="?", metavar="JOB.YAML", help=_("a job with its nodes, instead of model and GPUs")
    )
    model = parser.add_argument_group(_("model"))
    model.add_argument("--model", metavar="NAME", help=_("a known one, llama-3-8b, or a config.json of Hugging Face"))
    model.add_argument("--models", action="store_true", help=_("list the known models, and do nothing else"))
    model.add_argument("--parameters", type=_count, metavar="N", help=_("how many: 7e9, 7B"))
    for name, text in (
        ("--layers", _("transformer layers")),
        ("--hidden-size", _("width")),
        ("--heads", _("attention heads")),
        ("--vocab-size", _("tokens there are")),
        ("--kv-heads", _("heads of keys and values; as many as of attention by default")),
        ("--head-size", _("width of a head")),
        ("--ffn-size", _("width of the feed-forward part")),
        ("--experts", _("experts of a layer")),
        ("--experts-per-token", _("experts a token goes through; 2 by default")),
        ("--expert-size", _("width of an expert; --ffn-size by default")),
        ("--shared-experts", _("experts that all tokens go through")),
        ("--dense-layers", _("first layers without experts")),
    ):
        model.add_argument(name, type=_positive, metavar="N", help=text)
    model.add_argument("--seq-length", type=_length, metavar="N", help=_("tokens a sequence: 8192, 128K"))
    model.add_argument("--attention", choices=("flash", "plain"), help=_("plain keeps the s² matrix; flash by default"))
    for name, text in (
        ("--gated", _("the feed-forward part is gated (SwiGLU)")),
        ("--tied", _("the output layer is the token embedding")),
        ("--causal", _("tokens attend to those before them alone")),
        ("--dropout", _("there is dropout")),
    ):
        model.add_argument(name, action=BooleanOptionalAction, help=text)
    model.add_argument(
        "--lora",
        type=_lora,
        metavar="SAYING",
        help=_("adapters alone are trained: rank=16,targets=all,bits=4; targets: attention, or q_proj+v_proj"),
    )
    hardware = parser.add_argument_group(_("hardware"))
    hardware.add_argument("--gpu", metavar="TYPE", help=_("type, such as A100-80GB or H100"))
    hardware.add_argument("--gpus", type=_positive, metavar="N", help=_("GPUs in all"))
    hardware.add_argument("--gpus-per-node", type=_positive, metavar="N", help=_("GPUs a node; 8 by default"))
    for name, text in (
        ("--intra-bandwidth", _("a GPU's link inside its node, one direction: 300GB/s")),
        ("--inter-bandwidth", _("a GPU's share of its node's network, one direction: 200Gbps")),
        ("--storage-bandwidth", _("at which a node writes its part of a checkpoint: 2GB/s")),
    ):
        hardware.add_argument(name, type=_bandwidth, metavar="RATE", help=text)
    for name, text in (
        ("--intra-latency", _("of a message inside a node: 2us")),
        ("--inter-latency", _("of a message between nodes: 15us")),
    ):
        hardware.add_argument(name, type=_seconds, metavar="TIME", help=text)
    parser.add_argument(
        "--tokens", type=_tokens, metavar="N", help=_("to train on in all: 1e12, 15T; 20 a parameter by default")
    )
    layout = parser.add_argument_group(_("fixed beforehand") if recommends else _("layout"))
    for name, text in (
        ("--dp", _("data-parallel degree")),
        ("--tp", _("tensor-parallel degree")),
        ("--pp", _("pipeline-parallel degree")),
        ("--cp", _("ranks that share out each sequence (context parallelism)")),
        ("--ep", _("ranks that share out the experts (expert parallelism)")),
        ("--virtual-stages", _("chunks of layers a rank; more than 1 is the interleaved schedule")),
        ("--micro-batch", _("sequences a rank works on at once")),
        ("--global-batch", _("sequences a step")),
    ):
        layout.add_argument(name, type=_positive, metavar="N", help=text)
    layout.add_argument(
        "--zero-stage", type=_one_of(0, 1, 2, 3), choices=range(4), help=_("sharding over the replicas")
    )
    precisions = ("fp32", "tf32", "fp16", "bf16", "fp8")
    layout.add_argument("--precision", choices=precisions, help=_("bf16 by default"))
    layout.add_argument("--recompute", choices=("none", "selective", "full"), help=_("activations computed again"))
    layout.add_argument(
        "--sequence-parallel", action=BooleanOptionalAction, help=_("tensor-parallel ranks split the sequence too")
    )
    optimizers = ("adam", "adam-fused", "adam-8bit", "momentum", "sgd")
    layout.add_argument("--optimizer", choices=optimizers, help=_("adam by default"))
    layout.add_argument(
        "--weights",
        choices=("master", "autocast", "pure"),
        help=_("in half precision: with a copy in fp32, which is the default, in fp32 alone and cast, or without fp32"),
    )
    layout.add_argument(
        "--fused", action=BooleanOptionalAction, help=_("gates, loss and optimizer are fused kernels; so by default")
    )
    places = ("none", "optimizer", "gradients", "parameters", "all")
    layout.add_argument(
        "--offload", choices=places, help=_("what the host's memory keeps; with gradients the optimizer, too")
    )
    layout.add_argument(
        "--offload-activations", action=BooleanOptionalAction, help=_("the host's memory keeps activations")
    )
    if not recommends:
        layout.add_argument(
            "--schedule", choices=("1F1B", "GPipe", "ZB-H1", "ZB-H2", "ZB-V"), help=_("1F1B by default")
        )
        layout.add_argument("--compiled", action=BooleanOptionalAction, help=_("the model is compiled (torch.compile)"))
        layout.add_argument("--gradient-bytes", type=_one_of(2, 4, 6), choices=(2, 4, 6), help=_("a parameter's"))


def _one_of(*numbers: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        found = next((number for number in numbers if str(number) == text), None)
        if found is None:
            told = _("{text} is none of {choices}").format(text=shown(text), choices=", ".join(map(str, numbers)))
            raise ArgumentTypeError(told)
        return found

    return number


def _lora(text: str) -> Lora:
    """Return the adapters that a text such as `rank=16,targets=all,bits=4` says."""
    from pydantic import ValidationError

    from dttui.spec import Lora

    said: dict[str, Any] = {}
    for part in text.split(","):
        name, _sign, value = part.partition("=")
        said[name.strip()] = int(value) if value.isdecimal() else value
    targets = said.get("targets", "all")
    if targets not in ("all", "attention"):
        said["targets"] = tuple(str(targets).split("+"))
    try:
        return Lora.model_validate(said)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        expected = {
            "rank": _("a whole number from 1"),
            "targets": _("all, attention, or of {names} those that have one, joined by +"),
            "bits": _("4 or 8"),
        }
        if name not in expected:
            told = _("there is no {name}; what there is: {names}")
            raise ArgumentTypeError(told.format(name=shown(name), names=", ".join(expected))) from error
        wanted = expected[name].format(names=", ".join(sorted(Lora(rank=1).names)))
        told = _("{name} has to be {expected}, as in {example}")
        raise ArgumentTypeError(
            told.format(name=name, expected=wanted, example="rank=16,targets=all,bits=4")
        ) from error


def _positive(text: str) -> int:
    from decimal import Decimal, InvalidOperation

    from dttui.spec import MOST_COUNT

    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal(0)
    if not number.is_finite() or not 1 <= number <= MOST_COUNT or number != int(number):
        text = _("{text} is no whole number from 1 to {most}").format(text=text, most=f"{MOST_COUNT:,}")
        raise ArgumentTypeError(text)
    return int(number)


def _length(text: str) -> int:
    """Return tokens of a sequence, of which K stands for 1,024 and M for 1,024²."""
    match = re.fullmatch(r"(\d{1,9})([kmKM])", text)
    return _positive(str(int(match[1]) * 1024 ** " km".index(match[2].lower())) if match else text)


def _tokens(text: str) -> float:
    value = _number(text)
    if not 1 <= value < 1e18:
        raise ArgumentTypeError(_("{text} is no number of tokens, such as 1e12 or 15T").format(text=text))
    return value


def _number(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)\s*([kmbgtKMBGT]?)", text)
    return float(match[1]) * _SCALES[match[2].lower()] if match else 0.0


def _count(text: str) -> float:
    value = _number(text)
    if not 1 <= value < 1e18:
        raise ArgumentTypeError(_("{text} is no number of parameters, such as 7e9 or 7B").format(text=text))
    if value < _LEAST_PARAMETERS:
        told = _("{text} parameters are too few for a transformer; did you mean {billions}?")
        raise ArgumentTypeError(told.format(text=text, billions=f"{value:g}B"))
    return value


def _quantity(text: str, pattern: str, scale: Callable[[str], float], example: str) -> float:
    match = re.fullmatch(rf"(\d+(?:\.\d+)?(?:[eE][+-]?\d{{1,3}})?)\s*({pattern})", text, re.IGNORECASE)
    value = float(match[1]) * scale(match[2].lower()) if match else 0.0
    if not _LEAST <= value <= _MOST:
        raise ArgumentTypeError(
            _("{text} is not understood; write it like {example}").format(text=text, example=example)
        )
    return value


def _bandwidth(text: str) -> float:
    def scale(unit: str) -> float:
        return _SCALES[unit[:-3]] * _RATES[unit[-3:]]

    return _quantity(text, "[KMGT]?(?:B/s|bps)", scale, "200Gbps, 25GB/s")


def _seconds(text: str) -> float:
    return _quantity(text, "ns|us|µs|ms|s", lambda unit: {"ns": 1e-9, "ms": 1e-3, "s": 1.0}.get(unit, 1e-6), "15us")
