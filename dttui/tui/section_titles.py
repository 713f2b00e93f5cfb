"""What the sections of a job are called on the compose screen, in the order in which they stand there."""

from __future__ import annotations

from dttui.i18n import _


def section_rows() -> tuple[tuple[str, str], ...]:
    """Return each section that has a form of its own: its key, and a title of at most 11 cells."""
    return (
        ("strategy", _("Parallelism")),
        ("model", _("Model sizes")),
        ("run", _("Variables")),
        ("recovery", _("Recovery")),
        ("monitoring", _("Monitoring")),
        ("communication", _("Network")),
        ("resources", _("Resources")),
        ("cluster", _("Topology")),
        ("job", _("Script")),
    )


def section_title(section: str) -> str:
    """Return the title of the dialog of a section."""
    return {
        "strategy": _("Parallelism: degrees, ZeRO, schedule, batch"),
        "model": _("Model: all its sizes"),
        "run": _("Environment variables and secrets"),
        "recovery": _("Recovery and checkpoints"),
        "monitoring": _("Metrics, alerts, health, logs"),
        "communication": _("How ranks talk"),
        "resources": _("What is asked of each node: GPUs, CPUs, storage, network"),
        "cluster": _("Spare candidates and how nodes are connected"),
        "job": _("What the script is told, and the version"),
    }[section]
