"""How far estimates are from what was measured: `python bench/accuracy.py [--half end]`, with `--write` the tables.

Kinds of runs apart: mean and median error of the step time, the share of runs that the printed range holds, how many
are called impossible though they ran; and what a layout picked by estimates took over the fastest measured one.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.estimates import Run, runs
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.residuals import residuals_of
from dttui.planning.cost.step_time import step_time
from tests.unit.planning.published_runs import HELD_OUT, ITERATIONS, THROUGHPUTS, gpt, selene
from tests.unit.planning.published_runs import shape_of as held_out_shape

TABLES = Path(__file__).parents[1] / "docs/measured-runs.md"
HALVES = {"fit": "Constants are fitted to these", "end": "No constant is fitted to these"}


def kind_of(run: Run) -> str:
    """Return which runs it is told with."""
    if run.shape.convolutions is not None:
        return "convolutions"
    if run.shape.lora is not None:
        return "adapters"
    if run.layout.offload != "none" or run.layout.offload_activations:
        return "offload"
    if run.shape.experts is not None:
        return "experts"
    if run.layout.schedule.startswith("ZB") or run.name.startswith("zero-bubble"):
        return "pipelines with and without bubbles"
    return "shared sequences" if run.layout.context > 1 else "dense"


def miss(run: Run) -> float:
    """Return how far the estimated step time is off, as a share of the measured one."""
    assert run.step_s is not None
    return run.time.value / run.step_s - 1


def is_held(run: Run) -> bool:
    """Whether the printed range has the measured step time."""
    low_s, high_s = range_of(run)
    return run.step_s is not None and low_s <= run.step_s <= high_s


def range_of(run: Run) -> tuple[float, float]:
    """Return the printed range of the step time, seconds."""
    time = run.time
    return residuals_of(run.shape, run.layout, run.hardware).range_s(time.best_s, time.worst_s)


def regrets(found: list[Run]) -> list[float]:
    """Return, of each set of layouts of a model on the same GPUs, the picked one's measured time over the least.

    Runs of one set differ in layout alone: model, sequences, GPUs, precision and source are the same. Times are those
    of a token, as batches may differ.
    """
    sets: dict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in found:
        if run.step_s is not None:
            sets[run.group, run.shape, run.hardware.gpus, run.layout.precision].append(run)
    told = []
    for members in sets.values():
        if len({(run.layout.global_batch, run.layout) for run in members}) > 1:
            picked = min(members, key=lambda run: run.time.value / run.layout.global_batch)
            told.append(_a_sequence(picked) / min(map(_a_sequence, members)))
    return told


def _a_sequence(run: Run) -> float:
    assert run.step_s is not None
    return run.step_s / run.layout.global_batch


def summary(found: list[Run]) -> Iterator[str]:
    """Yield a table of the kinds of runs, and what holds of all."""
    kinds: dict[str, list[Run]] = defaultdict(list)
    timed = [run for run in found if run.step_s is not None]
    for run in timed:
        kinds[kind_of(run)].append(run)
    yield "| runs | | mean error | median | within the range |"
    yield "|---|---|---|---|---|"
    for kind, members in (*sorted(kinds.items()), ("all", timed)):
        misses = [abs(miss(run)) for run in members]
        held = mean(map(is_held, members))
        yield f"| {kind} | {len(members)} | {mean(misses):.1%} | {median(misses):.1%} | {held:.0%} |"
    groups: dict[str, list[float]] = defaultdict(list)
    for run in timed:
        groups[run.group].append(abs(miss(run)))
    picks = regrets(found)
    impossible = sum(run.is_called_impossible for run in found)
    yield ""
    yield (
        f"By groups of like runs (a source's runs of a model on a GPU) the mean error is "
        f"{mean(mean(misses) for misses in groups.values()):.1%}. "
        f"Of {len(found)} runs {impossible} are called impossible. "
        f"In {len(picks)} sets of layouts of one model on the same GPUs, the layout that estimates pick took "
        f"{mean(picks):.2f} times as long as the fastest measured one on average, {max(picks):.2f} times at most."
    )


def layout_text(layout: Layout) -> str:
    """Return a layout in short: `tp8 pp8 vp5 dp4 zero1 b1/512 full fp8`."""
    shown = [("tp", layout.tensor), ("pp", layout.pipeline), ("vp", layout.virtual_stages), ("cp", layout.context)]
    shown += [("ep", layout.expert), ("dp", layout.data)]
    parts = [f"{name}{degree}" for name, degree in shown if degree > 1]
    parts += [f"zero{layout.zero_stage}"] if layout.zero_stage else []
    parts += [f"b{layout.micro_batch}/{layout.global_batch}"]
    parts += [layout.recompute] if layout.recompute != "none" else []
    return " ".join([*parts, layout.precision])


def tables() -> Iterator[str]:
    """Yield the document: the old runs, and both halves of the new ones."""
    yield "# Measured runs, and what estimates say of them"
    yield ""
    yield "Written by `python bench/accuracy.py --write`. Seconds a step; sources, notes and traps are in"
    yield "[bench/measured_runs](../bench/measured_runs/README.md), whose rows have the names of the first column."
    yield "Of the layout: tensor, pipeline, chunks, context, expert and data degrees, ZeRO stage, micro-batch and"
    yield "global batch, recomputation, precision."
    yield ""
    yield "## Runs of 2021 and 2022"
    yield ""
    yield "GPT's shape, plain attention, A100. The constants of A100s are from the first two sources."
    yield ""
    yield "| source | GPUs | layout | measured TFLOP/s a GPU | estimated | ratio of times |"
    yield "|---|---|---|---|---|---|"
    for source, layout, measured, estimated in _published():
        yield (
            f"| {source} | {layout.ranks:,} | {layout_text(layout)} | {measured:.0f} | {estimated:.0f} "
            f"| {measured / estimated:.2f} |"
        )
    for half, title in HALVES.items():
        found, left = runs(half)
        yield ""
        yield f"## {title}"
        yield ""
        yield from summary(found)
        yield ""
        yield f"Left out: {', '.join(f'{count} {why}' for why, count in sorted(left.items()))}."
        yield ""
        yield "| run | GPUs | layout | measured s | estimated s | ratio |"
        yield "|---|---|---|---|---|---|"
        for run in sorted(found, key=lambda run: run.name):
            if run.step_s is not None:
                yield (
                    f"| {run.name} | {run.hardware.gpus:,} × {run.hardware.gpu.name} | {layout_text(run.layout)} "
                    f"| {run.step_s:.3g} | {run.time.value:.3g} | {run.time.value / run.step_s:.2f} |"
                )


def _published() -> Iterator[tuple[str, Layout, float, float]]:
    """Yield source, layout, measured and estimated TFLOP/s a GPU, recomputed operations counted."""
    for run in THROUGHPUTS:
        found = step_time(gpt(run), run.layout, selene(run.gpus))
        yield "Narayanan et al. 2021, Table 1", run.layout, run.tflops_per_gpu, found.tflops_per_gpu
    for iteration in ITERATIONS:
        shape, ranks = gpt(iteration), iteration.tensor * iteration.pipeline
        chunks, micro, batch = iteration.chunks, iteration.micro_batch, iteration.global_batch
        full = Layout(
            1, iteration.tensor, iteration.pipeline, chunks, micro, batch, 0, "full", precision="fp16", overlap=False
        )
        selective = replace(full, recompute="selective", sequence_parallel=True)
        for layout, seconds in ((full, iteration.full_s), (selective, iteration.selective_s)):
            found = step_time(shape, layout, selene(ranks))
            measured = found.flops_per_gpu / seconds / 1e12
            yield "Korthikanti et al. 2022, Table 5", layout, measured, found.tflops_per_gpu
    for held in HELD_OUT:
        found = step_time(held_out_shape(*held.shape), held.layout, selene(held.layout.ranks, held.gpu, held.card_gbps))
        yield held.source, held.layout, held.tflops_per_gpu, found.tflops_per_gpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES, default="fit")
    parser.add_argument("--write", action="store_true", help="write docs/measured-runs.md anew")
    options = parser.parse_args()
    if options.write:
        TABLES.write_text("\n".join(tables()) + "\n", encoding="utf-8")
    else:
        print("\n".join(summary(runs(options.half)[0])))


if __name__ == "__main__":
    main()
