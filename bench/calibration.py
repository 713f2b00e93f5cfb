"""Trains small GPTs on this machine's CPU, and predicts one from the others: `python bench/calibration.py`.

Each round launches five jobs by dttui, of 1 and 2 ranks that talk by gloo, from a login node of its own: three widths
on one rank, and two on two. What they leave calibrates the type of CPU that `gpus.yaml` describes, and the job of the
other width and world size is predicted: from the three of one rank, and from two of these and one of two ranks.
Figures are medians of the rounds, in time and memory, before and after, beside the spread that the estimate tells.
Needs torch, and no root. On a busy machine the spread is that of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dttui.fleet.known_hardware import gpu_types  # noqa: E402 - found by the line above
from dttui.fleet.measured_runs import measured_runs  # noqa: E402 - likewise
from dttui.planning.cost.calibration import CheckedRun, MeasuredRun, check, learn  # noqa: E402 - likewise
from dttui.planning.cost.correction import Learned  # noqa: E402 - likewise
from dttui.planning.cost.estimate import traffic_share  # noqa: E402 - likewise
from dttui.planning.cost.step_time import TimeEstimate, step_time  # noqa: E402 - likewise

KIND = "bench-cpu-core"
CPU = {
    "name": KIND, "type": KIND, "device": "cpu", "memory_gib": 16, "fp32": 0.1, "memory_bandwidth": 10,
    "link": "pcie", "link_bandwidth": 1, "source": "a guess at one core",
}  # fmt: skip
TARGETS = {"time": 0.10, "memory": 0.05}
PLANS = {"from one rank": ("256x1", "320x1", "448x1"), "from one and two": ("256x1", "448x1", "256x2")}
PREDICTED = "384x2"
LAYERS, BLOCK, EACH = 4, 256, 4
"""Of every job: layers, tokens a sequence, sequences of a rank."""
DEADLINE_S = 600.0


@dataclass(frozen=True)
class Case:
    """One job."""

    width: int
    ranks: int

    @classmethod
    def read(cls, name: str) -> Case:
        width, _x, ranks = name.partition("x")
        return cls(int(width), int(ranks))

    def document(self, name: str, steps: int) -> dict[str, object]:
        batch = EACH * self.ranks
        arguments = {
            "--layers": LAYERS, "--width": self.width, "--heads": self.width // 64, "--block-size": BLOCK,
            "--batch-size": batch, "--steps": steps, "--log-every": 1,
        }  # fmt: skip
        model = {
            "layers": LAYERS, "hidden_size": self.width, "heads": self.width // 64, "seq_length": BLOCK,
            "vocab_size": 256, "precision": "fp32",
        }  # fmt: skip
        node = {"id": "here", "role": "master", "resources": {"gpu": {"count": self.ranks}}}
        job = {
            "name": name, "dataset": "none", "framework": "pytorch-ddp", "cluster": {"nodes": [node]}, "model": model,
            "strategy": {"type": "data_parallel", "data_parallel": {"batch_size": batch}},
            "run": {
                "script": "train.py", "workdir": "gpt", "python": sys.executable,
                "args": [str(word) for pair in arguments.items() for word in pair],
            },
        }  # fmt: skip
        return {"distributed_training": job}


class LoginNode:
    """A home of its own, with this machine as its one host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for name in ("CONFIG", "STATE", "CACHE"):
            os.environ[f"XDG_{name}_HOME"] = str(directory / name.lower())
        config = directory / "config" / "dttui"
        config.mkdir(parents=True)
        (config / "gpus.yaml").write_text(yaml.safe_dump({"gpus": [CPU]}))
        here = {"name": "here", "host": "localhost", "local": True, "agent_root": str(directory / "agent")}
        here |= {"python": sys.executable, "resources": {"gpu": {"count": 2, "type": KIND, "simulated": True}}}
        (config / "inventory.yaml").write_text(yaml.safe_dump({"environments": [here]}))
        shutil.copytree(ROOT / "examples" / "gpt", directory / "gpt", ignore=shutil.ignore_patterns("__pycache__"))

    def dttui(self, *arguments: str) -> str:
        words = [sys.executable, "-m", "dttui", *arguments]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def train(self, name: str, steps: int) -> MeasuredRun:
        """Run a job to its end; return what it has left."""
        path = self.directory / "job.yaml"
        path.write_text(yaml.safe_dump(Case.read(name).document(name, steps)))
        job = json.loads(self.dttui("--apply", str(path), "--new", "--output", "json"))["job_id"]
        return next(run for run in measured_runs() if run.job == job)


def at_constant_rate(known: Sequence[MeasuredRun], run: MeasuredRun) -> float:
    """Return seconds of a step where every rank makes as many operations a second as in the jobs that are known."""

    def operations(one: MeasuredRun) -> float:
        return one.basis.shape.flops(one.basis.layout.global_batch) / one.basis.gpus

    return operations(run) / median(operations(one) / (one.step_time_s or 0.0) for one in known)


def predicted(known: Sequence[MeasuredRun], run: MeasuredRun) -> tuple[CheckedRun, float, float]:
    """Return a job with its estimates, calibrated by others, and the spreads that are told of these."""
    table = gpu_types()
    learned = learn(known, table)
    (checked,) = check([run], table, learned)
    time, memory = learned[KIND].time["fp32"], learned[KIND].memory
    assert memory is not None
    return checked, time.spread_at(traffic_share(_time(run, learned[KIND]))), memory.spread


def _time(run: MeasuredRun, learned: Learned) -> TimeEstimate:
    hardware = run.basis.hardware(gpu_types(), learned)
    assert hardware is not None
    return step_time(run.basis.shape, run.basis.layout, hardware)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    errors: dict[tuple[str, str, str], list[float]] = {}
    names = list(dict.fromkeys([*(name for plan in PLANS.values() for name in plan), PREDICTED]))
    with tempfile.TemporaryDirectory() as directory:
        node = LoginNode(Path(directory))
        node.dttui("agents", "deploy")
        try:
            for number in range(options.rounds):
                runs = {name: node.train(name, options.steps) for name in names}
                told = "  ".join(
                    f"{name} {(run.step_time_s or 0) * 1e3:.0f} ms {(run.memory_bytes or 0) / 1e6:.0f} MB"
                    for name, run in runs.items()
                )
                print(f"round {number}: {told}", flush=True)
                if any(run.step_time_s is None or run.memory_bytes is None for run in runs.values()):
                    print("not counted: a step time was not to be told, since speeds and times of steps were at odds")
                    continue
                for plan, known in PLANS.items():
                    item, time_spread, memory_spread = predicted([runs[name] for name in known], runs[PREDICTED])
                    step_s, held = item.run.step_time_s or 0.0, item.run.memory_bytes or 0.0
                    constant = at_constant_rate([runs[name] for name in known], runs[PREDICTED])
                    found = {
                        ("time", "constant"): constant / step_s - 1,
                        ("time", "before"): item.step_time_before_s / step_s - 1,
                        ("time", "after"): item.step_time_after_s / step_s - 1,
                        ("time", "spread"): time_spread,
                        ("memory", "before"): item.memory_before_bytes / held - 1,
                        ("memory", "after"): item.memory_after_bytes / held - 1,
                        ("memory", "spread"): memory_spread,
                    }
                    for (what, when), value in found.items():
                        errors.setdefault((plan, what, when), []).append(value)
        finally:
            node.dttui("agents", "remove", "here", "--yes")
    for plan in PLANS if errors else ():
        constant = errors[plan, "time", "constant"]
        print(f"{PREDICTED} {plan}, time at a constant rate: |error| median {median(map(abs, constant)):.1%}")
        for what, target in TARGETS.items():
            before, after, spread = (errors[plan, what, when] for when in ("before", "after", "spread"))
            middle = median(map(abs, after))
            print(
                f"{PREDICTED} {plan}, {what}: before {median(before):+.0%}, after {median(after):+.1%}, |after| median "
                f"{middle:.1%} (at most {target:.0%}: {'yes' if middle <= target else 'no'}), worst "
                f"{max(map(abs, after)):.1%}; told ±{median(spread):.0%}, holds in "
                f"{sum(abs(item) <= own for item, own in zip(after, spread, strict=True))} of {len(after)}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
