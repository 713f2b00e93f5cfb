"""One module per framework: files and commands per node. Pure."""

from dttui.frameworks.base import Framework
from dttui.frameworks.registry import DEFAULT_FRAMEWORK, FRAMEWORKS, get_framework

__all__ = ["DEFAULT_FRAMEWORK", "FRAMEWORKS", "Framework", "get_framework"]
