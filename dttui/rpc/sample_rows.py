"""Telemetry on the wire: which fields are asked for, and how rows of columns are checked and become samples. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field, make_dataclass
from functools import cached_property
from typing import Annotated, Any, get_type_hints

from dtagent.protocol import rpc
from dtagent.protocol.columns import as_told, unpack
from dtagent.protocol.metric_fields import watched_fields
from dtagent.protocol.telemetry import GpuSample, HostSample, RankSample, TelemetrySelection
from pydantic import Field, Strict, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from dttui.rpc.text_bounds import MOST_TEXT_BYTES

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

    def host(self, name: str) -> Any:
        """Return one field of the host; `None` where it was not told."""
        values = self._row[2]
        place = self._fields.host.index(name) if name in self._fields.host else len(values)
        return values[place] if place < len(values) else None

    def gpus(self, name: str) -> Sequence[Any]:
        """Return one field of each GPU, `None` where it was not told; of no GPU where none tells it."""
        return _column(self._row[3], self._fields.gpu, name)

    @property
    def pids(self) -> dict[str, Sequence[Any]]:
        """Job → the processes of its ranks."""
        return {job: _column(columns, self._fields.rank, "pid") for job, columns in self._row[4].items()}

    @property
    def gpu_memory_mib(self) -> dict[int, int]:
        """GPU → its memory in use, of those that tell it."""
        pairs = zip(self.gpus("index"), self.gpus("memory_used_mib"), strict=False)
        return {gpu: mib for gpu, mib in pairs if gpu is not None and mib is not None}

    @property
    def has_waiters(self) -> bool:
        """Whether jobs wait for GPUs of the host."""
        return bool(self.host("waits"))

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

    def host(self, name: str) -> Any:
        """Return one field of the host; `None` where it was not told."""
        return getattr(self._sample, name)

    def gpus(self, name: str) -> Sequence[Any]:
        """Return one field of each GPU, `None` where it was not told."""
        return [getattr(gpu, name) for gpu in self._sample.gpus]

    @property
    def pids(self) -> dict[str, Sequence[Any]]:
        """Job → the processes of its ranks."""
        return {job: [rank.pid for rank in ranks] for job, ranks in self._sample.ranks.items()}

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

    @cached_property
    def _answers(self) -> TypeAdapter[Any]:
        """Decodes and checks the answer to a call; made where somebody first has one."""
        kinds = [("id", Annotated[int, Strict()]), ("result", self.reply)]
        return TypeAdapter(make_dataclass("SelectedAnswer", kinds, frozen=True))

    def read(self, line: bytes) -> tuple[int, Any] | None:
        """Return the number of the call that a frame answers, and the answer, decoded and checked at once.

        `None` where the frame is another one, or has anything that only `decode_frame` and who calls it look at.
        """
        if not _is_plain(line):
            return None
        try:
            answer = self._answers.validate_json(line)
        except ValidationError:
            return None
        return answer.id, answer.result

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
        after = "" if after_seq is None else f'"after_seq":{after_seq},'
        return f'{{{after}"wait_s":{wait_s},"max_samples":{most},"select":{self._encoded}}}'


def _types(kind: type, names: Sequence[str]) -> tuple[Any, ...]:
    types = get_type_hints(kind)
    return tuple(types[name] | None for name in names)


def _columns(kind: type, names: Sequence[str]) -> Any:
    return _TUPLE[tuple(_LIST[each] | None for each in _types(kind, names))]


def _column(columns: Sequence[Sequence[Any] | None], names: Sequence[str], name: str) -> Sequence[Any]:
    place = names.index(name) if name in names else len(columns)
    return (columns[place] if place < len(columns) else None) or ()


WATCHED = Selection(watched_fields(HostSample), watched_fields(GpuSample), watched_fields(RankSample))
"""What screens show, job directories keep and a diagnosis looks at."""


_MOST = 10.0**rpc.MAX_DIGITS
_KINDS = bytes.maketrans(b"123456789E", b"000000000e")
_MARKS = (b"0" * (rpc.MAX_DIGITS + 1), b"0e", b"\\", b"NaN", b"Infinity", b'"error"')
"""What only a frame has, its digits and exponents being one, that is to be looked at twice: numbers beyond any reading,
escapes, which may stand for half a character, what is no JSON, and a refusal."""


def _is_plain(line: bytes) -> bool:
    """Whether a frame has neither such a thing nor a text that is to be cut."""
    alike = line.translate(_KINDS)
    for mark in _MARKS:
        if mark in alike:
            return False
    return len(line) <= MOST_TEXT_BYTES or max(map(len, line.split(b'"'))) <= MOST_TEXT_BYTES


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
