"""What benches have found, kept a file for each set of hosts, which their addresses tell from another cluster's."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from dttui import locations
from dttui.compose.bench_models import KeptBench
from dttui.errors import UsageError
from dttui.files import OF_ANOTHER_VERSION, write_atomic
from dttui.i18n import _
from dttui.inventory.models import Environment

_NAME = re.compile(r"[0-9a-f]{16}\.json")
MOST_BYTES = 16 << 20
"""A file that is larger is none of dttui's."""
MOST_KEPT = 64
"""Sets of hosts."""


def keep_bench(kept: KeptBench) -> None:
    """Keep a bench that has something in it in the place of one of the same hosts; of all, the newest `MOST_KEPT`.

    Raises:
        UsageError: it cannot be written.
    """
    if not (kept.report.rows and kept.addresses):
        return
    ends = "\n".join(f"{name} {address}" for name, address in sorted(kept.addresses.items()))
    path = locations.benches_directory() / f"{hashlib.sha256(ends.encode()).hexdigest()[:16]}.json"
    try:
        write_atomic(path, kept.model_dump_json(indent=1))
    except OSError as fault:
        raise locations.unwritable(path, fault) from fault
    with contextlib.suppress(OSError, UsageError):
        others = sorted(set(_paths()) - {path}, key=lambda other: other.stat().st_mtime, reverse=True)
        for other in others[MOST_KEPT - 1 :]:
            other.unlink(missing_ok=True)


def newest_bench(environments: Iterable[Environment]) -> KeptBench | None:
    """Return the newest of these hosts, else of some of them alone; `None` where there is none.

    Raises:
        UsageError: there is none among those that can be read, and one that cannot be.
    """
    known = {item.name: item.training_address for item in environments}
    found: list[KeptBench] = []
    faults: list[UsageError] = []
    for path in _paths():
        try:
            kept = _read(path)
        except UsageError as fault:
            faults.append(fault)
            continue
        if kept.addresses and kept.addresses.items() <= known.items():
            found.append(kept)
    if not found and faults:
        raise faults[0]
    return max(found, key=lambda kept: (len(kept.addresses) == len(known), kept.measured_at), default=None)


def _paths() -> list[Path]:
    directory = locations.benches_directory()
    try:
        return sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    except (FileNotFoundError, NotADirectoryError):  # Of the second who keeps something there tells.
        return []
    except OSError as fault:
        raise _damaged(directory, fault.strerror or str(fault)) from fault


def _read(path: Path) -> KeptBench:
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise _damaged(path, _("it is too large"))
        return KeptBench.model_validate_json(text, extra=OF_ANOTHER_VERSION)
    except ValidationError as fault:
        detail = fault.errors(include_url=False)[0]
        if detail["loc"] == ("version",):
            message = _("{path} is of another version of dttui").format(path=path)
            raise UsageError(message, _("Show it with that one, or measure again.")) from fault
        raise _damaged(path, ".".join(map(str, detail["loc"])) + f": {detail['msg']}") from fault
    except (OSError, UnicodeDecodeError) as fault:
        raise _damaged(path, getattr(fault, "strerror", None) or str(fault)) from fault


def _damaged(path: Path, reason: str) -> UsageError:
    message = _("{path} cannot be read: {reason}").format(path=path, reason=reason)
    return UsageError(message, _("It holds nothing but what a bench has measured: remove it, and measure again."))
