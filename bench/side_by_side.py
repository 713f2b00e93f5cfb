"""Holds two open estimators against the measured rows that ours is held against, beside ours.

`python bench/side_by_side.py --calculon DIR --llm-analysis DIR [--half fit|end] [--rows]`, the directories being clones
of github.com/calculon-ai/calculon and github.com/cli99/llm-analysis. What they need besides is named where it is
missing: numpy, pandas and psutil; fire. bench/other_estimators.py tells how each is asked.

Errors are means of |estimate ÷ measured − 1| of a step's time, over the rows that an estimator takes, beside ours on
the same rows. Our constants are fitted to the half `fit`, theirs are not; so both are told once more with one figure
fitted to it: Calculon with a factor of its times, llm-analysis with `flops_efficiency`, as its README has users do.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.accuracy import kind_of
from bench.estimates import Run, runs
from bench.other_estimators import ZERO_3, Answer, Calculon, Estimator, LlmAnalysis

EFFICIENCIES = [percent / 100 for percent in range(10, 101)]
FACTORS = [percent / 100 for percent in range(10, 1001)]
Answers = dict[str, Answer]
"""By the row's name."""


def answers(estimator: Estimator, rows: Iterable[Run]) -> tuple[Answers, Counter[str]]:
    """Return what an estimator says of the rows that it can take, and how many it cannot, by why."""
    found: Answers = {}
    left: Counter[str] = Counter()
    for run in rows:
        answer = estimator.answer(run)
        if isinstance(answer, str):
            left[answer] += 1
        else:
            found[run.name] = answer
    return found, left


def error_of(rows: Sequence[Run], estimate: Callable[[Run], float]) -> float | None:
    """Return the mean error of a step's time; `None` of no rows."""
    errors = [abs(estimate(run) / run.step_s - 1) for run in rows if run.step_s is not None]
    return mean(errors) if errors else None


def fitted_efficiency(directory: Path, rows: Sequence[Run]) -> float:
    """Return the `flops_efficiency` by which llm-analysis misses the rows least."""

    def missed(efficiency: float) -> float:
        found, _ = answers(LlmAnalysis(directory, efficiency), rows)
        return error_of([run for run in rows if run.name in found], lambda run: found[run.name].step_s) or 0

    return min(EFFICIENCIES, key=missed)


def fitted_factor(found: Answers, rows: Sequence[Run]) -> float:
    """Return the factor of an estimator's times by which it misses the rows least."""
    taken = [run for run in rows if run.name in found]
    return min(FACTORS, key=lambda factor: error_of(taken, lambda run: factor * found[run.name].step_s) or 0)


def impossible(estimator: Estimator, rows: Iterable[Run], found: Answers) -> tuple[int, int, int]:
    """Return how many rows an estimator calls impossible, how many ours does, and of how many.

    What the source leaves open of recomputation is taken for the best, as ours takes it; rows whose optimizer it leaves
    open are not judged.
    """
    theirs = ours = judged = 0
    for run in rows:
        if run.name not in found or found[run.name].nearest is not None or "optimizer" in run.unsaid:
            continue
        least = replace(run, layout=replace(run.layout, recompute="full")) if "recompute" in run.unsaid else run
        answer = estimator.answer(least)
        judged += 1
        theirs += not isinstance(answer, str) and answer.memory_bytes > run.hardware.gpu.memory_bytes
        ours += run.is_called_impossible
    return theirs, ours, judged


class Columns:
    """What is printed of some rows: of all, and of those that each estimator takes."""

    HEAD = " rows   ours |  rows   ours Calculon fitted |  rows   ours llm-analysis fitted"

    def __init__(self, calculon: Answers, factor: float, analysis: Answers, fitted: Answers) -> None:
        self._calculon = calculon
        self._factor = factor
        self._analysis = analysis
        self._fitted = fitted

    def errors(self, rows: Sequence[Run]) -> list[float | None]:
        first = [run for run in rows if run.name in self._calculon]
        second = [run for run in rows if run.name in self._analysis]
        return [
            error_of(rows, _ours),
            error_of(first, _ours),
            error_of(first, lambda run: self._calculon[run.name].step_s),
            error_of(first, lambda run: self._factor * self._calculon[run.name].step_s),
            error_of(second, _ours),
            error_of(second, lambda run: self._analysis[run.name].step_s),
            error_of(second, lambda run: self._fitted[run.name].step_s),
        ]

    def line(self, rows: Sequence[Run], label: str) -> str:
        return self._line(rows, self.errors(rows), label)

    def mean_line(self, groups: Sequence[Sequence[Run]], label: str) -> str:
        columns = zip(*(self.errors(rows) for rows in groups), strict=True)
        known = [[item for item in column if item is not None] for column in columns]
        errors = [mean(column) if column else None for column in known]
        return self._line([run for rows in groups for run in rows], errors, label)

    def _line(self, rows: Sequence[Run], errors: Sequence[float | None], label: str) -> str:
        ours, first, calculon, scaled, second, analysis, fitted = (_percent(item) for item in errors)
        taken = [sum(run.name in found for run in rows) for found in (self._calculon, self._analysis)]
        return (
            f"{len(rows):5} {ours:>6} | {taken[0]:5} {first:>6} {calculon:>8} {scaled:>6} | "
            f"{taken[1]:5} {second:>6} {analysis:>12} {fitted:>6}  {label}"
        )


def _ours(run: Run) -> float:
    return run.time.value


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _timed(half: str) -> tuple[list[Run], list[Run]]:
    all_rows, _ = runs(half)
    found = [run for run in all_rows if kind_of(run) not in ("adapters", "offload")]
    return found, [run for run in found if run.step_s is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calculon", type=Path, required=True, metavar="DIR")
    parser.add_argument("--llm-analysis", type=Path, required=True, metavar="DIR")
    parser.add_argument("--half", choices=["fit", "end"], default="fit")
    parser.add_argument("--rows", action="store_true", help="each row: estimates by what was measured")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    to_fit = _timed("fit")[1]
    calculon, plain = Calculon(options.calculon), LlmAnalysis(options.llm_analysis)
    factor = fitted_factor(answers(calculon, to_fit)[0], to_fit)
    efficiency = fitted_efficiency(options.llm_analysis, to_fit)
    found, timed = _timed(options.half)
    first, without_first = answers(calculon, timed)
    second, without_second = answers(plain, timed)
    columns = Columns(first, factor, second, answers(LlmAnalysis(options.llm_analysis, efficiency), timed)[0])
    if options.rows:
        for run in timed:
            told = [_ours(run), *(item[run.name].step_s if run.name in item else None for item in (first, second))]
            ratios = " ".join(f"{item / run.step_s:5.2f}" if item and run.step_s else "    –" for item in told)
            print(f"{ratios} {run.step_s:8.2f} s {run.name}")
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in timed:
        groups[run.group].append(run)
    print(Columns.HEAD)
    for group, rows in sorted(groups.items()):
        print(columns.line(rows, group))
    print(columns.line(timed, "all, means over rows"))
    print(columns.mean_line(list(groups.values()), "all, means over groups"))
    near = [run for run in timed if run.name in first and first[run.name].nearest is not None]
    print(columns.line(near, f"of them, Calculon: {ZERO_3}"))
    print(columns.line([run for run in timed if run not in near], "the others"))
    print(columns.line([run for run in timed if run.shape.experts is None], "without experts"))
    print(f"fitted: Calculon's times × {factor:.2f}; llm-analysis's flops_efficiency {efficiency:.2f}")
    estimators: tuple[tuple[str, Estimator, Counter[str]], ...] = (
        ("Calculon", calculon, without_first),
        ("llm-analysis", plain, without_second),
    )
    for name, estimator, without in estimators:
        reasons = "; ".join(f"{count} {why}" for why, count in without.most_common())
        print(f"{name} does not take {without.total()} rows: {reasons}")
        theirs, ours, judged = impossible(estimator, found, answers(estimator, found)[0])
        print(f"{name} calls {theirs} of {judged} runs impossible, which ran; ours {ours} of them")


if __name__ == "__main__":
    main()
