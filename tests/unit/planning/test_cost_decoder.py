"""Memory of decoders against torch's own tracker, on tensors that only pretend; and against what a CPU really takes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dttui.planning.cost.adapters import frozen_bytes, trained_parameters
from dttui.planning.cost.assumptions import ModelClaim, assume_shape
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.memory import Held, memory_per_gpu, model_states
from dttui.planning.cost.optimizers import Weights
from dttui.planning.cost.shape import ModelShape, exact_count
from dttui.spec.models import Lora

LLAMA = {
    **{"layers": 4, "hidden": 1024, "heads": 16, "kv_heads": 4, "ffn": 2816},
    **{"vocabulary": 32000, "length": 2048, "batch": 1},
}
GPT = {
    **{"layers": 4, "hidden": 1024, "heads": 16, "kv_heads": 16, "ffn": 4096},
    **{"vocabulary": 50304, "length": 1024, "batch": 2, "gated": False},
}
PLAIN = GPT | {"attention": "plain"}
SHARDED = {"ranks": 8, "weights": "fp32"}
FEW = {"vocabulary": 1000}
"""Words, so that not the loss but the last layer's backward pass is the peak."""
WIDE = {"hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocabulary": 128256, "length": 512}
TINY = {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 2, "ffn": 352, "vocabulary": 1000, "length": 256}
CASES: dict[str, dict[str, Any]] = {
    "flash attention": LLAMA,
    "flash attention, 8,192 tokens": LLAMA | {"length": 8192},
    "flash attention, dropout": GPT | {"dropout": True},
    "plain attention": PLAIN,
    "plain attention, dropout": PLAIN | {"dropout": True},
    "selective recomputation": PLAIN | {"dropout": True, "recompute": "selective"},
    "selective recomputation, few words": PLAIN | FEW | {"recompute": "selective", "length": 2048},
    "full recomputation": LLAMA | {"recompute": "full", "batch": 2},
    "full recomputation, few words": LLAMA | FEW | {"recompute": "full"},
    "autocast": LLAMA | {"weights": "autocast"},
    "autocast, full recomputation": LLAMA | {"weights": "autocast", "recompute": "full"},
    "autocast, plain attention, dropout": PLAIN | {"weights": "autocast", "dropout": True},
    "Adam over lists": LLAMA | {"length": 128, "foreach": True},
    "Adam over lists, autocast": LLAMA | {"length": 128, "foreach": True, "weights": "autocast"},
    "LoRA": LLAMA | {"rank": 16},
    "LoRA of attention": LLAMA | {"rank": 16, "targets": "attention"},
    "LoRA, full recomputation": LLAMA | {"rank": 16, "recompute": "full"},
    "FSDP2": LLAMA | SHARDED,
    "FSDP2, plain attention, dropout": PLAIN | SHARDED | {"dropout": True},
    "FSDP2, full recomputation, few words": LLAMA | SHARDED | FEW | {"recompute": "full"},
    "FSDP2, wide layers": LLAMA | SHARDED | WIDE,
    "on a CPU": LLAMA | TINY | {"weights": "fp32", "real": True},
}


@pytest.fixture(scope="module")
def tracked() -> dict[str, dict[str, int]]:
    """What there is at the peak of each, in bytes by kind; one process, as much of its time is torch's import."""
    script = Path(__file__).with_name("decoder_memory.py")
    command = [sys.executable, str(script), json.dumps([*CASES.values()])]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: json.loads(line) for name, line in zip(CASES, ran.stdout.splitlines(), strict=True)}


def shape_of(case: dict[str, Any]) -> ModelShape:
    blank = ModelShape(
        case["layers"],
        case["hidden"],
        case["heads"],
        case["length"],
        case["vocabulary"],
        1.0,
        case["kv_heads"],
        ffn_size=case["ffn"],
        gated=case.get("gated", True),
        tied=False,
        attention=case.get("attention", "flash"),
        dropout=case.get("dropout", False),
        lora=Lora(rank=case["rank"], targets=case.get("targets", "all")) if "rank" in case else None,
    )
    return replace(blank, parameters=exact_count(blank))


def layout_of(case: dict[str, Any]) -> Layout:
    kept: dict[str, Weights] = {"fp32": "master", "autocast": "autocast", "pure": "pure"}
    ranks, weights = case.get("ranks", 1), case.get("weights", "pure")
    return Layout(
        data=ranks,
        micro_batch=case["batch"],
        global_batch=2 * ranks * case["batch"],
        zero_stage=3 if ranks > 1 else 0,
        recompute=case.get("recompute", "none"),
        precision="fp32" if weights == "fp32" and ranks == 1 else "bf16",
        weights=kept[weights],
        optimizer="adam" if case.get("foreach") else "adam-fused",
        fused=False,
    )


@pytest.mark.torch
@pytest.mark.timeout(600)  # It only computes, three quarters of a minute of one core; who shares that waits longer.
@pytest.mark.parametrize("name", CASES)
def test_memory_is_what_torchs_own_tracker_finds_within_five_per_cent(
    tracked: dict[str, dict[str, int]], name: str
) -> None:
    found = tracked[name]
    parts = memory_per_gpu(shape_of(CASES[name]), layout_of(CASES[name])).parts
    of_torch = {part: size for part, size in parts.items() if part not in ("context", "buckets")}
    assert sum(of_torch.values()) == pytest.approx(found["Total"], rel=0.05)
    if "PARAM" in found:
        assert parts["parameters"] == pytest.approx(found["PARAM"], rel=0.01)
        assert parts["gradients"] == pytest.approx(found["GRAD"], rel=0.01)
        if not parts["update"]:  # Else the peak is in the optimizer's step, when what is beside it is gone.
            assert parts["optimizer"] == pytest.approx(found["OPT"], rel=0.01)
            rest = sum(parts[part] for part in ("activations", "logits", "recomputation", "casts", "embedding"))
            assert rest == pytest.approx(found["ACT"] + found.get("TEMP", 0), rel=0.05)
    elif "SHARDED_PARAM" in found:
        # FSDP2 keeps the fp32 parameters, which are Adam's master copy here, and no half-precision copy between steps.
        assert parts["optimizer"] == pytest.approx(found["SHARDED_PARAM"] + found["OPT"], rel=0.01)


@pytest.mark.parametrize(
    ("model", "lora", "count"),
    [
        ("llama-3-8b", Lora(rank=16), 41_943_040),  # As Unsloth's and PEFT's print_trainable_parameters have it.
        ("llama-2-7b", Lora(rank=64), 159_907_840),  # As the program of Dettmers et al. 2023 prints it.
        ("llama-2-7b", Lora(rank=8, targets=("q_proj", "v_proj")), 4_194_304),  # PEFT's usual targets.
    ],
)
def test_adapters_have_the_parameters_that_their_programs_count(model: str, lora: Lora, count: int) -> None:
    shape, _inputs = assume_shape(ModelClaim(name=model, lora=lora))
    assert trained_parameters(shape) == count


def test_frozen_weights_in_four_bits_take_what_the_paper_says() -> None:
    # Dettmers et al. 2023, section 3: 0.127 bits a parameter of constants beside 4; the embeddings stay as they are.
    shape, _inputs = assume_shape(ModelClaim(name="llama-2-7b", lora=Lora(rank=64, bits=4)))
    frozen = frozen_bytes(shape, shape.parameters, Layout(), shape.layers)
    weights = shape.layers * shape.layer_weights
    assert frozen == pytest.approx(weights * 4.127 / 8 + (shape.parameters - weights) * 2)


def test_adam_in_eight_bits_keeps_what_bitsandbytes_does() -> None:
    # bitsandbytes 0.50.2, AdamW8bit of 3.9 M parameters in bf16: 2.034 bytes a parameter with its tables.
    eight = Layout(precision="bf16", weights="pure", optimizer="adam-8bit")
    assert model_states(Held(1.0, 0), eight)[2] == pytest.approx(2.034, rel=0.005)


def test_each_way_to_keep_weights_takes_its_bytes() -> None:
    sums = {
        weights: sum(model_states(Held(1.0, 0), Layout(precision="bf16", weights=weights)))
        for weights in ("master", "autocast", "pure")
    }
    assert sums == {"master": 16, "autocast": 16, "pure": 8}
    states = [
        Layout(precision="fp32", optimizer=name).bytes_per_optimizer_state for name in ("adam", "momentum", "sgd")
    ]
    assert states == [8, 4, 0]
