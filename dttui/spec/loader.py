"""Reads and writes job.yaml: file or text to Job, and back."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from dttui.i18n import _
from dttui.spec.dialects import TOP_KEYS, recognise
from dttui.spec.document import validate
from dttui.spec.findings import Finding
from dttui.spec.fullwidth import note_commas
from dttui.spec.models import Job, JobDocument
from dttui.spec.problems import DocumentError, Problem, did_you_mean, shown
from dttui.spec.versions import migrated
from dttui.spec.yaml_composer import compose
from dttui.spec.yaml_reader import decode, read_bytes
from dttui.spec.yaml_source import YamlSource
from dttui.spec.yaml_writer import dump_yaml

ROOT_KEY = "distributed_training"
"""The key at the top of a job file that holds the job."""

_OURS = re.compile(rf"^[ \t{{]*[\"']?(?:{'|'.join((ROOT_KEY, *TOP_KEYS))})[\"']?\s*:", re.MULTILINE)
"""Where a document is meant as a job, however wrong it is."""


def load_job(path: str | os.PathLike[str]) -> Job:
    """Read a job file.

    Raises:
        DocumentError: it cannot be read or is no job; with every problem, each with file, line, column and key.
    """
    return load_document(path).job


def parse_job(text: str | bytes, name: str) -> Job:
    """Read a job from YAML text; `name` is what problems call the document. Raises DocumentError as load_job does."""
    return parse_document(text, name).job


@dataclass(frozen=True)
class Loaded:
    """A document that was read."""

    job: Job
    source: YamlSource
    """The document as it stands, with its places."""
    notes: tuple[Finding, ...] = ()
    """What a document of another form says and the job has no place for, each with its place."""
    dialect: str | None = None
    """Name of the form; `None` for a job file."""


def load_document(path: str | os.PathLike[str]) -> Loaded:
    """Read a job file, or a document of a form that is taken for one. Raises DocumentError as load_job does."""
    name = os.fspath(path)
    return parse_document(read_bytes(Path(path), name), name)


def parse_document(text: str | bytes, name: str) -> Loaded:
    """Read such a document from text; `name` is what problems call it. Raises DocumentError as load_job does."""
    content = decode(text, name)
    try:
        return _loaded(compose(content, name))
    except DocumentError as error:
        other = None if _OURS.search(content) else _told_instead(content, name)
        if other is None:
            raise
        raise DocumentError([other]) from error


def _told_instead(content: str, name: str) -> Problem | None:
    """Return what a document is that is none of ours, where it is of another product."""
    from dttui.spec.dialects.products.finding_kinds import told_instead  # Of few files that are read.

    return told_instead(content, name)


def dump_job(job: Job) -> str:
    """Return a job file that loads back to the same job. Only what was set is written."""
    document = {ROOT_KEY: job.model_dump(mode="json", exclude_unset=True)}
    return dump_yaml(document)


def _loaded(source: YamlSource) -> Loaded:
    """Return the job of a document, or else raise everything that is wrong with it, as YAML and as a job."""
    try:
        loaded = _dialect(source) or _job_file(source)
    except DocumentError as error:
        raise DocumentError(_merged(source.problems, error.problems)) from error
    if source.problems:
        raise DocumentError(source.problems)
    return loaded


def _dialect(source: YamlSource) -> Loaded | None:
    dialect = recognise(source)
    if dialect is None or ROOT_KEY in source.data:
        return None
    translated = dialect.translate(source)
    return Loaded(translated.job(), source, translated.all_notes, dialect.name)


def _job_file(source: YamlSource) -> Loaded:
    problem = _top_problem(source)
    if problem:
        raise DocumentError([problem])
    return Loaded(validate(migrated(source), JobDocument).distributed_training, source, note_commas(source))


def _merged(of_yaml: tuple[Problem, ...], of_job: tuple[Problem, ...]) -> list[Problem]:
    """Return all problems in the order of the file; what follows from a mistake in the YAML itself is left out."""
    places = {problem.path for problem in of_yaml}
    own = [item for item in of_job if not any(item.path[:length] in places for length in range(1, len(item.path) + 1))]
    return sorted((*of_yaml, *own), key=lambda problem: (problem.line or 0, problem.column or 0))


def _top_problem(source: YamlSource) -> Problem | None:
    """Return what is wrong with a document that is no job file at all."""
    if source.is_empty:
        hint = _('a job begins with "{key}:"').format(key=ROOT_KEY)
        return Problem(source.name, _("the file is empty"), hint)
    if not isinstance(source.data, dict):
        message = _("expected a mapping of keys to values, found {value}").format(value=shown(source.data))
        return source.problem((), source.mark(()), message, _('a job begins with "{key}:"').format(key=ROOT_KEY))
    if ROOT_KEY in source.data:
        return None
    keys = list(source.data)
    if not keys:
        return source.problem((), source.mark(()), _('the key "{key}" is missing').format(key=ROOT_KEY))
    is_bare_job = any(key in Job.model_fields for key in keys)
    known = (ROOT_KEY,) if is_bare_job else (ROOT_KEY, *TOP_KEYS)
    near = next((key for key in keys if did_you_mean(key, known)), None)
    if near is not None:
        return source.problem((near,), source.key_mark((near,)), _("unknown key"), did_you_mean(near, known))
    first = source.key_mark((keys[0],))
    if is_bare_job:
        hint = _('put everything under "{key}:"').format(key=ROOT_KEY)
        return source.problem((), first, _('the key "{key}" is missing at the top').format(key=ROOT_KEY), hint)
    hint = _('a job begins with "{key}:"').format(key=ROOT_KEY)
    return source.problem((keys[0],), first, _("unknown key; this is no job file"), hint)
