"""Values of single keys of a job, given beside its file: `--set strategy.optimizer.lr=0.1`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.spec.loader import ROOT_KEY, dump_job, parse_job
from dttui.spec.models import Job
from dttui.spec.problems import PathKey, shown
from dttui.spec.yaml_reader import parse_yaml
from dttui.spec.yaml_source import LINE_BREAK, YamlSource
from dttui.spec.yaml_writer import dump_yaml

OPTION = "--set"
_NUMBER = re.compile("[0-9]{1,9}")


def with_values(job: Job, settings: Sequence[str]) -> Job:
    """Return a job as it would be if its file said these values too.

    Args:
        job: as it is.
        settings: each `KEY=VALUE`: keys of the job file with a dot between, an item of a list by its number from 0, and
            the value as YAML has it on one line.

    Raises:
        UsageError: one is not of this form, or leads through a value that holds no others.
        DocumentError: a key or a value is not what a job takes.
    """
    document: dict[str, Any] = {ROOT_KEY: _plain(parse_yaml(dump_job(job), OPTION).data[ROOT_KEY])}
    written: dict[str, str] = {}
    for setting in settings:
        key, sign, text = setting.partition("=")
        keys = key.strip().removeprefix(f"{ROOT_KEY}.").split(".")
        if not sign or not all(keys) or LINE_BREAK.search(setting):
            raise UsageError(
                _("{option}: {text} is not of the form KEY=VALUE").format(option=OPTION, text=shown(setting)),
                _("Write it as in {example}").format(example=f"{OPTION} run.args.0=--lr=0.1"),
            )
        source = parse_yaml(f"value: {text}\n", f"{OPTION} {key}")
        _put(document[ROOT_KEY], keys, _as_written(source, ("value",), written), setting)
    lines = dump_yaml(document)
    for place, text in written.items():
        lines = lines.replace(place, text)
    return parse_job(lines, OPTION)


def _put(inside: Any, keys: Sequence[str], value: Any, setting: str) -> None:
    for depth, key in enumerate(keys):
        is_last = depth == len(keys) - 1
        if isinstance(inside, list):
            if not _NUMBER.fullmatch(key) or int(key) > len(inside) - (not is_last):
                raise UsageError(
                    _("{option}: {key} in {text} is no item of the list, which has {count}").format(
                        option=OPTION, key=shown(key), text=shown(setting), count=len(inside)
                    ),
                    _("Items count from 0; the number after the last one adds another."),
                )
            place: Any = int(key)
            if place == len(inside):
                inside.append(None)
        elif isinstance(inside, dict):
            place = key
            if inside.get(key) is None:
                inside[key] = {}
        else:
            raise UsageError(
                _("{option}: {key} in {text} is a single value, and holds no others").format(
                    option=OPTION, key=shown(".".join(keys[:depth])), text=shown(setting)
                )
            )
        if is_last:
            inside[place] = value
        inside = inside[place]


def _as_written(source: YamlSource, path: PathKey, written: dict[str, str]) -> Any:
    """Return what stands in a document, for plain scalars a name under which `written` then has their text.

    So `1e-4` stays what it is in an environment, where a number would become 0.0001.
    """
    data = source.value(path)
    if isinstance(data, dict):
        return {key: _as_written(source, (*path, key), written) for key in data}
    if isinstance(data, tuple):
        return [_as_written(source, (*path, index), written) for index in range(len(data))]
    text = source.written(path)
    if text is None:
        return data
    name = f"value-{uuid4().hex}"
    written[name] = text
    return name


def _plain(data: Any) -> Any:
    """Return what was read with lists that can be changed."""
    if isinstance(data, dict):
        return {key: _plain(item) for key, item in data.items()}
    return [_plain(item) for item in data] if isinstance(data, tuple) else data
