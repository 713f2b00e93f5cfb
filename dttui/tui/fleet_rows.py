"""The rows of a fleet, each made when it is looked at, and then only what changed of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dttui.tui.rows import ALL_GPUS, GpusAsked, environment_row, load_of, stranger_row
from dttui.tui.widgets.environment_row import EnvironmentRow

if TYPE_CHECKING:
    from dttui.app import EnvironmentStatus


class FleetRows(Mapping[str, EnvironmentRow]):
    """Row by key: first of what the inventory lacks, then of the environments in its order."""

    def __init__(self) -> None:
        self.statuses: Mapping[str, EnvironmentStatus] = {}
        """What is shown of the fleet."""
        self.strangers: tuple[str, ...] = ()
        """What is ticked and not in the inventory."""
        self._gpus_asked: Mapping[str, GpusAsked] = {}
        self._rows: dict[str, EnvironmentRow] = {}
        self._made_of: dict[str, EnvironmentStatus] = {}
        self._stale: set[str] = set()
        """Of which something is another since the row was made."""
        self._all: dict[str, EnvironmentRow] | None = None

    def see(self, statuses: Mapping[str, EnvironmentStatus]) -> dict[str, EnvironmentStatus]:
        """Show the fleet as it is now; return what is another."""
        before, self.statuses = self.statuses, statuses
        changed = {key: status for key, status in statuses.items() if before.get(key) is not status}
        self._outdate(changed)
        return changed

    def ask(self, gpus: Mapping[str, GpusAsked]) -> list[str]:
        """Show which GPUs the job asks of what is ticked; return of which that is something else now."""
        before, self._gpus_asked = self._gpus_asked, gpus
        changed = [key for key in {*before, *gpus} if before.get(key) != gpus.get(key) and key in self.statuses]
        for key in changed:
            self._made_of.pop(key, None)
        self._outdate(changed)
        return changed

    def asked_of(self, key: str) -> GpusAsked:
        """Return which GPUs the job asks of an environment."""
        return self._gpus_asked.get(key, ALL_GPUS)

    def list_strangers(self, keys: tuple[str, ...]) -> bool:
        """Show what is ticked and not in the inventory; return whether that is another."""
        before, self.strangers = self.strangers, keys
        if keys != before:
            self._outdate((*before, *keys))
        return keys != before

    def all(self) -> dict[str, EnvironmentRow]:
        """Return all rows, for whoever looks at each."""
        if self._all is None:
            self._all = {key: self[key] for key in self}
        return self._all

    def _outdate(self, keys: Iterable[str]) -> None:
        self._stale.update(keys)
        self._all = None

    def __getitem__(self, key: str) -> EnvironmentRow:
        if key in self._stale or key not in self._rows:
            self._rows[key] = self._make(key)
            self._stale.discard(key)
        return self._rows[key]

    def _make(self, key: str) -> EnvironmentRow:
        status = self.statuses.get(key)
        if status is None:
            if key not in self.strangers:
                raise KeyError(key)
            return stranger_row(key)
        before = self._made_of.get(key)
        self._made_of[key] = status
        if before is not None and only_reading_differs(before, status):
            label, load = load_of(status)
            return replace(self._rows[key], load_label=label, load=load)
        return environment_row(status, self.asked_of(key))

    def __iter__(self) -> Iterator[str]:
        yield from self.strangers
        yield from self.statuses

    def __len__(self) -> int:
        return len(self.strangers) + len(self.statuses)

    def __contains__(self, key: object) -> bool:
        return key in self.statuses or key in self.strangers


def only_reading_differs(before: EnvironmentStatus, after: EnvironmentStatus) -> bool:
    """Whether an environment is the same but for the load of its last reading."""
    return (
        before.standing is after.standing
        and before.state is after.state
        and before.facts is after.facts
        and before.environment is after.environment
        and before.reason == after.reason
        and (before.reading is None) == (after.reading is None)
    )
