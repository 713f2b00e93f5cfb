"""Who waits for environments, by what each of their agents tells. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dttui.fleet.live import EnvironmentStatus
from dttui.sanitize import clean


@dataclass(frozen=True)
class JobInQueue:
    """A job that waits."""

    position: int
    """From 1, among all that wait for any of the environments that were asked."""
    job: str
    user: str
    asked_at: float
    """Unix time at which its person asked, by the clock of the login node where that was."""
    gpus: dict[str, int]
    """Environment → GPUs that it waits for there, simulated ones where `is_simulated`."""
    is_simulated: bool = False
    stands_aside: bool = False
    """Whether it lets others by for now, since one of its hosts cannot be reached."""


def jobs_in_queue(statuses: Iterable[EnvironmentStatus]) -> list[JobInQueue]:
    """Return the jobs that wait, the first one first."""
    found: dict[tuple[float, str, str], JobInQueue] = {}
    for status in statuses:
        for wait in (status.sample.waits if status.sample is not None else None) or ():
            key = wait.asked_at, clean(wait.job), clean(wait.user)
            item = found.setdefault(key, JobInQueue(0, key[1], key[2], key[0], {}))
            item.gpus[status.environment.name] = wait.gpus or wait.simulated or 0
            is_simulated, aside = item.is_simulated or not wait.gpus, item.stands_aside or wait.stands_aside
            found[key] = JobInQueue(0, *key[1:], key[0], item.gpus, is_simulated, aside)
    ordered = [found[key] for key in sorted(found)]
    return [
        JobInQueue(place, item.job, item.user, item.asked_at, item.gpus, item.is_simulated, item.stands_aside)
        for place, item in enumerate(ordered, start=1)
    ]
