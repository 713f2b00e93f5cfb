"""job.yaml: models, loader, units. Pure but for reading the file.

What is named here is imported at its first use, since the models take as long as all else that a start does.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dttui.spec.loader import Loaded, dump_job, load_document, load_job, parse_document, parse_job
    from dttui.spec.models import Job
    from dttui.spec.problems import DocumentError, Problem

__all__ = [
    "DocumentError",
    "Job",
    "Loaded",
    "Problem",
    "dump_job",
    "load_document",
    "load_job",
    "parse_document",
    "parse_job",
]
_HOMES = {"Job": "models", "DocumentError": "problems", "Problem": "problems"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"dttui.spec.{_HOMES.get(name, 'loader')}"), name)
