"""How long ranks of tests wait for an answer of each other before they take a rank for lost: a busy machine is slow."""

from __future__ import annotations

from dtagent.payload.collectives import rank_status, regrouping

ANSWER_S = 4.0


def be_patient() -> None:
    """Have this rank wait longer than a machine under load holds up a rank that lives."""
    rank_status.ANSWER_S = ANSWER_S
    regrouping._SILENT_S = 1.5 * ANSWER_S  # noqa: SLF001 - that no job has to know of
