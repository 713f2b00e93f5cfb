"""One module per framework: files and commands per node. Pure."""

from dttui.frameworks.base import Framework
from dttui.frameworks.registry import FRAMEWORKS, get_framework

__all__ = ["FRAMEWORKS", "Framework", "get_framework"]
