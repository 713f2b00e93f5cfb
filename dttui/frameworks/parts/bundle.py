"""Where plug-ins of before find what `dttui.frameworks.bundle` holds now."""

from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess, fill, holes_in, port_hole

__all__ = ["Hole", "PlannedFile", "PlannedProcess", "fill", "holes_in", "port_hole"]
