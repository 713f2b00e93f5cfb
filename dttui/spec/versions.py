"""Versions of the job file: which one a document is written in, and how an older one becomes the present one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dttui.i18n import _
from dttui.spec.problems import DocumentError, did_you_mean, shown
from dttui.spec.yaml_source import YamlSource

VERSION_KEY = "schema"
"""The key at the top of a job file that says its version."""
CURRENT = "dttui/v1"
"""What this dttui writes, and what a file without a version is."""

Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns a document in the next version, its version included; the one it is given stays as it is."""

MIGRATIONS: Mapping[str, Migration] = {}
"""By the version that each begins with. There is one version so far, so there are none."""

_VERSION = re.compile(r"dttui/v([0-9]{1,6})")


def migrated(source: YamlSource, migrations: Mapping[str, Migration] = MIGRATIONS) -> YamlSource:
    """Return a job file's document in the present version.

    Mistakes that are found in it later are placed as near as the original document allows.

    Raises:
        DocumentError: it is written in a version that is not known.
    """
    data = source.data
    if not isinstance(data, dict):
        return source
    while (version := data.get(VERSION_KEY, CURRENT)) != CURRENT:
        if not isinstance(version, str) or version not in migrations:
            raise DocumentError([source.problem((VERSION_KEY,), source.mark((VERSION_KEY,)), *_refusal(version))])
        data = migrations[version](data)
    return source if data is source.data else replace(source, data=data)


def _refusal(version: object) -> tuple[str, str]:
    """Return why a version is refused, and what to do: it is a later one, an earlier one, or none at all."""
    found, present = _VERSION.fullmatch(version) if isinstance(version, str) else None, _VERSION.fullmatch(CURRENT)
    if found is None or present is None:
        message = _("expected {wanted}, found {value}").format(wanted=CURRENT, value=shown(version))
        return message, did_you_mean(version, [CURRENT]) if isinstance(version, str) else ""
    if int(found[1]) > int(present[1]):
        message = _("this file is written in {version}, which this dttui does not know; it reads {current}")
        hint = _("upgrade dttui: pip install --upgrade dttui")
    else:
        message = _("this file is written in {version}, which dttui reads no more; it reads {current}")
        hint = _("dttui schema prints what a file of {current} holds").format(current=CURRENT)
    return message.format(version=version, current=CURRENT), hint
