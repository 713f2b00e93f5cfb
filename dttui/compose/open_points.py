"""What a valid job file leaves open and a plan will ask for, as far as that takes neither inventory nor hosts."""

from __future__ import annotations

import posixpath
from pathlib import Path

from dttui.planning.completeness import check_completeness
from dttui.spec.findings import Finding, Severity
from dttui.spec.models import Job, Run
from dttui.workdir.selection import check_script


def check_open_points(job: Job, base: Path) -> list[Finding]:
    """Return what is open, as notes; what is wrong whatever else the job will say, the framework's options, as errors.

    Args:
        job: a valid job.
        base: directory of its file, where its script is looked for.
    """
    findings = [finding for finding in check_completeness(job) if finding.severity is Severity.ERROR]
    if job.dataset is None:
        from dttui.inventory.models import Inventory  # As below: what most files say needs no looking up.
        from dttui.planning.job_sources import locate_dataset

        findings += locate_dataset(job, Inventory())[1]
    if not job.cluster.nodes:
        from dttui.planning.roster import no_nodes

        findings.append(no_nodes(job))
    if job.run is not None:
        findings += _check_script(job.run, base)
    return [
        finding if finding.code == "framework-option" else finding.model_copy(update={"severity": Severity.INFO})
        for finding in findings
    ]


def _check_script(run: Run, base: Path) -> list[Finding]:
    """Look for a script that is sent; one on the hosts is theirs."""
    if run.script is None or posixpath.isabs(run.script) or posixpath.isabs(run.workdir or ""):
        return []
    return check_script(run.script, base / (run.workdir or "."))
