"""Why a job ended as it did, or how it stands: from what its hosts left on the login node to one first cause. Pure."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dtagent.protocol.events import JobState, NodeStanding

from dttui.diagnosis import failure_places, standing
from dttui.diagnosis.advice import FREE_DISK, HANGING, LATE_RANK, SAME_CALLS, SILENT_RANK
from dttui.diagnosis.causes import TRACED, UNTRACED, Recognised, asked_bytes, by_signal, followed_by, recognise, tell
from dttui.diagnosis.exceptions import chain, crash_begins, crash_in, exceptions_in, raised_at
from dttui.diagnosis.measured import before_failure, with_readings
from dttui.diagnosis.models import (
    ENDED_WITH_OTHERS,
    Cause,
    Confidence,
    Diagnosis,
    Evidence,
    Explained,
    Failed,
    LogLine,
    NodeEvidence,
    Other,
)
from dttui.diagnosis.others import other_ranks, suspect
from dttui.diagnosis.own_errors import advice_for
from dttui.diagnosis.recogniser import MAX_FIELD
from dttui.diagnosis.refused import refused_by_script
from dttui.diagnosis.siblings import PORT_IN_USE, with_sibling
from dttui.diagnosis.standing import RankGroup
from dttui.diagnosis.unstarted import missed_rendezvous, since_cleared, why_unstarted
from dttui.i18n import N_, _, msg
from dttui.jobs import LAUNCHER
from dttui.jobs.disturbances import APART, HANG
from dttui.spec.failure_causes import ALERT, STRAGGLER, UNHEALTHY
from dttui.words import listed

SHELL_SIGNAL = 128
"""A shell exits with this plus the number of the signal that ended its child."""
MOST_NAMES = 4
"""Hosts that a cause names; the others are counted."""
CLOSE_LINES = 20
"""How near its end a log must have an exception for that to be the reason."""
FULL_S = 120.0
"""Between a failure and word of a full disk that may be why: agents look at their disks now and then."""
WHO_REMOVES = N_("Find out who removes files there; `agent_root` in the inventory names another place for the agent's.")
_MORE = {
    ("no-gpu", "driver-too-old"),
    ("no-cuda-build", "driver-too-old"),
    ("peer-gone", "collective-timeout"),
}
"""Causes of an exception, each with that of a line which says why it was raised."""
CRASHES = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
"""Signals of which Python tells where it was, as ranks have it do."""
_ANYTHING = "\0"
"""Stands for a host's name or interpreter; no text has it."""


def diagnose(evidence: Evidence) -> Diagnosis:
    """Return why the job failed, or how it stands where it did not."""
    explained = [Explained(item, _cause_of(item, evidence)) for item in (*evidence.failures, *_lost(evidence))]
    explained.sort(key=_order)
    # What an elastic job went on without is not why it failed, and its ranks have been numbered anew since.
    decisive = [item for item in explained if not item.failure.is_survived]
    first = _first_of(decisive, evidence)
    others = other_ranks(evidence, decisive)
    places = failure_places.places_of(item.failure for item in decisive)
    if first is None or evidence.state in (JobState.SUCCEEDED, JobState.CANCELLED):
        cause = _of_no_rank(evidence)
        advice = cause.advice if cause is not None else ()
        return Diagnosis(evidence, evidence.reason, None, tuple(explained), cause, None, others, advice)
    also = tuple(item for item in explained if item is not first)
    before = before_failure(first.failure, evidence)
    shared = _on_all_hosts(first, decisive, evidence)
    cause = with_readings(shared, before, evidence)
    if cause.code == ENDED_WITH_OTHERS:
        # No other failure is a cause of its own, so it was not for one of them.
        cause = _by_signal(signal.SIGTERM, _fields(first.failure, evidence), ())
    if cause.is_consequence and (full := _full_at(first.failure, evidence)):
        cause = _by_full_disk(full[0])  # Whoever failed there could leave no word of it.
    elif cause.is_consequence:
        cause = _with_suspects(cause, decisive, others, evidence.absent_ranks)
        cause = _with_places(cause, places)
    # What was measured on one host is of that host.
    is_shared = shared.is_shared and cause.code == shared.cause.code
    first = replace(shared, cause=cause, is_shared=is_shared)
    headline: str = first.failure.message
    if is_shared:
        headline = msg("on all {count} hosts alike: {what}", count=_with_ranks(evidence), what=shared.cause.words)
    return Diagnosis(evidence, headline, first, also, cause, before, others, cause.advice, places)


def _first_of(decisive: Sequence[Explained], evidence: Evidence) -> Explained | None:
    """Return what failed first by itself; `None` where what was told of ranks came of something else."""
    first = decisive[0] if decisive else None
    if first is not None and first.cause.is_consequence and missed_rendezvous(evidence) is not None:
        return None  # Whoever waited gave up, or was ended: it failed for want of those who did not come.
    ended_it = [told[2] for told in (evidence.hang, evidence.unhealthy, evidence.straggler) if told is not None]
    return None if evidence.alert is not None or any(ended_it) else first


def _of_no_rank(evidence: Evidence) -> Cause | None:
    """Return why a job failed, or does not go well, of which no rank failed first; `None` where nothing says so."""
    return (
        _of_an_alert(evidence)
        or _of_what_is_seen(HANG, evidence.hang, evidence)
        or _of_what_is_seen(UNHEALTHY, evidence.unhealthy, evidence)
        or _of_ranks_apart(evidence)
        or _of_what_is_seen(STRAGGLER, evidence.straggler, evidence)
        or (why_unstarted(evidence) if evidence.state is JobState.FAILED else None)
    )


def _of_an_alert(evidence: Evidence) -> Cause | None:
    if evidence.alert is None:
        return None
    words = _("An alert ended it, for another attempt: {what}.").format(what=evidence.alert)
    return Cause(ALERT, words, (_("An alert with `action: report` lets the job go on."),), Confidence.CERTAIN)


def _of_what_is_seen(code: str, told: tuple[str, str, bool] | None, evidence: Evidence) -> Cause | None:
    """Return what a watch has told of a job, where it still is so or has ended the job."""
    if told is None or evidence.state is JobState.SUCCEEDED:
        return None
    message, hint, ended_it = told
    if evidence.state is JobState.FAILED and not ended_it:
        return None
    return Cause(code, message, (hint,) if hint else (), Confidence.CERTAIN)


def _of_ranks_apart(evidence: Evidence) -> Cause | None:
    if evidence.apart is None:
        return None
    message, hint = evidence.apart
    return Cause(APART, message, (hint,) if hint else (), Confidence.CERTAIN)


def _order(item: Explained) -> tuple[bool, bool, bool, float]:
    """Causes before consequences, then by time; what the job survived and what could not be cleared away come last."""
    time, failure = item.failure.time, item.failure
    return failure.is_aftermath, failure.is_survived, item.cause.is_consequence, float("inf") if time is None else time


def _on_all_hosts(first: Explained, explained: Sequence[Explained], evidence: Evidence) -> Explained:
    """Name every host in a cause of which the same is to be said of several; of all, it is none's alone.

    Of an exception of the script's own the same is its type and place: its message may name what a rank had before it.
    """
    of_hosts = {item.failure.node: item for item in explained[::-1] if item.cause.code == first.cause.code}
    if len(of_hosts) == 1 or first.cause.is_consequence:
        return first
    anywhere = {"host": _ANYTHING, "python": _ANYTHING}
    words = {name: _cause_of(item.failure, evidence, anywhere).words for name, item in of_hosts.items()}
    others = [node for node in evidence.nodes if words.get(node.name) == words[first.failure.node]]
    names = list(dict.fromkeys([first.failure.node, *(node.name for node in others)]))
    pythons = {node.python for node in others}
    alike = {"host": listed(names, MOST_NAMES), "python": pythons.pop() if len(pythons) == 1 else "python"}
    cause = _cause_of(first.failure, evidence, alike)
    # How each ended is no reason yet that they have in common.
    is_shared = len(names) == _with_ranks(evidence) and cause.confidence is not Confidence.UNKNOWN
    return replace(first, cause=cause, is_shared=is_shared)


def _with_ranks(evidence: Evidence) -> int:
    """Return on how many hosts the job has ranks."""
    return sum(1 for node in evidence.nodes if node.ranks)


def _cause_of(failure: Failed, evidence: Evidence, alike: Mapping[str, str] | None = None) -> Cause:
    """Return the cause of a failure; `alike` takes the place of its host's name and interpreter."""
    if failure.is_lost or failure.is_aftermath:
        return _cause_of_node(failure, evidence)
    fields = {**_fields(failure, evidence), **(alike or {})}
    printed = [line.text for line in failure.lines]
    number = _signal_of(failure)
    if (cause := _by_words(failure, evidence, fields, printed)) is not None:
        where = _crash_words(printed) if number in CRASHES and not cause.is_consequence else ""
        return replace(cause, words=followed_by(cause.words, where)) if where else cause
    if number == signal.SIGTERM and _was_stopping(failure, evidence):
        return Cause(ENDED_WITH_OTHERS, _("It was ended because another rank had failed."), (), Confidence.LIKELY, True)
    return _by_exit(failure, evidence) if number is None else _by_signal(number, fields, printed)


def _by_words(failure: Failed, evidence: Evidence, fields: dict[str, str], printed: Sequence[str]) -> Cause | None:
    """Return the cause that an exception says, or a line near the end of what was printed; `None` where none does."""
    recorded = failure.error if failure.error and not failure.error.startswith("SystemExit") else None
    found = chain(recorded, failure.traceback, printed)
    has_signal = _signal_of(failure) is not None
    spoken, said = recognise([item.text for item in found], printed, failure.exit_code)
    if not (spoken or said or recorded or has_signal):
        spoken, said = recognise(_left_by_launcher(failure, evidence), (), failure.exit_code)
    if spoken is not None and (recorded or _is_near_end(found[spoken.index].index, printed)):
        confidence = Confidence.CERTAIN if recorded else Confidence.LIKELY
        if said is not None and _says_more(said, spoken):
            return _cause_of_row(said, failure, evidence, confidence, said.index, fields)
        return _cause_of_row(spoken, failure, evidence, confidence, found[spoken.index].index, fields)
    if said is not None and not recorded and _is_near_end(said.index, printed):
        return _cause_of_row(said, failure, evidence, Confidence.LIKELY, said.index, fields)
    if recorded or (found and not has_signal and _is_near_end(found[0].index, printed)):
        is_told = fields["host"] != _ANYTHING
        return _by_exception(failure, found[0].text, found[0].index, recorded is not None, is_told)
    return None


def _says_more(said: Recognised, spoken: Recognised) -> bool:
    """Whether a line says why an exception was raised: a driver that is too old looks like no GPU."""
    return (spoken.row.code, said.row.code) in _MORE


def _by_signal(number: int, fields: dict[str, str], printed: Sequence[str]) -> Cause:
    code, words, advice = by_signal(number)
    is_open = number in (signal.SIGKILL, signal.SIGTERM, signal.SIGBUS)
    confidence = Confidence.LIKELY if is_open else Confidence.CERTAIN
    said = tell(words, fields)
    thrown = [item for item in exceptions_in(printed) if "::" in item.text.partition(" ")[0]]
    if number == signal.SIGABRT and thrown and _is_near_end(thrown[-1].index, printed):
        kind, _colon, what = thrown[-1].text.partition(": ")
        said = _("Compiled code threw {type} ({what}), which nothing caught (SIGABRT).")
        said = said.format(type=kind, what=what[:MAX_FIELD])
    is_traced, _place = crash_in(printed)
    if is_traced:
        advice = tuple(TRACED if text == UNTRACED else text for text in advice)
    if where := _crash_words(printed):
        said = followed_by(said, where)
    return Cause(code, said, tuple(tell(text, fields) for text in advice), confidence)


def _crash_words(printed: Sequence[str]) -> str:
    """Return where Python was in the script when compiled code crashed; empty where that was not printed."""
    _is_traced, place = crash_in(printed)
    if place is None:
        return ""
    where = _("Python was in {file}, line {line}, function {function}.")
    return where.format(file=place.file.rpartition("/")[2], line=place.line, function=place.function)


def _cause_of_node(failure: Failed, evidence: Evidence) -> Cause:
    job_id = evidence.job_id
    if failure.node in evidence.cleared:
        code = "unkillable" if failure.is_aftermath else "node-lost"
        return Cause(code, failure.message, since_cleared(evidence, [failure.node]), Confidence.CERTAIN)
    if failure.is_aftermath:
        stuck = (_("A process in state D waits in the kernel for a device or a file system: see `dmesg` there."),)
        return Cause("unkillable", failure.message, stuck, Confidence.CERTAIN)
    if failure.is_self_fenced:
        fenced = (
            _("{host} answers, and nothing of the job is left there.").format(host=failure.node),
            _("See what has cut {host} off from the login node, or why no controller ran.").format(host=failure.node),
        )
        return Cause("self-fenced", failure.message, fenced, Confidence.CERTAIN)
    if failure.is_cleared:
        cleared = (
            _("{host} answers, and nothing of the job is left there.").format(host=failure.node),
            _("See `dmesg` there for «Out of memory», or ask who ends processes or restarts the host."),
        )
        return Cause("supervisor-lost", failure.message, cleared, Confidence.CERTAIN)
    if failure.is_agent_gone:
        repair = (
            _("`dttui agents deploy {host}` brings the agent back, under what may still run there.").format(
                host=failure.node
            ),
            _("`dttui stop {job}` then ends what still runs there.").format(job=job_id),
            _(WHO_REMOVES),
        )
        return Cause("agent-gone", failure.message, repair, Confidence.CERTAIN)
    advice = (
        _("`dttui envs list {host}` says whether there is a way to {host} again; what ran there may run on.").format(
            host=failure.node
        ),
        _("`dttui stop {job}` clears the host once it answers again.").format(job=job_id),
    )
    return Cause("node-lost", failure.message, advice, Confidence.CERTAIN)


def _by_exception(failure: Failed, text: str, index: int, is_recorded: bool, is_told: bool) -> Cause:
    """Return the cause for an exception that no row of the table knows, the script's own, with its message if told."""
    kind, message = _kind_and_message(text)
    place = raised_at(failure.traceback) or raised_at("\n".join(line.text for line in failure.lines))
    name = kind.rpartition(".")[2]
    if place is None:
        what = _("The script raised {type}").format(type=name)
    elif place.function in (None, "<module>"):
        what = _("The script raised {type} in {file}, line {line}").format(
            type=name, file=place.file.rpartition("/")[2], line=place.line
        )
    else:
        what = _("The script raised {type} in {file}, line {line}, function {function}").format(
            type=name, file=place.file.rpartition("/")[2], line=place.line, function=place.function
        )
    words = _("{what}: {why}").format(what=what, why=message[:MAX_FIELD]) if message and is_told else what
    general = _("The traceback says where: put it right in the script, and launch again.")
    advice = (*map(_, advice_for(f"{kind}: {message}")), general)
    confidence = Confidence.CERTAIN if is_recorded else Confidence.LIKELY
    return Cause("exception", words, advice, confidence, False, _lines(failure, index))


def _kind_and_message(text: str) -> tuple[str, str]:
    """Return the type of an exception and its message's first line, which may stand below the type."""
    first, _end, below = text.partition("\n")
    kind, colon, message = first.partition(":")
    if colon and not message.strip():
        message = next(filter(str.strip, below.splitlines()), "")
    return kind, message.strip()


def _by_exit(failure: Failed, evidence: Evidence) -> Cause:
    said = (failure.error or "").removeprefix("SystemExit:").strip()
    if said and not said.lstrip("-").isdigit():
        words = _("The script ended itself: {message}").format(message=said.splitlines()[0])
        return Cause("exit-message", words, (_("The script says itself what it wants."),), Confidence.CERTAIN)
    node = next((item for item in evidence.nodes if item.name == failure.node), None)
    if node is not None and node.prefix and node.ranks_started == () and failure.process == LAUNCHER:
        return _by_prefix(failure, node)
    if failure.node in evidence.removed_on:
        return _by_removal(failure)
    if failure.node in _full_at(failure, evidence):
        return _by_full_disk(failure.node)
    words = _("Why is not known: it ended with exit code {code}, and without an exception.").format(
        code=failure.exit_code
    )
    if failure.rank is None and failure.service is None:
        words = _("Why is not known: the launcher ended with exit code {code}.").format(code=failure.exit_code)
    advice = (_("Read the last lines of its output: only the script knows what its exit codes mean."),)
    return Cause("exit-code", words, advice, Confidence.UNKNOWN)


def _by_removal(failure: Failed) -> Cause:
    words = _("Most likely because the agent's files of this job were removed from {host} while it ran.")
    advice = _("`dttui agents deploy {host}` brings back what else may be missing there.")
    return Cause(
        "agent-files-removed",
        words.format(host=failure.node),
        (advice.format(host=failure.node), _(WHO_REMOVES)),
        Confidence.LIKELY,
    )


def _by_full_disk(host: str) -> Cause:
    words = _("Most likely because a disk of {host} was full while it ran: what was printed last there did not fit.")
    return Cause("disk-was-full", words.format(host=host), (_(FREE_DISK),), Confidence.LIKELY)


def _full_at(failure: Failed, evidence: Evidence) -> list[str]:
    """Return the hosts of which a full disk was told at about the time of a failure, the nearest in time first."""
    if failure.time is None:
        return []
    apart = {host: abs(told_at - failure.time) for host, told_at in evidence.full_on.items()}
    return sorted((host for host in apart if apart[host] <= FULL_S), key=apart.__getitem__)


def _by_prefix(failure: Failed, node: NodeEvidence) -> Cause:
    """Return the cause where no rank started and all that is known to have run is `run.prefix`."""
    words = _("run.prefix on {host} ended with exit code {code} before the script ran.").format(
        host=node.name, code=failure.exit_code
    )
    if node.unseen:
        words += " " + _("The preflight had warned of it: {message}.").format(message=node.unseen)
    command = shlex.join([*node.prefix, node.python, "--version"])
    advice = _("Try on {host}: {command}").format(host=node.name, command=command)
    return Cause("prefix-failed", words, (advice,), Confidence.LIKELY)


def _cause_of_row(
    found: Recognised, failure: Failed, evidence: Evidence, confidence: Confidence, index: int, fields: dict[str, str]
) -> Cause:
    """Return what a row of the table says of a failure; `index` is that of the line it was found in."""
    known = {**fields, **found.fields}
    lines = _lines(failure, index)
    if found.row.code == "arguments":
        program, what = known.get("program", _("The script")), known["what"]
        if cause := refused_by_script(program, what, evidence, confidence, lines):
            return cause
    has_printed = known.get("missing", "") in map(str, evidence.last_lines)
    rows = [SILENT_RANK if text == LATE_RANK and not has_printed else text for text in found.row.advice]
    advice = tuple(tell(text, known) for text in rows)
    words = tell(found.row.words, known)
    asked = asked_bytes(found.fields)
    cause = Cause(found.row.code, words, advice, confidence, found.row.is_consequence, lines, asked)
    return with_sibling(cause, failure, evidence, known) if cause.code == PORT_IN_USE else cause


def _fields(failure: Failed, evidence: Evidence) -> dict[str, str]:
    node = next((item for item in evidence.nodes if item.name == failure.node), None)
    python = node.python if node else "python"
    return {
        "host": failure.node,
        "rank": str(failure.rank),
        "python": python,
        "job": evidence.job_id,
        "arguments": "run.command" if evidence.framework == "command" else "run.args",
    }


def _left_by_launcher(failure: Failed, evidence: Evidence) -> list[str]:
    """Return the exceptions of the launcher of a rank that left nothing itself."""
    node = next((item for item in evidence.nodes if item.name == failure.node), None)
    found = exceptions_in([line.text for line in node.launcher]) if node and failure.rank is not None else []
    return [item.text for item in found[::-1] if not item.text.startswith("torch.distributed.elastic")]


def _signal_of(failure: Failed) -> int | None:
    if failure.signal is not None:
        return failure.signal
    code = failure.exit_code or 0
    known = {int(item) for item in signal.Signals}
    return code - SHELL_SIGNAL if code - SHELL_SIGNAL in known and code != SHELL_SIGNAL else None


def _was_stopping(failure: Failed, evidence: Evidence) -> bool:
    """Whether another rank failed at the same time, so that a TERM came from its launcher or from us."""
    others = (item for item in evidence.failures if item is not failure and not item.is_survived)
    return any(_signal_of(item) != signal.SIGTERM for item in others)


def _is_near_end(index: int, printed: Sequence[str]) -> bool:
    """Whether a line is one of the last, but for what Python tells of a crash after it, of all threads."""
    end = crash_begins(printed)
    return index < 0 or (len(printed) if end is None else end) - index <= CLOSE_LINES


def _lines(failure: Failed, index: int) -> tuple[LogLine, ...]:
    return failure.lines[index : index + 1] if 0 <= index < len(failure.lines) else ()


def _lost(evidence: Evidence) -> list[Failed]:
    """Return the nodes that were given up, or have fallen silent, and that no failure speaks of."""
    spoken = {item.node for item in evidence.failures if item.is_lost}
    found = []
    for node in evidence.nodes:
        if node.state is NodeStanding.LOST and node.name not in spoken:
            time = node.readings[-1].time if node.readings else None
            message = node.message if node.name in node.message else f"{node.name}: {node.message}"
            found.append(
                Failed(
                    node.name,
                    None,
                    message,
                    time,
                    is_lost=True,
                    is_agent_gone=node.is_agent_gone,
                    is_survived=node.name in evidence.nodes_out,
                )
            )
    return found


def _with_suspects(
    cause: Cause, explained: Sequence[Explained], others: Sequence[Other], absent: Mapping[int, str]
) -> Cause:
    """Return the cause of a job in which every failure follows from another one, with whom to look at."""
    told = suspect(cause, explained, others, absent)
    if not told:
        return cause
    return replace(
        cause, words=followed_by(cause.words, told), confidence=min(cause.confidence, Confidence.LIKELY, key=_rank)
    )


def _with_places(cause: Cause, places: Sequence[RankGroup]) -> Cause:
    """Return the cause of a job in which every failure follows from another one, with where each of them waited."""
    if not failure_places.is_apart(places):
        return cause
    told = failure_places.sentence(standing.sentences(places))
    advice = (tell(SAME_CALLS, {}), *(text for text in cause.advice if text != tell(HANGING, {})))
    return replace(cause, words=followed_by(cause.words, told), advice=advice)


def _rank(confidence: Confidence) -> int:
    return (Confidence.UNKNOWN, Confidence.POSSIBLE, Confidence.LIKELY, Confidence.CERTAIN).index(confidence)
