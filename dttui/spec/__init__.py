"""job.yaml: models, loader, units. Pure but for reading the file."""

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
