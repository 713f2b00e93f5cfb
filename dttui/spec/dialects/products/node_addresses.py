"""Addresses of nodes that only the product knows: stand-ins for a script to work with, which no job keeps."""

from __future__ import annotations

import re
from dataclasses import replace

from dttui.i18n import _
from dttui.spec.dialects.translation import Leaf, Translated, in_order, make_note
from dttui.spec.findings import Finding
from dttui.spec.problems import PathKey

_MOST = 256
_STAND_IN = re.compile(r"\b198\.18\.\d{1,3}\.\d{1,3}\b")
"""Of the range for benchmarks (RFC 2544), which no host has."""


def addresses(count: int) -> str:
    """Return stand-ins for the addresses of nodes, a line each, the first node's first."""
    return "\n".join(f"198.18.{index // 250}.{index % 250 + 1}" for index in range(min(count, _MOST)))


def without_addresses(job: Translated) -> Translated:
    """Return a job without the stand-ins; where its command has one, it says that dttui gives another variable."""
    leaves = {target: leaf for target, leaf in job.leaves.items() if not _is_listed(job, target)}
    notes: list[Finding] = list(job.notes)
    for target, leaf in leaves.items():
        if target[0] == "run" and _STAND_IN.search(str(leaf.data)):
            leaves[target] = replace(leaf, data=_named(leaf))
            message = _("not carried over: addresses of nodes, which are known only when the job runs")
            hint = _("A script finds MASTER_ADDR in its environment.")
            notes.append(make_note(job.source, leaf.origin, message, hint, is_warning=True))
    master = job.master if job.master is None or not _STAND_IN.search(job.master[0]) else None
    return replace(job, leaves=leaves, notes=in_order(notes), master=master)


def _is_listed(job: Translated, target: PathKey) -> bool:
    """Whether something is said of a node that is a stand-in."""
    if target[:2] != ("cluster", "nodes"):
        return False
    leaf = job.leaves.get((*target[:3], "id"))
    return leaf is not None and _STAND_IN.search(str(leaf.data)) is not None


def _named(leaf: Leaf) -> object:
    if isinstance(leaf.data, tuple):
        return tuple(_STAND_IN.sub("MASTER_ADDR", str(word)) for word in leaf.data)
    return _STAND_IN.sub("MASTER_ADDR", str(leaf.data))
