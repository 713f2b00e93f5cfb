"""What this login node knows of hardware: types of GPUs, a person's own among them, measured links and jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, field_validator

from dttui import locations
from dttui.errors import UsageError
from dttui.files import alone, write_atomic
from dttui.fleet.kept_measurements import read_measurements
from dttui.fleet.measured_runs import measured_runs
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.planning.cost.calibration import learn
from dttui.planning.cost.correction import Learned
from dttui.planning.cost.hardware import GpuTable, gpu_table
from dttui.planning.cost.links import LinkKind, Links, MeasuredLink, newest, newest_of_each_cluster
from dttui.spec.document import validate
from dttui.spec.findings import Finding, warning
from dttui.spec.problems import DocumentError
from dttui.spec.yaml_reader import decode, parse_yaml, read_bytes

MAX_LINKS_BYTES = 4 << 20
"""A file of links that is larger is none of dttui's."""
KEPT_LINKS_BYTES = 2 << 20
"""As much as is written: some 10,000 pairs of hosts."""


@dataclass(frozen=True)
class KnownHardware:
    """What a plan is made with, besides the job, the inventory and the hosts' facts."""

    gpus: GpuTable
    links: Links
    findings: tuple[Finding, ...] = ()
    """What is wrong with the person's own types, or with what was learned from jobs, which is left out then."""
    learned: Mapping[str, Learned] = field(default_factory=dict)
    """Name of a type → what jobs have shown of hosts that have it."""

    def with_links(self, measured: Iterable[MeasuredLink]) -> KnownHardware:
        """Return the same, and what was measured since."""
        return replace(self, links=newest([*self.links.values(), *measured]))


class _LinksFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    links: tuple[MeasuredLink, ...] = ()
    """Without those of a kind that this version does not know."""

    @field_validator("links", mode="before")
    @classmethod
    def _of_known_kinds(cls, links: object) -> object:
        if not isinstance(links, list):
            return links
        return [
            item
            for item in links
            if not (isinstance(item, dict) and item.get("kind", "zones") not in get_args(LinkKind))
        ]


def known_hardware(environments: Iterable[Environment] = (), *, lenient: bool = False) -> KnownHardware:
    """Return what is known now. Raises UsageError, with the place, where one of its two files cannot be read.

    Args:
        environments: of the inventory, whose links count; those of hosts that have other addresses do not.
        lenient: go on without the person's own types of GPUs, or without what was learned from jobs, and say so, where
            their file has mistakes.
    """
    links, findings = links_of(environments), []
    types: Path | None = locations.gpu_types_file()
    try:
        table = gpu_types()
    except DocumentError as fault:
        if not lenient:
            raise
        message = _("your own types of GPUs are left out: {problem}").format(problem=fault.problems[0])
        findings.append(warning("gpus-file", str(types), message))
        table, types = gpu_table(), None
    learned: Mapping[str, Learned] = {}
    try:
        learned = learned_from_jobs(types)
    except UsageError as fault:
        if not lenient:
            raise
        message = _("estimates do without what was learned from jobs: {problem}").format(problem=fault.message)
        findings.append(warning("runs-file", str(locations.measured_runs_file()), message, fault.hint))
    return KnownHardware(table, links, tuple(findings), learned)


def learned_from_jobs(types: Path | None = None) -> Mapping[str, Learned]:
    """Return name of a type → what jobs that are over have shown of hosts that have it.

    It is fitted anew whenever another job has ended, or some were dropped.

    Args:
        types: the person's own types of GPUs; those of dttui alone without it.

    Raises:
        UsageError: what is kept of jobs cannot be read.
    """
    path = locations.measured_runs_file()
    try:
        found = path.stat()
    except OSError:
        return {}
    return _learned(path, (found.st_ino, found.st_size, found.st_mtime_ns), types)


@lru_cache(maxsize=4)
def _learned(_path: Path, _stamp: tuple[int, int, int], types: Path | None) -> Mapping[str, Learned]:
    return learn(measured_runs(), _gpu_types(types) if types is not None else gpu_table())


def gpu_types() -> GpuTable:
    """Return the types that dttui knows, extended and overridden by the person's `gpus.yaml`.

    The file is read once a process: a change counts from the next start.

    Raises:
        DocumentError: it cannot be read; with every problem, each with file, line, column and key.
    """
    return _gpu_types(locations.gpu_types_file())


@cache
def _gpu_types(path: Path) -> GpuTable:
    if not path.exists():
        return gpu_table()
    source = parse_yaml(decode(read_bytes(path, str(path)), str(path)), str(path))
    return gpu_table() if source.is_empty else gpu_table().extended(validate(source, GpuTable))


def links_of(environments: Iterable[Environment]) -> Links:
    """Return what was measured between these, or hosts and zones that may be theirs. Raises UsageError as below."""
    addresses = {item.name: item.training_address for item in environments}
    return newest(link for link in measured_links() if link.is_of(addresses))


def measured_links() -> tuple[MeasuredLink, ...]:
    """Return what was measured between zones and hosts. Raises UsageError where the file cannot be read."""
    remedy = _("It holds nothing but measured links: remove it, and measure again.")
    kept = read_measurements(locations.links_file(), _LinksFile, MAX_LINKS_BYTES, remedy)
    return kept.links if kept is not None else ()


def record_links(measured: Iterable[MeasuredLink]) -> None:
    """Keep measurements for the plans to come: of each pair of each cluster the newest, without the oldest of too many.

    Raises:
        UsageError: the file that is there cannot be read, or not be written.
    """
    path = locations.links_file()
    with alone(path.with_suffix(".lock"), path):
        kept = newest_of_each_cluster([*measured_links(), *measured])
        try:
            write_atomic(path, _links_text(kept))
        except OSError as fault:
            raise locations.unwritable(path, fault) from fault


def _links_text(links: Iterable[MeasuredLink]) -> str:
    """A link a line, the newest first, as many as may be kept."""
    head, between, tail = '{"version": 1, "links": [\n', ",\n", "\n]}\n"
    lines, room = [], KEPT_LINKS_BYTES - len(head + tail)
    for link in sorted(links, key=lambda link: link.measured_at, reverse=True):
        line = link.model_dump_json(exclude_none=True)
        room -= len(line.encode()) + len(between)
        if room < 0:
            break
        lines.append(line)
    return head + between.join(lines) + tail
