"""The faults dttui has to bear, as data: how each is made to happen, what must hold all the same, and what shows it."""

from __future__ import annotations

from tests.faults.rows import agents, link, login_node, run, scripts, start, way_in

FAULTS = (*link.ROWS, *way_in.ROWS, *login_node.ROWS, *agents.ROWS, *start.ROWS, *run.ROWS, *scripts.ROWS)
"""Every fault, in the order of a launch."""
