"""What is told where another attempt follows: why and when, and of the nodes that take no part any more."""

from __future__ import annotations

import time

from dttui.engine.attempt_log import AttemptLog
from dttui.engine.context import JobContext
from dttui.engine.decision import Restart
from dttui.i18n import Message, msg
from dttui.jobs.outcome import AttemptOutcome
from dttui.spec.findings import info, warning
from dttui.words import listed

WORTH_TELLING_S = 0.5
"""A delay of which it is told until when."""
MOST_NAMES = 4


def tell_of_nodes(job: JobContext, outcome: AttemptOutcome, restart: Restart) -> None:
    """Tell of nodes that take no part any more, and of those that had better not."""
    log = AttemptLog(job.log, outcome.attempt)
    log.resume(job.log.every())
    for name, replacement in restart.changes.items():
        if name in restart.set_aside:
            message = msg("{host} is set aside: attempts have failed there again and again", host=name)
            log.tell(warning("set-aside", name, message, msg("Look at what the events tell of it.")))
        said = msg("the job goes on without {host}", host=name)
        if replacement is not None:
            said = msg("{spare} takes the place of {host}", spare=replacement, host=name)
        log.tell(info("replaced", name, said))
        if name in outcome.left_behind:
            message = msg("what runs on {host} is not known: the job goes on without waiting for it", host=name)
            hint = msg("What is left there ends as soon as the host answers.")
            log.tell(warning("unfenced", name, message, hint))
    for name in restart.suspects:
        message = msg("attempts have failed on {host} again and again, and nothing can take its place", host=name)
        hint = msg("Name spares under recovery.spares, with on_node_failure: replace, or write recovery.min_nodes.")
        log.tell(warning("suspect", name, message, hint))


def restart_message(outcome: AttemptOutcome, restart: Restart, not_before: float, delay_s: float) -> Message:
    """Return in words why and when another attempt begins."""
    at = time.strftime("%H:%M:%S", time.localtime(not_before))
    why = outcome.message
    if restart.awaited:
        hosts = listed(list(restart.awaited), MOST_NAMES)
        return msg("{why}; starting again at {time}, or as soon as {hosts} is clear", why=why, time=at, hosts=hosts)
    if delay_s < WORTH_TELLING_S:
        return msg("{why}; starting again", why=why)
    return msg("{why}; starting again at {time}", why=why, time=at)
