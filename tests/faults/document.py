"""Writes the table of faults as docs/faults.md."""

from __future__ import annotations

import re

from tests.faults.disks import ON_DISKS, OnDisks
from tests.faults.fault import PROMISES, Fault
from tests.faults.table import FAULTS

_HEAD = """\
# Faults

What goes wrong around a job, how the tests make it go wrong for real, and which of the promises holds all the same.
Each test states its deadline and looks at what stays behind: processes with the job's mark, controllers, sockets,
bridges and ports. `make faults` injects every one; tests from elsewhere in a row run in `make test`,
`make integration` or `make torch`. Written by `python -m tests.faults > docs/faults.md`.

"""


_DISKS = """
## By where checkpoints lie

Faults of a job on isolated hosts that is started again, and the tests of what the training did afterwards: where all
hosts see one directory of checkpoints, where each has its own disk, and where the script keeps none. What only
`make thorough` runs of them is said so; all else runs at each change.

| fault | a shared directory | own disks | no checkpoints | not tested |
|---|---|---|---|---|
"""


def render() -> str:
    """Return the document."""
    promises = "".join(f"- **{key}** {text}\n" for key, text in PROMISES.items())
    rows = "".join(_row(fault) for fault in FAULTS)
    head = "| fault | how it is injected | promises | within | left behind | shown by |\n|---|---|---|---|---|---|\n"
    return f"{_HEAD}{promises}\n{head}{rows}{_DISKS}{''.join(map(_row_on_disks, ON_DISKS))}"


def _row(fault: Fault) -> str:
    tests = "<br>".join(_link(test) for test in fault.tests)
    cells = (fault.name, fault.injected, " ".join(fault.promises), f"{fault.within_s:g} s", fault.left, tests)
    return f"| {' | '.join(cells)} |\n"


def _row_on_disks(row: OnDisks) -> str:
    def told(test: str) -> str:
        cases = row.thorough.get(test)
        if cases is None:
            return _link(test)
        return f"{_link(test)} (`make thorough` alone{': ' * bool(cases)}{cases})"

    cells = ("<br>".join(map(told, tests)) or "–" for tests in (row.shared, row.own, row.neither))
    return f"| {' | '.join((row.name, *cells, row.lacks or 'nothing'))} |\n"


def _link(test: str) -> str:
    path, _, name = test.partition("::")
    words = re.sub(r"^test_", "", name).replace("_", " ")
    return f"[{words}](../{path})"
