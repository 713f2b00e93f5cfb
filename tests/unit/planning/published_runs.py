"""Measured runs that papers publish, which the cost model is held against. Shapes are GPT's with 2,048 tokens.

All are of programs of 2021 and 2022: attention kept its s² matrix, there was dropout, and gradients were reduced after
the backward pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dttui.planning.cost.hardware import Hardware, Precision, default_links, gpu_table
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.shape import ModelShape, parameter_count

SEQ_LENGTH = 2048
VOCAB_SIZE = 51200


class Throughput(NamedTuple):
    """A row of Table 1 of Narayanan et al. 2021 (A100-80GB, full recomputation)."""

    hidden: int
    layers: int
    heads: int
    tensor: int
    pipeline: int
    gpus: int
    global_batch: int
    micro_batch: int
    tflops_per_gpu: float

    @property
    def layout(self) -> Layout:
        data = self.gpus // (self.tensor * self.pipeline)
        return Layout(
            data,
            self.tensor,
            self.pipeline,
            micro_batch=self.micro_batch,
            global_batch=self.global_batch,
            recompute="full",
            precision="fp16",
            overlap=False,
        )


class Iteration(NamedTuple):
    """A row of Tables 3 to 5 of Korthikanti et al. 2022: seconds a step, GiB of activations of the first stage."""

    hidden: int
    layers: int
    heads: int
    tensor: int
    pipeline: int
    chunks: int
    micro_batch: int
    global_batch: int
    full_s: float
    selective_s: float
    tensor_gib: float
    selective_gib: float


THROUGHPUTS = (
    Throughput(2304, 24, 24, 1, 1, 32, 512, 16, 137),
    Throughput(3072, 30, 32, 2, 1, 64, 512, 16, 138),
    Throughput(4096, 36, 32, 4, 1, 128, 512, 16, 142),
    Throughput(6144, 40, 48, 8, 1, 256, 1024, 8, 135),
    Throughput(8192, 48, 64, 8, 2, 512, 1536, 4, 138),
    Throughput(10240, 60, 80, 8, 4, 1024, 1792, 2, 140),
    Throughput(12288, 80, 96, 8, 8, 1536, 2304, 2, 148),
    Throughput(16384, 96, 128, 8, 16, 1920, 2160, 1, 155),
    Throughput(20480, 105, 128, 8, 35, 2520, 2520, 1, 163),
    Throughput(25600, 128, 160, 8, 64, 3072, 3072, 1, 163),
)

ITERATIONS = (
    Iteration(6144, 48, 64, 8, 1, 1, 4, 4, 1.42, 1.10, 59.25, 9.56),
    Iteration(12288, 96, 96, 8, 8, 3, 1, 64, 18.13, 13.75, 66.84, 12.35),
    Iteration(20480, 105, 128, 8, 35, 3, 1, 280, 49.05, 37.83, 114.02, 23.08),
    Iteration(25600, 128, 160, 8, 64, 1, 1, 512, 94.42, 71.49, 131.25, 26.56),
)


class HeldOut(NamedTuple):
    """A run that no constant of the cost model was chosen by."""

    source: str
    shape: tuple[int, int, int, int]
    """Layers, hidden size, heads, vocabulary."""
    layout: Layout
    tflops_per_gpu: float
    gpu: str = "A100-80GB"
    card_gbps: float = 200
    """A GPU's share of its node's network."""


GPT_175B = (96, 12288, 96, VOCAB_SIZE)
GPT_530B = (105, 20480, 128, VOCAB_SIZE)


def _split(gpus: int, tensor: int, pipeline: int, micro: int, batch: int, zero: int, precision: Precision) -> Layout:
    data = gpus // (tensor * pipeline)
    return Layout(data, tensor, pipeline, 1, micro, batch, zero, "full", precision=precision, overlap=False)


def _of_seconds(seconds: float, gpus: int, batch: int) -> float:
    """What a step of MT-NLG in so many seconds comes to, operations that are computed again counted."""
    layers, hidden, heads, vocabulary = GPT_530B
    shape = ModelShape(layers, hidden, heads, SEQ_LENGTH, vocabulary, 530e9, attention="plain", dropout=True)
    return shape.flops(batch, recompute=True) / gpus / seconds / 1e12


_TABLE_2 = "Narayanan et al. 2021, Table 2, PTD-P"
_MT_NLG = "Smith et al. 2022, section 2.3: seconds a step"
HELD_OUT = (
    *(
        HeldOut(_TABLE_2, GPT_175B, _split(gpus, 8, 12, 1, 1536, 0, "fp16"), tflops)
        for gpus, tflops in ((384, 153), (768, 149), (1536, 141))
    ),
    *(
        HeldOut(_TABLE_2, GPT_530B, _split(gpus, 8, 35, 1, 2240, 0, "fp16"), tflops)
        for gpus, tflops in ((560, 171), (1120, 167), (2240, 159))
    ),
    *(
        HeldOut(_MT_NLG, GPT_530B, _split(gpus, 8, 35, 1, 1920, 0, "bf16"), _of_seconds(seconds, gpus, 1920))
        for gpus, seconds in ((2240, 60.1), (2800, 50.2), (3360, 44.4))
    ),
    HeldOut(
        "BigScience 2022, model card of BLOOM: four 100 Gbit/s links a node",
        (70, 14336, 112, 250880),
        _split(384, 4, 12, 2, 2048, 1, "bf16"),
        150,
        card_gbps=50,
    ),
    HeldOut(
        "Black et al. 2022, GPT-NeoX-20B, section 3",
        (44, 6144, 64, 50432),
        _split(96, 2, 4, 4, 1536, 1, "fp16"),
        117,
        "A100-40GB",
    ),
)


def gpt(run: Throughput | Iteration) -> ModelShape:
    count = parameter_count(run.layers, run.hidden, SEQ_LENGTH, VOCAB_SIZE)
    return ModelShape(run.layers, run.hidden, run.heads, SEQ_LENGTH, VOCAB_SIZE, count, attention="plain", dropout=True)


def shape_of(layers: int, hidden: int, heads: int, vocabulary: int = VOCAB_SIZE) -> ModelShape:
    count = parameter_count(layers, hidden, SEQ_LENGTH, vocabulary)
    return ModelShape(layers, hidden, heads, SEQ_LENGTH, vocabulary, count, attention="plain", dropout=True)


def selene(gpus: int, name: str = "A100-80GB", card_gbps: float = 200) -> Hardware:
    """DGX A100 nodes, as both papers ran on: with a 200 Gbit/s card a GPU, unless told otherwise."""
    gpu = gpu_table().find(name)
    assert gpu is not None
    intra, inter = default_links(gpu)
    return Hardware(gpu, gpus, 8, intra, replace(inter, bandwidth=card_gbps / 8 * 1e9))
