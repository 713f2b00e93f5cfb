"""dttui: compose, launch and watch distributed training over SSH."""

from dtagent import __version__

__all__ = ["__version__"]
