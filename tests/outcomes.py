"""How attempts have ended, as tests ask it."""

from __future__ import annotations

import re

from dttui.errors import ExitCode
from dttui.jobs.exit_codes import exit_code_of
from dttui.jobs.outcome import AttemptOutcome


def ended_with(outcome: AttemptOutcome, code: ExitCode, pattern: str = "") -> AttemptOutcome:
    """Return an outcome, which is to be of this exit code and in words that match."""
    found = exit_code_of(outcome)
    assert found == code, f"{found}: {outcome.message}"
    assert re.search(pattern, outcome.message), outcome.message
    return outcome
