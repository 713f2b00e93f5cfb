"""Collective operators for training scripts: what ranks of a job find under this name, where dttui is installed."""

from __future__ import annotations

from dtagent.payload.collectives import *  # noqa: F403  all that it offers
from dtagent.payload.collectives import __all__ as __all__
