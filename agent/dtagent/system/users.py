"""Names of users. Who knows them may be a directory service that does not answer, and then numbers do."""

from __future__ import annotations

import functools
import pwd

from dtagent.system.readings import Readings

LIMIT_S = 1.0

_known: dict[int, str] = {}
_readings = Readings(most=4)


def name_of(uid: int) -> str:
    """Return the name of a user; the number where there is no name, or nobody tells it in time."""
    if uid not in _known:
        name = _readings.within(str(uid), functools.partial(_look_up, uid), LIMIT_S)
        if name is None:
            return str(uid)
        _known[uid] = name
    return _known[uid]


def _look_up(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
