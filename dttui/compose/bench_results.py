"""The end of a bench: its report, why it ended where it did not come to it, and what is kept for plans to come."""

from __future__ import annotations

from dttui.compose.bench_findings import bench_findings
from dttui.compose.bench_models import KeptBench
from dttui.compose.bench_report import measured_by, read_report
from dttui.compose.kept_benches import keep_bench
from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.evidence import read_evidence
from dttui.errors import UsageError
from dttui.i18n import _
from dttui.jobs.directory import JobDirectory
from dttui.jobs.view import JobView
from dttui.preflight.node_reachability import record
from dttui.spec.findings import Finding, warning


def finish_bench(directory: JobDirectory, view: JobView, now: float) -> tuple[KeptBench, tuple[Finding, ...]]:
    """Return what the job of a bench has found, and what there is to say; keep both rows and links.

    Args:
        directory: of the job.
        view: what is known of it.
        now: seconds since the epoch.

    Raises:
        UsageError: what the job's directory has of it cannot be read, or what is known of links.
    """
    try:
        return _finished(directory, view, now)
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault).partition("\n")[0]
        message = _("{path} cannot be read: {reason}").format(path=directory.path, reason=reason)
        raise UsageError(message, _("If the job still runs, `dttui ps` names it.")) from fault


def _finished(directory: JobDirectory, view: JobView, now: float) -> tuple[KeptBench, tuple[Finding, ...]]:
    report = read_report(directory)
    names = {node.name for node in directory.read_plan().nodes}
    environments = [item for item in directory.read_launch().inventory.environments if item.name in names]
    cause = diagnose(read_evidence(directory, view)).cause if view.went_wrong else None
    findings = [*bench_findings(report, cause.code if cause is not None else None)]
    if (unkept := record(measured_by(report, environments, now))) is not None:
        findings.append(unkept)
    addresses = {item.name: item.training_address for item in environments}
    kept = KeptBench(measured_at=now, job_id=directory.job_id, addresses=addresses, report=report)
    try:
        keep_bench(kept)
    except UsageError as refusal:
        findings.append(warning("bench-not-kept", "bench", refusal.message, refusal.hint))
    return kept, tuple(findings)
