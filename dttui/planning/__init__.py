"""From a job, its environments and what is known of their hosts to a Plan. Pure: no I/O, no clock."""

from __future__ import annotations

from dttui.planning.planner import bind, plan

__all__ = ["bind", "plan"]
