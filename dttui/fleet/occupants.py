"""Who has the GPUs of a host, since when and until when, in one wording for lists, rows and findings. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dtagent.protocol.telemetry import GpuHold, HostSample

from dttui.i18n import _, joined
from dttui.sanitize import clean
from dttui.timestamps import unix_time_in
from dttui.words import moment


@dataclass(frozen=True)
class Occupant:
    """Somebody who has GPUs of a host, or a job that runs there without."""

    user: str | None
    job: str | None
    gpus: tuple[int, ...] = ()
    """Indices; of simulated GPUs none are told."""
    simulated: int | None = None
    held_s: float | None = None
    """For how long; `None` where nobody told."""
    left_s: float | None = None
    """How much longer they are meant to be kept, below 0 past that time; `None` where nobody said."""
    is_own: bool = False
    """Whether it is a job of this agent's user."""

    @property
    def name(self) -> str:
        """What it goes by in a word: one's own by the job, another's by the user."""
        return (self.job if self.is_own else self.user or self.job) or "?"

    @property
    def since(self) -> float | None:
        """Unix time by this machine's clock."""
        return unix_time_in(-self.held_s) if self.held_s is not None else None

    @property
    def until(self) -> float | None:
        """Unix time by this machine's clock."""
        return unix_time_in(self.left_s) if self.left_s is not None else None

    @property
    def is_overdue(self) -> bool:
        """Whether it has them for longer than was said."""
        return self.left_s is not None and self.left_s < 0


def occupants_of(sample: HostSample) -> list[Occupant]:
    """Return who has GPUs of a host or runs jobs there, those first who said so themselves."""
    holds = sample.holds or ()
    found = [occupant_of(hold, sample.time, sample.ranks) for hold in holds]
    told = {hold.job for hold in holds}
    found += [Occupant(None, clean(job), is_own=True) for job in sample.ranks if job not in told]
    ranks = {rank.pid for ranks in sample.ranks.values() for rank in ranks}
    others: dict[str, list[int]] = {}
    for gpu in sample.gpus:
        users = {hold.user for hold in holds if gpu.index in hold.gpus}
        for process in gpu.processes or ():
            if process.pid not in ranks and process.user not in users:
                others.setdefault(process.user or "?", []).append(gpu.index)
    return found + [Occupant(clean(user), None, tuple(dict.fromkeys(gpus))) for user, gpus in sorted(others.items())]


def on_gpu(sample: HostSample, index: int) -> list[Occupant]:
    """Return who has said to have a GPU."""
    return [occupant_of(hold, sample.time, sample.ranks) for hold in sample.holds or () if index in hold.gpus]


def occupant_text(occupant: Occupant) -> str:
    """Return who it is, since when and until when: `job gpt-1 of li since 09:12, until 18:00`."""
    if occupant.job is None:
        text = occupant.user or "?"
    elif occupant.is_own or occupant.user is None:
        text = _("job {id}").format(id=occupant.job)
    else:
        text = _("job {id} of {user}").format(id=occupant.job, user=occupant.user)
    if occupant.since is not None:
        text = _("{who} since {time}").format(who=text, time=moment(occupant.since))
    if occupant.until is not None and occupant.is_overdue:
        return _("{who}, overdue since {time}").format(who=text, time=moment(occupant.until))
    return (
        _("{who}, until {time}").format(who=text, time=moment(occupant.until)) if occupant.until is not None else text
    )


def occupants_text(sample: HostSample) -> str:
    """Return all of a host in a row."""
    return joined("; ", [occupant_text(occupant) for occupant in occupants_of(sample)])


def occupant_of(hold: GpuHold, now: float, own: Collection[str] = ()) -> Occupant:
    """Return who has set GPUs aside.

    Args:
        hold: what is told of him.
        now: Unix time by the host's clock.
        own: jobs of this agent's user.
    """
    return Occupant(
        clean(hold.user),
        clean(hold.job) if hold.job else None,
        tuple(hold.gpus),
        hold.simulated,
        max(0.0, now - hold.since) if hold.since is not None else None,
        hold.until - now if hold.until is not None else None,
        is_own=hold.job in own,
    )
