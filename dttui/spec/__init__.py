"""job.yaml: models, loader, units. Pure but for reading the file."""

from dttui.spec.loader import dump_job, load_job, parse_job
from dttui.spec.models import Job
from dttui.spec.problems import DocumentError, Problem

__all__ = ["DocumentError", "Job", "Problem", "dump_job", "load_job", "parse_job"]
