"""Measured runs that papers publish, which the cost model is held against. Shapes are GPT's with 2,048 tokens."""

from __future__ import annotations

from typing import NamedTuple

from dttui.planning.cost.hardware import Hardware, default_links, gpu_table
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


def gpt(run: Throughput | Iteration) -> ModelShape:
    count = parameter_count(run.layers, run.hidden, SEQ_LENGTH, VOCAB_SIZE)
    return ModelShape(run.layers, run.hidden, run.heads, SEQ_LENGTH, VOCAB_SIZE, count)


def selene(gpus: int) -> Hardware:
    """DGX A100 nodes with a 200 Gbit/s card a GPU, which both papers ran on."""
    gpu = gpu_table().find("A100-80GB")
    assert gpu is not None
    intra, inter = default_links(gpu)
    return Hardware(gpu, gpus, 8, intra, inter)
