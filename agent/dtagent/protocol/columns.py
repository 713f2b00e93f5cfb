"""Samples as rows of columns: what the ring keeps and what a client that selects fields gets. Pure.

A row is `[seq, time, host, gpus, ranks]`. `host` is a value a field, in the order of the selection. `gpus` is a column
a field: an array with a value a GPU, or `None` where no GPU has one. `ranks` is such columns for each job id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from dtagent.protocol.notices import Notice
from dtagent.protocol.rpc import to_wire, value_of
from dtagent.protocol.said import NOTICE
from dtagent.protocol.telemetry import (
    DeviceRate,
    DiskUse,
    GpuHold,
    GpuProcess,
    GpuSample,
    GpuWait,
    HostSample,
    MigInstance,
    RankSample,
    TelemetrySelection,
)

Row = list[Any]


def _names(kind: type, without: tuple[str, ...] = ()) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.name not in without]


EVERYTHING = TelemetrySelection(
    _names(HostSample, ("seq", "time", "gpus", "ranks")), _names(GpuSample), _names(RankSample)
)
"""Every field of this release, in the order of the ring's rows."""

_PARTS: dict[str, type] = {
    "processes": GpuProcess,
    "mig_instances": MigInstance,
    "file_systems": DiskUse,
    "disks": DeviceRate,
    "rdma": DeviceRate,
    "holds": GpuHold,
    "waits": GpuWait,
}
"""Fields whose values are lists of dataclasses."""

_OBJECTS = frozenset((*_PARTS, *(name for name in (*EVERYTHING.host, *EVERYTHING.gpu) if name.endswith(NOTICE))))
"""Fields whose values are made of plain ones."""

_DICTIONARIES = ("network_receive_bytes_per_s", "network_transmit_bytes_per_s")
"""Host fields that are empty, not `None`, where nothing is known."""


def pack(sample: HostSample) -> Row:
    """Return the row of a sample, with every field."""
    return [
        sample.seq,
        sample.time,
        [_plain(name, getattr(sample, name)) for name in EVERYTHING.host],
        _columns(sample.gpus, EVERYTHING.gpu),
        {job: _columns(ranks, EVERYTHING.rank) for job, ranks in sample.ranks.items()},
    ]


class Picker:
    """Takes the selected fields out of rows that have every field."""

    def __init__(self, selection: TelemetrySelection) -> None:
        self._host = _positions(selection.host, EVERYTHING.host)
        self._gpu = _positions(selection.gpu, EVERYTHING.gpu)
        self._rank = _positions(selection.rank, EVERYTHING.rank)

    def __call__(self, row: Row) -> Row:
        """Return the row with the selected fields alone."""
        seq, time, host, gpus, ranks = row
        picked = {job: _pick(columns, self._rank) for job, columns in ranks.items()}
        return [seq, time, _pick(host, self._host), _pick(gpus, self._gpu), picked]


def unpack(row: Sequence[Any], selection: TelemetrySelection) -> HostSample:
    """Return the sample in a row that was checked or is our own; what was not selected has its default.

    A row without GPU indices counts the GPUs from 0; ranks need `rank` and `pid` to be told.
    """
    told = as_told(row, selection)
    told["gpus"] = [GpuSample(**_built(cells)) for cells in told["gpus"]]
    told["ranks"] = {job: [RankSample(**cells) for cells in items] for job, items in told["ranks"].items()}
    return HostSample(**_built(told))


def as_told(row: Sequence[Any], selection: TelemetrySelection) -> dict[str, Any]:
    """Return what `to_wire` makes of the sample in a row, but that the values are as they stand in the row."""
    seq, time, host, gpus, ranks = row
    return {
        "seq": seq,
        "time": time,
        **{name: value for name, value in zip(selection.host, host, strict=True) if value is not None},
        "gpus": [{"index": index, **cells} for index, cells in enumerate(_cells(gpus, selection.gpu))],
        "ranks": {
            job: [cells for cells in _cells(columns, selection.rank) if "rank" in cells and "pid" in cells]
            for job, columns in ranks.items()
        },
    }


def _plain(name: str, value: Any) -> Any:
    if name in _PARTS:
        return to_wire(value)
    return value if value or name not in _DICTIONARIES else None


def _columns(items: Sequence[Any], names: Sequence[str]) -> list[list[Any] | None]:
    columns: list[list[Any] | None] = []
    for name in names:
        column = [value_of(item, name) for item in items]
        if column.count(None) == len(column):
            columns.append(None)
        else:
            columns.append(to_wire(column) if name in _PARTS or name.endswith(NOTICE) else column)
    return columns


def _positions(wanted: Sequence[str], known: Sequence[str]) -> list[int | None]:
    places = {name: index for index, name in enumerate(known)}
    return [places.get(name) for name in wanted]


def _pick(values: Sequence[Any], positions: Sequence[int | None]) -> list[Any]:
    return [None if position is None else values[position] for position in positions]


def _cells(columns: Sequence[Sequence[Any] | None], names: Sequence[str]) -> list[dict[str, Any]]:
    """Turn columns into a dictionary an item, without what is `None`."""
    told = [(name, column) for name, column in zip(names, columns, strict=True) if column is not None]
    kept = [name for name, _column in told]
    items = zip_longest(*(column for _name, column in told))
    if not any(None in column for _name, column in told) and len({len(column) for _name, column in told}) == 1:
        return [dict(zip(kept, item, strict=True)) for item in items]
    return [{name: value for name, value in zip(kept, item, strict=True) if value is not None} for item in items]


def _built(cells: dict[str, Any]) -> dict[str, Any]:
    for name in _OBJECTS & cells.keys():
        cells[name] = _build(name, cells[name])
    return cells


def _build(name: str, value: Any) -> Any:
    kind = _PARTS.get(name)
    if name.endswith(NOTICE) and isinstance(value, dict):
        return Notice(value["code"], value["values"])
    if kind is None:
        return value
    known = {field.name for field in dataclasses.fields(kind)}
    return [
        kind(**{key: part for key, part in item.items() if key in known}) if isinstance(item, dict) else item
        for item in value
    ]
