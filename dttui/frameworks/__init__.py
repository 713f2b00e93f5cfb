"""One module per framework: files and commands per node. Pure."""

from dttui.frameworks.base import Framework
from dttui.frameworks.registry import frameworks, get_framework, traits_of

__all__ = ["Framework", "frameworks", "get_framework", "traits_of"]
