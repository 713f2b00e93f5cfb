"""Telemetry on the wire: which fields are asked for, and how rows of columns are checked and become samples. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field, make_dataclass
from typing import Annotated, Any, get_type_hints

from dtagent.protocol import rpc
from dtagent.protocol.columns import as_told, unpack
from dtagent.protocol.metric_fields import watched_fields
from dtagent.protocol.telemetry import GpuSample, HostSample, RankSample, TelemetryRequest, TelemetrySelection
from pydantic import Field
from pydantic_core import from_json, to_json

MOST_SAMPLES = 60
"""Asked for at once. Where more come nothing is taken: to check thousands holds up all that this process follows."""
_AT_MOST = Field(max_length=MOST_SAMPLES)
# These types are made at run time, of which a type checker knows nothing.
_TUPLE: Any = tuple
_LIST: Any = list
_DICT: Any = dict


class ReceivedSample:
    """A sample as it came and was checked: it can be written down without an object being made of it.

    Args:
        row: of the fields.
        fields: that were asked for.
    """

    def __init__(self, row: Sequence[Any], fields: TelemetrySelection) -> None:
        self.seq: int = row[0]
        self.time: float = row[1]
        self._row = row
        self._fields = fields

    @property
    def sample(self) -> HostSample:
        """What it says, for whoever looks at it."""
        return unpack(self._row, self._fields)

    @property
    def gpu_memory_mib(self) -> dict[int, int]:
        """GPU → its memory in use, of those that tell it."""
        columns = dict(zip(self._fields.gpu, self._row[3], strict=False))
        indices, used = columns.get("index") or (), columns.get("memory_used_mib") or ()
        return {gpu: mib for gpu, mib in zip(indices, used, strict=False) if gpu is not None and mib is not None}

    @property
    def has_waiters(self) -> bool:
        """Whether jobs wait for GPUs of the host."""
        return bool(dict(zip(self._fields.host, self._row[2], strict=False)).get("waits"))

    def line(self) -> str:
        """Return it as a job's directory keeps it."""
        return to_json(as_told(self._row, self._fields), exclude_none=True).decode()


class WholeSample(ReceivedSample):
    """One of an agent that knows no selection."""

    def __init__(self, sample: HostSample) -> None:
        self.seq, self.time, self._sample = sample.seq, sample.time, sample

    @property
    def sample(self) -> HostSample:
        """What it says."""
        return self._sample

    @property
    def gpu_memory_mib(self) -> dict[int, int]:
        """GPU → its memory in use, of those that tell it."""
        return {gpu.index: gpu.memory_used_mib for gpu in self._sample.gpus if gpu.memory_used_mib is not None}

    @property
    def has_waiters(self) -> bool:
        """Whether jobs wait for GPUs of the host."""
        return bool(self._sample.waits)

    def line(self) -> str:
        """Return it as a job's directory keeps it."""
        return json.dumps(rpc.to_wire(self._sample))


class Selection:
    """The fields that a client asks for.

    Attributes:
        fields: what the request names.
        reply: what the agent's answer is decoded to: each column checked by the type its field has in the sample
            classes. An agent that knows no selection answers with whole samples, which are taken as well.
    """

    def __init__(self, host: Sequence[str], gpu: Sequence[str], rank: Sequence[str]) -> None:
        self.fields = TelemetrySelection(list(host), list(gpu), list(rank))
        self._encoded = rpc.encode_value(rpc.to_wire(self.fields))
        ranks: Any = _DICT[str, _columns(RankSample, rank)]
        row = _TUPLE[int, float, _TUPLE[_types(HostSample, host)], _columns(GpuSample, gpu), ranks]
        self.reply: type[Any] = make_dataclass(
            "SelectedReply",
            [
                ("samples", Annotated[list[HostSample], _AT_MOST], field(default_factory=list)),
                ("missed", int, field(default=0)),
                ("rows", Annotated[_LIST[row], _AT_MOST] | None, field(default=None)),
            ],
            frozen=True,
        )

    def received(self, reply: Any) -> list[ReceivedSample]:
        """Return the samples in an answer, as they came."""
        if reply.rows is None:
            return [WholeSample(sample) for sample in reply.samples]
        return [ReceivedSample(row, self.fields) for row in reply.rows]

    def samples(self, reply: Any) -> list[HostSample]:
        """Return the samples in an answer."""
        return [item.sample for item in self.received(reply)]

    def request(self, after_seq: int | None, wait_s: float, most: int) -> str:
        """Return the parameters of a request for samples after a number, encoded; the fields were, once and for all."""
        params = rpc.encode_value(rpc.to_wire(TelemetryRequest(after_seq, wait_s, most)))
        return f'{params[:-1]},"select":{self._encoded}}}'


def _types(kind: type, names: Sequence[str]) -> tuple[Any, ...]:
    types = get_type_hints(kind)
    return tuple(types[name] | None for name in names)


def _columns(kind: type, names: Sequence[str]) -> Any:
    return _TUPLE[tuple(_LIST[each] | None for each in _types(kind, names))]


WATCHED = Selection(watched_fields(HostSample), watched_fields(GpuSample), watched_fields(RankSample))
"""What screens show, job directories keep and a diagnosis looks at."""


_MOST = 10.0**rpc.MAX_DIGITS


def decode_frame(line: bytes) -> dict[str, Any]:
    """Return the object in one frame as `rpc.decode` does, in a fifth of its time. Raises FrameError alone."""
    if len(line) <= rpc.MAX_FRAME_BYTES:
        try:
            frame = from_json(line, allow_inf_nan=False)
        except ValueError:
            return rpc.decode(line)  # It says what is wrong.
        if isinstance(frame, dict) and not _is_absurd(frame, rpc.MAX_DEPTH):
            return frame
    return rpc.decode(line)


def _is_absurd(value: dict[str, Any] | list[Any], most_depth: int) -> bool:
    """Whether `rpc.decode` may refuse it: too deep, or with a number such as 1e999, which stands for infinity."""
    for item in value.values() if isinstance(value, dict) else value:
        kind = type(item)
        if kind is dict or kind is list:
            if most_depth <= 1 or _is_absurd(item, most_depth - 1):
                return True
        elif (kind is int or kind is float) and not -_MOST < item < _MOST:
            return True
    return False
