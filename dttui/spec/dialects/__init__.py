"""Documents of other forms that say what a job file says: told apart by their keys, and carried over to a Job.

Nothing of a document is dropped silently: what the job has no place for becomes a note with its own place.
"""

from dttui.spec.dialects.recognition import JOB_DIALECTS, TOP_KEYS, Dialect, recognise

__all__ = ["JOB_DIALECTS", "TOP_KEYS", "Dialect", "recognise"]
