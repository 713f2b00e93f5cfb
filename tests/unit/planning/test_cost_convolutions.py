"""Networks of convolutions: against what torch counts, and against what NVIDIA has measured."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from dttui.planning.cost.assumptions import (
    HardwareClaim,
    ModelClaim,
    UnknownAssumptionError,
    assume_hardware,
    assume_shape,
)
from dttui.planning.cost.convolutions import kept_bytes
from dttui.planning.cost.hardware import Hardware, Precision, gpu_table
from dttui.planning.cost.layout import Layout, faults
from dttui.planning.cost.layout_search import Wish
from dttui.planning.cost.memory import memory_per_gpu
from dttui.planning.cost.recommend import recommend
from dttui.planning.cost.residuals import CONVOLUTIONS, extrapolations
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.step_time import step_time
from dttui.spec.known_models import Convolutions, filled, find_model
from dttui.spec.models import Model

MODELS = ("resnet-18", "resnet-34", "resnet-50", "resnet-101", "resnet-152")
PUBLISHED: tuple[tuple[str, int, Precision, int, float], ...] = (
    # NVIDIA/DeepLearningExamples, ResNet-50 v1.5, training: GPU, how many, precision, images of one at once, images/s
    ("A100-80GB", 1, "fp16", 256, 2470),  # PyTorch 21.03
    ("A100-80GB", 8, "fp16", 256, 16621),
    ("A100-80GB", 1, "tf32", 256, 938),
    ("A100-80GB", 8, "tf32", 256, 7248),
    ("V100-16GB", 1, "fp16", 256, 1200),
    ("V100-16GB", 8, "fp16", 256, 8322),
    ("V100-16GB", 1, "fp32", 128, 367),
    ("V100-16GB", 8, "fp32", 128, 2855),
    ("V100-32GB", 1, "fp16", 256, 1156),
    ("V100-32GB", 8, "fp16", 256, 8056),
    ("A100-40GB", 1, "fp16", 256, 2375),  # TensorFlow with XLA
    ("A100-40GB", 8, "fp16", 256, 17400),
    ("A100-40GB", 1, "tf32", 256, 909),
    ("A100-40GB", 8, "tf32", 256, 7000),
    ("V100-16GB", 1, "fp16", 256, 1270),
    ("V100-16GB", 8, "fp16", 256, 9510),
    ("V100-16GB", 1, "fp32", 128, 412),
    ("V100-16GB", 8, "fp32", 128, 3170),
    ("A100-80GB", 1, "fp16", 512, 3410.52),  # MXNet 22.10 and 20.12
    ("A100-80GB", 8, "fp16", 512, 26673.72),
    ("A100-80GB", 1, "tf32", 512, 1055.78),
    ("A100-80GB", 8, "tf32", 512, 8247.44),
    ("V100-16GB", 1, "fp16", 192, 1376),
    ("V100-16GB", 8, "fp16", 192, 10723),
    ("V100-16GB", 1, "fp32", 96, 384),
    ("V100-16GB", 8, "fp32", 96, 3005),
)


def shape_of(name: str) -> tuple[ModelShape, Convolutions]:
    shape, _inputs = assume_shape(ModelClaim(name=name))
    assert shape.convolutions is not None
    return shape, shape.convolutions


def machine(gpu: str, gpus: int) -> Hardware:
    return assume_hardware(HardwareClaim(gpu, gpus), gpu_table())[0]


@pytest.mark.torch
def test_sizes_are_what_torch_counts() -> None:
    script = Path(__file__).with_name("convolutions.py")
    told = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    for name, line in zip(MODELS, told.splitlines(), strict=True):
        counted = json.loads(line)
        shape, of = shape_of(name)
        found = (int(shape.parameters), of.operations, of.values)
        assert found == (counted["parameters"], counted["operations"], counted["values"])
        kept = kept_bytes(shape, of, Layout(micro_batch=1, precision="fp32")) * shape.layers
        assert kept == pytest.approx(counted["kept"], rel=0.05)


def test_steps_take_about_what_was_published() -> None:
    """Nothing is fitted to these figures: mean errors are told as they are."""
    shape, _of = shape_of("ResNet50")
    misses: dict[str, list[float]] = {}
    for gpu, gpus, precision, images, rate in PUBLISHED:
        layout = Layout(gpus, micro_batch=images, global_batch=gpus * images, precision=precision, optimizer="momentum")
        estimated = step_time(shape, layout, machine(gpu, gpus)).value
        kind = "half" if precision == "fp16" else "single"
        misses.setdefault(kind, []).append(estimated / (gpus * images / rate) - 1)
    assert mean(map(abs, misses["half"])) < 0.13
    assert mean(map(abs, misses["single"])) < 0.25
    off = [1 / (1 + miss) for kind in misses.values() for miss in kind]
    held = mean(CONVOLUTIONS.low <= ratio <= CONVOLUTIONS.high for ratio in off)
    assert held >= 0.8
    assert len(off) == 26


def test_operations_are_six_for_each_product_with_a_sum_and_eight_where_they_are_done_again() -> None:
    shape, of = shape_of("resnet-50")
    assert shape.flops(256) == 6 * 256 * of.operations
    assert shape.flops(256, recompute=True) == 8 * 256 * of.operations


def test_more_is_kept_in_fp32_and_less_where_blocks_are_computed_again() -> None:
    shape, _of = shape_of("resnet-50")
    half = Layout(micro_batch=256, global_batch=256, precision="fp16")
    sizes = [
        memory_per_gpu(shape, layout).parts["activations"]
        for layout in (half, replace(half, precision="fp32"), replace(half, recompute="full"))
    ]
    assert sizes[0] < sizes[1] < 2 * sizes[0]
    assert sizes[2] == pytest.approx(sizes[0] / 3)


def test_a_compiled_network_moves_less() -> None:
    shape, _of = shape_of("resnet-50")
    layout = Layout(micro_batch=256, global_batch=256, precision="fp16")
    eager, compiled = (
        step_time(shape, replace(layout, compiled=is_so), machine("A100-80GB", 1)).value for is_so in (False, True)
    )
    assert 0.6 < compiled / eager < 0.9


def test_convolutions_are_not_split_nor_trained_by_who_makes_transformers() -> None:
    shape, _of = shape_of("resnet-50")
    for layout in (Layout(data=4, tensor=2), Layout(data=4, pipeline=2)):
        assert "convolutions are not split" in "".join(
            fault.message for fault in faults(replace(layout, global_batch=16), shape, 8, 8)
        )
    hardware = machine("V100-16GB", 16)
    shape, inputs = assume_shape(ModelClaim(name="resnet-50"))
    more = assume_hardware(HardwareClaim("V100-16GB", 16), gpu_table())[1]
    advice = recommend(shape, hardware, 4096, {**inputs, **more}, Wish(precision="fp16"))
    best = advice.candidates[0]
    assert (best.data_parallel_size, best.micro_batch, best.frameworks[0]) == (16, 256, "pytorch-ddp")
    assert "megatron-lm" not in best.frameworks


def test_what_a_transformer_has_is_refused_of_them() -> None:
    with pytest.raises(UnknownAssumptionError, match="resnet50 is a network of convolutions: it has no seq length"):
        assume_shape(ModelClaim(name="resnet50", seq_length=1024))
    # What frameworks say of all their models changes nothing.
    assume_shape(ModelClaim(name="resnet50", attention="plain", dropout=False))


def test_no_transformer_is_made_of_their_name() -> None:
    assert filled(Model(name="resnet50")) == Model(name="resnet50")
    known = find_model("microsoft/resnet-50")
    assert known is not None
    assert known.name == "resnet-50"


def test_other_gpus_than_those_that_were_measured_are_told() -> None:
    shape, _of = shape_of("resnet-50")
    layout = Layout(micro_batch=256, global_batch=256)
    assert extrapolations(shape, layout, machine("V100-16GB", 1)) == []
    assert extrapolations(shape, layout, machine("H100", 1)) == ["H100 GPUs"]
