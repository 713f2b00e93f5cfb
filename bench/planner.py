"""Times the planner: `python bench/planner.py`. Medians of several runs, and what issue 3 asks for beside them.

Each run alternates with a fixed loop, so that a figure of a busy machine can be told from one of slow code.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.planning.cost.assumptions import HardwareClaim, ModelClaim, assume_hardware, assume_shape
from dttui.planning.cost.hardware import gpu_table
from dttui.planning.cost.recommend import recommend
from dttui.planning.planner import plan
from dttui.spec import parse_job

NODES, GPUS_PER_NODE, RUNS = 1000, 8, 5
REFERENCE_ROUNDS = 1_000_000

JOB = """
distributed_training:
  name: large
  framework: pytorch-ddp
  dataset: none
  run: {script: /opt/train.py, args: [--steps, "100"]}
  model: {layers: 96, hidden_size: 12288, heads: 96, seq_length: 2048, vocab_size: 51200}
  strategy: {tensor_parallel_size: 8, pipeline_parallel_size: 8, data_parallel: {batch_size: 8000}}
  cluster:
    nodes:
"""


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the median seconds of some runs, and of the reference loop that ran between them."""
    seconds, reference = [], []
    for _ in range(RUNS):
        reference.append(elapsed_s(reference_loop))
        seconds.append(elapsed_s(work))
    return statistics.median(seconds), statistics.median(reference)


def elapsed_s(work: Callable[[], object]) -> float:
    """Return the seconds of one run."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def reference_loop() -> int:
    """Do a fixed amount of work that no change to dttui makes slower."""
    return sum(number * number for number in range(REFERENCE_ROUNDS))


def main() -> None:
    names = [f"gpu{index:04}" for index in range(NODES)]
    gpu = GpuResources(count=GPUS_PER_NODE, type="A100", memory=80 * 10**9)
    inventory = Inventory(
        environments=tuple(
            Environment(name=name, host=f"{name}.example.org", resources=Resources(gpu=gpu)) for name in names
        )
    )
    text = JOB + "".join(
        f"      - id: {name}\n        role: worker\n        resources:\n          gpu: {{count: {GPUS_PER_NODE}}}\n"
        for name in names
    )
    job = parse_job(text, "job.yaml")
    shape, inputs = assume_shape(ModelClaim(layers=96, hidden_size=12288, heads=96))
    hardware, more = assume_hardware(HardwareClaim("A100-80GB", NODES * GPUS_PER_NODE, GPUS_PER_NODE), gpu_table())
    made = plan(job, inventory)
    size = sum(len(file.text) for node in made.nodes for file in node.files)
    rows = [
        ("load and validate a job of 1,000 nodes", timed(lambda: parse_job(text, "job.yaml")), 0.3),
        ("plan it with all files", timed(lambda: plan(job, inventory)), 1.0),
        ("recommend for 175 B on 8,000 GPUs", timed(lambda: recommend(shape, hardware, 8000, {**inputs, **more})), 0.5),
    ]
    for name, (seconds, reference), target in rows:
        loops = f"{seconds / reference:.1f} × the loop's {reference:.3f} s"
        print(f"{name:<42} {seconds:.3f} s   (at most {target} s; {loops})")
    print(f"files of the plan: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
