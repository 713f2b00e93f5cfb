"""Reads and writes job.yaml: file or text to Job, and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from dttui.i18n import _
from dttui.spec.document import validate
from dttui.spec.models import Job, JobDocument
from dttui.spec.problems import DocumentError, Problem, did_you_mean, shown
from dttui.spec.yaml_composer import plain_scalar
from dttui.spec.yaml_reader import parse_yaml, read_yaml
from dttui.spec.yaml_source import Source

ROOT_KEY = "distributed_training"
"""The one key at the top of a job file."""


def load_job(path: str | os.PathLike[str]) -> Job:
    """Read a job file.

    Raises:
        DocumentError: it cannot be read or is no job; with every problem, each with file, line, column and key.
    """
    return _job(read_yaml(Path(path), os.fspath(path)))


def parse_job(text: str | bytes, name: str) -> Job:
    """Read a job from YAML text; `name` is what problems call the document. Raises DocumentError as load_job does."""
    return _job(parse_yaml(text, name))


def dump_job(job: Job) -> str:
    """Return a job file that loads back to the same job. Only what was set is written."""
    document = {ROOT_KEY: job.model_dump(mode="json", exclude_unset=True)}
    return dump_yaml(document)


def dump_yaml(document: Any) -> str:
    """Return plain data as YAML that reads back the same under YAML 1.1 and 1.2."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def _job(source: Source) -> Job:
    problem = _top_problem(source)
    if problem:
        raise DocumentError([problem])
    return validate(source, JobDocument).distributed_training


def _top_problem(source: Source) -> Problem | None:
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
    near = next((key for key in keys if did_you_mean(key, [ROOT_KEY])), None)
    if near is not None:
        return source.problem((near,), source.key_mark((near,)), _("unknown key"), did_you_mean(near, [ROOT_KEY]))
    first = source.key_mark((keys[0],))
    if any(key in Job.model_fields for key in keys):
        hint = _('put everything under "{key}:"').format(key=ROOT_KEY)
        return source.problem((), first, _('the key "{key}" is missing at the top').format(key=ROOT_KEY), hint)
    hint = _('a job begins with "{key}:"').format(key=ROOT_KEY)
    return source.problem((keys[0],), first, _("unknown key; this is no job file"), hint)


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would read as something other than text."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent lists under their key."""
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        """Write values out where the same object comes twice."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if any(character in _ODD_LINE_BREAKS for character in text):
        style = '"'
    elif not isinstance(plain_scalar(text), str):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_ODD_LINE_BREAKS = "\x85\u2028\u2029"
_Dumper.add_representer(str, _represent_text)
