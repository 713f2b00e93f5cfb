"""Measuring links and collectives, and drawing them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dttui.app.caller import ForCaller, for_caller

if TYPE_CHECKING:
    from dttui.compose.bench_models import BenchReport, KeptBench
    from dttui.inventory.models import Environment, Inventory
    from dttui.jobs.directory import JobDirectory
    from dttui.jobs.view import JobView
    from dttui.planning.cost.round_by_round import RoundByRound
    from dttui.planning.submission import Submission
    from dttui.spec.findings import Finding


class BenchCalls(ForCaller):
    """What is measured for one caller."""

    @for_caller
    def submission(
        self, inventory: Inventory, environments: Sequence[Environment], like: Submission | None, largest: int
    ) -> Submission:
        """Return the job that measures links and collectives; see there. Raises UsageError for fewer than two hosts."""
        from dttui.compose.link_bench import bench_submission

        return bench_submission(inventory, environments, like, largest)

    @for_caller
    def explain(
        self, algorithm: str, ranks: int, size: int, environments: Sequence[Environment]
    ) -> tuple[RoundByRound, str]:
        """Return who sends what to whom, and for which link it is priced; see there. Raises UsageError."""
        from dttui.compose.link_bench import explain_collective

        return explain_collective(algorithm, ranks, size, environments, time.time())

    @for_caller
    def so_far(self, directory: JobDirectory) -> BenchReport:
        """Return what a bench that may still run has found."""
        from dttui.compose.bench_report import read_report

        return read_report(directory)

    @for_caller
    def finish(self, directory: JobDirectory, view: JobView) -> tuple[KeptBench, tuple[Finding, ...]]:
        """Return what a bench that is over has found, kept for plans to come; and all there is to say of it.

        Args:
            directory: of its job.
            view: what is known of that.
        """
        from dttui.compose.bench_results import finish_bench

        return finish_bench(directory, view, time.time())

    @for_caller
    def kept(self, environments: Sequence[Environment]) -> tuple[KeptBench, tuple[Finding, ...]] | None:
        """Return the newest bench that was kept of hosts among these, and what there is to say of it.

        Raises:
            UsageError: what is kept cannot be read.
        """
        from dttui.compose.bench_findings import bench_findings
        from dttui.compose.kept_benches import newest_bench

        found = newest_bench(environments)
        return (found, bench_findings(found.report)) if found is not None else None
