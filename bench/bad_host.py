"""Measures what one bad host of fifty costs the others: `python bench/bad_host.py [LIE…]`, from the checkout.

Each lie alternates with the same job without one; a figure is a median over rounds, and its ratio to the honest job's.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.crowd import HONEST, LIES, Cost, cost_of

ROUNDS = int(os.environ.get("ROUNDS", "3"))


def main() -> None:
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="bad-host-")
    for lie in sys.argv[1:] or LIES:
        honest: list[Cost] = []
        lied: list[Cost] = []
        for _ in range(ROUNDS):
            for name, costs in ((HONEST, honest), (lie, lied)):
                with tempfile.TemporaryDirectory(prefix="crowd") as folder:
                    costs.append(asyncio.run(cost_of(name, Path(folder))))
        print(f"{lie:<22} {_row(lied, honest)}", flush=True)


def _row(lied: list[Cost], honest: list[Cost]) -> str:
    told = []
    for name, unit in (("others_s", "s"), ("cpu_s", "s"), ("lag_s", "s")):
        one, other = (statistics.median(getattr(cost, name) for cost in costs) for costs in (lied, honest))
        told.append(f"{name[:-2]} {one:.3f} {unit} ({one / other:.2f} ×)")
    events = statistics.median(cost.event_bytes for cost in lied)
    return f"{'  '.join(told)}  events {events / 1e6:.2f} MB  links {max(c.bad_links for c in lied)}"


if __name__ == "__main__":
    main()
