"""What hosts said of themselves when they were reached last: shown until they say it again. Nothing rests upon it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dtagent.protocol.rpc import to_wire

from dttui import locations
from dttui.files import read_kept, write_atomic

if TYPE_CHECKING:
    from dtagent.protocol.facts import HostFacts

    from dttui.inventory.models import Environment

VERSION = 1
MOST_BYTES = 16 << 20
"""A larger file is none of dttui's: 5,000 hosts take 8 MB."""
MOST_HOSTS = 5000


def read_last_known(environments: Iterable[Environment]) -> dict[str, HostFacts]:
    """Return what is known of environments, by name; of a file that cannot be read nothing."""
    kept = _kept()
    wanted = {item.name: entry for item in environments if (entry := kept.get(_key(item))) is not None}
    if not wanted:
        return {}
    from dtagent.protocol.facts import HostFacts
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(HostFacts)
    found = {}
    for name, entry in wanted.items():
        with contextlib.suppress(ValidationError):
            found[name] = adapter.validate_python(entry)
    return found


def keep_last_known(heard: Iterable[tuple[Environment, HostFacts]]) -> None:
    """Keep what hosts have said, for the next start; where it cannot be written, that is no loss."""
    told = list(heard)
    if not told:
        return
    kept = _kept()
    for environment, facts in told:
        kept.pop(_key(environment), None)
        kept[_key(environment)] = to_wire(facts)
    newest = dict(list(kept.items())[-MOST_HOSTS:])
    with contextlib.suppress(OSError):
        write_atomic(locations.last_known_file(), json.dumps({"version": VERSION, "hosts": newest}))


def _key(environment: Environment) -> str:
    """Return what a host goes by: two inventories may call different ones the same."""
    return json.dumps([environment.name, environment.host, environment.port, environment.way])


def _kept() -> dict[str, Any]:
    return read_kept(locations.last_known_file(), "hosts", VERSION, MOST_BYTES)
