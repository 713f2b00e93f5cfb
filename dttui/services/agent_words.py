"""What agents say, in the language of the person: their texts are English, and known here by what they are made of."""

from __future__ import annotations

import contextlib
from typing import Any

from dttui.i18n import N_, told
from dttui.sanitize import clean

_KNOWN = frozenset(
    {
        N_("there is no {paths} here"),
        N_("there is no interpreter {python} here"),
        N_("the attempt was given up already"),
        N_("attempt {attempt} of job {job} was seen here already"),
        N_("attempt {attempt} of the job still runs here"),
        N_("{wanted} GPUs are wanted and {free} are free here"),
        N_("{wanted} GPUs are wanted and {free} are free here; {who}"),
        N_("{wanted} simulated GPUs are wanted and {free} are free here"),
        N_("{wanted} simulated GPUs are wanted and {free} are free here; {who}"),
        N_("every port from {first} to {last} is taken"),
        N_("the start came too late: {who} by now"),
        N_("the start came too late: job {jobs} has the simulated GPUs by now"),
        N_("the start came too late: port {port} is taken by now"),
        N_("the supervisor did not start"),
        N_("the supervisor on this host died"),
        N_("the host was restarted"),
        N_("a record of how it ended on this host is damaged"),
    }
)
"""Nothing else is filled in: the form of a text from a host is not to be trusted."""


def agent_text(text: str, data: object = None) -> str:
    """Return what an agent said, as a message where it is a known one.

    Args:
        text: in English, as the agent filled it in.
        data: of its error; `told` in it says what the text was made of.
    """
    recipe: Any = data.get("told") if isinstance(data, dict) else {"id": text, "values": {}}
    with contextlib.suppress(LookupError, ValueError, TypeError, AttributeError):
        known = next((known for known in _KNOWN if known == recipe["id"]), None)
        if known is not None:
            return told(known, **{str(name): clean(str(value)) for name, value in recipe["values"].items()})
    return clean(text)
