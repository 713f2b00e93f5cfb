"""The part of a job that says where its checkpoints go, how often they come, and how an attempt goes on from one."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, model_validator

from dttui.i18n import _
from dttui.spec.durations import DURATION, parse_duration
from dttui.spec.effects import AFTER_FAILURE_ONLY, ESTIMATED, LAUNCHED
from dttui.spec.problems import PlacedValueError
from dttui.spec.quantities import BitsPerSecond
from dttui.spec.section import MOST_COUNT, Section
from dttui.spec.text import Text

COPY_BITS_PER_S = 2 * 10**9
RESUME_PLACES = ("checkpoint", "directory", "step")
"""What may stand in braces in `resume_args`."""
_IN_BRACES = re.compile(r"\{([A-Za-z_]+)\}")


class Checkpoint(Section):
    """Where checkpoints go."""

    dir: Text
    """Directory on the hosts; relative to the working directory there. Made before the script runs."""
    shared: bool = Field(default=False, json_schema_extra=LAUNCHED)
    """Whether all hosts see the same directory: then a checkpoint outlives the host that wrote it."""
    interval: Annotated[str, Field(pattern=DURATION)] | None = Field(default=None, json_schema_extra=LAUNCHED)
    """How long from one checkpoint to the next; without it what loses least, where an estimate tells that."""
    keep: int = Field(default=3, ge=1, le=MOST_COUNT, json_schema_extra=LAUNCHED)
    """How many stay, the newest."""
    write_bandwidth: BitsPerSecond | None = Field(default=None, json_schema_extra=ESTIMATED)
    """At which a host writes its part of a checkpoint; 16Gbps without it."""
    copies: int = Field(default=0, ge=0, le=16, json_schema_extra=AFTER_FAILURE_ONLY)
    """On how many other nodes' disks each complete checkpoint is besides, where hosts do not see the same directory."""
    copy_bandwidth: BitsPerSecond | None = Field(default=None, json_schema_extra=AFTER_FAILURE_ONLY)
    """How much of a host's network copies may take while ranks train; 2Gbps without it."""
    resume_args: tuple[Text, ...] = Field(default=(), json_schema_extra=LAUNCHED)
    """Arguments added to the command of an attempt that goes on from a checkpoint: `{checkpoint}` stands for its path,
    `{directory}` for where it lies, `{step}` for its step."""

    @model_validator(mode="after")
    def _known_places(self) -> Checkpoint:
        for index, word in enumerate(self.resume_args):
            for name in _IN_BRACES.findall(word):
                if name not in RESUME_PLACES:
                    places = ", ".join(f"{{{place}}}" for place in RESUME_PLACES)
                    message = _("expected {wanted}, found {value}").format(wanted=places, value=f"{{{name}}}")
                    raise PlacedValueError((("resume_args", index), message))
        return self

    @property
    def interval_s(self) -> float | None:
        """Seconds from one checkpoint to the next; `None` where that is left to the script."""
        return None if self.interval is None else parse_duration(self.interval)

    @property
    def write_bytes_per_s(self) -> float | None:
        """At which a host writes its part; `None` where nobody says."""
        return None if self.write_bandwidth is None else max(8, self.write_bandwidth) / 8

    @property
    def copy_bytes_per_s(self) -> int:
        """Most that copies may take of a host's network."""
        return (COPY_BITS_PER_S if self.copy_bandwidth is None else max(8, self.copy_bandwidth)) // 8
