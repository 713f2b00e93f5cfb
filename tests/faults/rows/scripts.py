"""The script: every way in which the tests break one."""

from __future__ import annotations

from collections.abc import Sequence

from tests.faults.broken_scripts import LIGHT, TOGETHER, TORCH, Broken
from tests.faults.fault import Fault

WITHIN_S = 120
_BROKEN = "tests/faults/test_broken_scripts.py::"


def _row(name: str, ways: Sequence[Broken], test: str) -> Fault:
    injected = f"{len(ways)} scripts that fail: {'; '.join(way.name for way in ways)}"
    return Fault(name, injected, ("P3",), WITHIN_S, (f"{_BROKEN}{test}",))


ROWS = (
    _row("a script that is broken", LIGHT, "test_what_breaks_a_script_is_told_for_what_it_is"),
    _row("a step that torch refuses", TORCH, "test_what_torch_refuses_is_told_for_what_it_is"),
    _row("ranks that do not go together", TOGETHER, "test_ranks_that_do_not_go_together_are_told_so"),
)
