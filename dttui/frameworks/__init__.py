"""One module per framework: files and commands per node. Pure."""

from typing import TYPE_CHECKING

from dttui.lazy import first_use

if TYPE_CHECKING:
    from dttui.frameworks.base import Framework as Framework
    from dttui.frameworks.bundle import IN_FULL as IN_FULL
    from dttui.frameworks.bundle import command_lines as command_lines
    from dttui.frameworks.parts.nccl import reason as reason
    from dttui.frameworks.registry import frameworks as frameworks
    from dttui.frameworks.registry import get_framework as get_framework
    from dttui.frameworks.registry import traits_of as traits_of
    from dttui.frameworks.unavailable import Unavailable as Unavailable

__getattr__ = first_use(__name__)
