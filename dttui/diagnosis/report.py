"""A diagnosis in words, section by section, as every client shows it."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from dtagent.protocol.events import JobState, NodeStanding

from dttui.agent_words import agent_term, agent_text
from dttui.diagnosis import standing
from dttui.diagnosis.last_readings import WINDOW_S, Before, GpuBefore
from dttui.diagnosis.models import Confidence, Diagnosis, Doing, Evidence, Explained, LogLine, Other
from dttui.i18n import _, joined, ngettext
from dttui.timestamps import elapsed_s
from dttui.words import listed, rank_names, state_name

MOST_TRACEBACK = 40
"""Lines of a traceback, from its end."""
MOST_LAST_LINES = 12
MOST_OTHERS = 12
MOST_ALSO = 8
MOST_NAMED = 4
MOST_EARLIER = 5
MOST_PLACES = 8
_RANK_MARK = re.compile(r"^\[(?:rank|default)?\d{1,9}\]:")
SHORT_TRACEBACK = 20
SHORT_ALSO = 8
MIB_PER_GB = 1e9 / (1 << 20)
"""Readings are in MiB, and memory is told in GB, as on every screen."""


class Kind(Enum):
    """What a line is, so that a screen can give it a colour."""

    PLAIN = "plain"
    BAD = "bad"
    FACTS = "facts"
    QUOTE = "quote"
    ADVICE = "advice"
    MUTED = "muted"


@dataclass(frozen=True)
class Line:
    """One line, without its indent or mark."""

    text: str
    kind: Kind = Kind.PLAIN


@dataclass(frozen=True)
class ReportSection:
    """Some lines under a heading; the first has none."""

    heading: str
    lines: tuple[Line, ...]


def sections(diagnosis: Diagnosis) -> tuple[ReportSection, ...]:
    """Return all there is to say, in the order in which a person reads it."""
    parts = [_opening(diagnosis), *_findings(diagnosis), _advice(diagnosis), *_first(diagnosis)]
    parts += [
        _places(diagnosis),
        *_also(diagnosis, MOST_ALSO),
        _before(diagnosis),
        _others(diagnosis),
        _earlier(diagnosis),
    ]
    return tuple(part for part in parts if part.lines)


def short_sections(diagnosis: Diagnosis) -> tuple[ReportSection, ...]:
    """Return what the end of a followed job says of a failure; nothing where nothing failed."""
    if diagnosis.cause is None or diagnosis.evidence.state in (JobState.SUCCEEDED, JobState.CANCELLED):
        return ()
    first = diagnosis.first
    quoted: Sequence[Line] = ()
    if first is not None:
        texts = _traceback(first) or [line.text for line in first.failure.lines]
        quoted = [Line(text, Kind.QUOTE) for text in texts[-SHORT_TRACEBACK:]]
    opening = _opening(diagnosis)
    parts = [ReportSection("", (*opening.lines[:2], *quoted)), *_also(diagnosis, SHORT_ALSO), _advice(diagnosis)]
    return tuple(part for part in parts if part.lines)


def _opening(diagnosis: Diagnosis) -> ReportSection:
    evidence, cause, first = diagnosis.evidence, diagnosis.cause, diagnosis.first
    lines = []
    if first is not None or evidence.state is JobState.FAILED:
        lines.append(Line(diagnosis.headline, Kind.BAD))
    if cause is not None and cause.words and cause.words not in diagnosis.headline:
        lines.append(Line(_cause_words(diagnosis)))
    if first is not None:
        lines.append(Line(_facts(first, evidence), Kind.FACTS))
        if cause is not None and cause.evidence:
            lines += [Line(_evidence_words(line, diagnosis.headline), Kind.MUTED) for line in cause.evidence]
    if diagnosis.same > 1:
        size = sum(len(node.ranks) for node in evidence.nodes)
        words = _("{count} of {size} ranks failed for the same reason.").format(count=diagnosis.same, size=size)
        lines.append(Line(words))
    lines += [Line(text) for text in _standing(diagnosis)]
    return ReportSection("", tuple(lines))


def _evidence_words(line: LogLine, said: str) -> str:
    text = line.text.strip()
    return line.place if text in said else f"{line.place}: {text}"


def _cause_words(diagnosis: Diagnosis) -> str:
    cause = diagnosis.cause
    if cause is None:
        return ""
    words = {
        Confidence.CERTAIN: _("Cause: {words}"),
        Confidence.LIKELY: _("Likely cause: {words}"),
        Confidence.POSSIBLE: _("Possible cause: {words}"),
        Confidence.UNKNOWN: "{words}",
    }[cause.confidence]
    return words.format(words=cause.words)


def _standing(diagnosis: Diagnosis) -> list[str]:
    """Return what there is to say of a job besides its failure: how it stands, or that nothing failed."""
    evidence = diagnosis.evidence
    if evidence.state is JobState.SUCCEEDED:
        well = _("Nothing has failed in this attempt.") if evidence.earlier else _("Nothing has failed.")
        fine = [] if evidence.apart is not None else [well]
        lines = list(evidence.nodes_out.values()) or fine
        return [*lines, *([evidence.reason] if evidence.reason else [])]
    if evidence.state is JobState.CANCELLED:
        well = _("Nothing has failed: the job was cancelled.")
        lines = [*evidence.nodes_out.values(), _("The job was cancelled.")] if evidence.nodes_out else [well]
        return [*lines, *([evidence.reason] if evidence.reason else [])]
    if evidence.state is JobState.FAILED:
        return []
    if evidence.state is JobState.UNKNOWN:
        return [
            _("No controller watches this job: it ended before the job did, and what is told here is what it left."),
            _("Its ranks may run on. `dttui stop {id}` ends them on every host.").format(id=evidence.job_id),
        ]
    if evidence.state is JobState.STOPPING:
        lines = [_("The job is being stopped: {reason}").format(reason=evidence.reason)]
        if diagnosis.first is None:
            lines.append(_("What failed, if anything did, is told once it has ended."))
        return lines
    return [*_going_on(diagnosis), *_latest(evidence), *_away(evidence)]


def _going_on(diagnosis: Diagnosis) -> list[str]:
    """Return whether anything has failed of a job that is not over, and without whom it goes on."""
    evidence = diagnosis.evidence
    standing = _("Nothing has failed so far: the job is not over ({state}).")
    if evidence.earlier:
        standing = _("Nothing has failed so far in this attempt: the job is not over ({state}).")
    if diagnosis.first is not None:
        standing = _("The job is not over ({state}).")
    elif evidence.nodes_out:
        standing = _("The job goes on without {hosts} ({state}).")
    out = listed(list(evidence.nodes_out), MOST_NAMED)
    return [standing.format(state=state_name(evidence.state), hosts=out), *evidence.nodes_out.values()]


def _latest(evidence: Evidence) -> list[str]:
    """Return for whom its ranks wait, or how long ago one has told of itself."""
    lines = []
    if evidence.absent_ranks and not evidence.metrics:
        ranks = rank_names(list(evidence.absent_ranks.items()), MOST_NAMED)
        lines.append(_("Others wait for {ranks} to join them.").format(ranks=ranks))
    elif evidence.running_at is not None and not evidence.metrics and not evidence.last_lines:
        words = _("No rank has printed a line or reported a step in the {seconds} s since all of them run.")
        lines.append(words.format(seconds=int(elapsed_s(evidence.running_at, evidence.now))))
    newest = max((item.time for item in evidence.metrics.values() if item.time), default=None)
    if newest is not None:
        lines.append(
            _("The last report of a step came {seconds} s ago.").format(seconds=int(elapsed_s(newest, evidence.now)))
        )
    return lines


def _away(evidence: Evidence) -> list[str]:
    """Return of which hosts nothing is known now."""
    lines = []
    gone = [node.name for node in evidence.nodes if node.state is NodeStanding.AGENT_GONE]
    if gone:
        words = _("The agent of {hosts} is gone: `dttui agents deploy {names}` brings it back.")
        lines.append(words.format(hosts=listed(gone, MOST_NAMED), names=" ".join(gone[:MOST_NAMED])))
    silent = [node.name for node in evidence.nodes if node.state is NodeStanding.UNKNOWN]
    if silent:
        lines.append(_("Nothing is heard of: {hosts}.").format(hosts=", ".join(silent)))
    return lines


def _facts(explained: Explained, evidence: Evidence) -> str:
    failure = explained.failure
    pieces = [
        (_("node"), failure.node),
        (_("rank"), failure.service or (_("launcher") if failure.rank is None else str(failure.rank))),
        (_("ending"), ending(failure.exit_code, failure.signal)),
    ]
    if explained.is_shared:
        pieces[0] = (_("first on node"), failure.node)
    if failure.is_lost or failure.is_aftermath:
        pieces = pieces[:1]
    if failure.time:
        pieces.append((_("at"), time.strftime("%H:%M:%S", time.localtime(failure.time))))
    told = [f"{name} {value}" for name, value in pieces]
    if failure.rank is not None:
        metric = evidence.metrics.get(failure.rank)
        told += _progress(metric.step, metric.loss_as_told) if metric is not None else []
    return "    ".join(told)


def _progress(step: int | None, loss: float | None) -> list[str]:
    """Return how far a rank had come, as far as it has told."""
    told = [] if step is None else [_("step {step}").format(step=f"{step:,}")]
    return told if loss is None else [*told, _("loss {loss:.4f}").format(loss=loss)]


def ending(exit_code: int | None, number: int | None) -> str:
    """Return how a process ended, in a few words."""
    if number is not None:
        return _("signal {name}").format(name=signal_name(number))
    return "–" if exit_code is None else _("exit code {code}").format(code=exit_code)


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9, and the number of one without a name."""
    known = {item.value: item.name for item in signal.Signals}
    return known.get(number, str(number))


def _first(diagnosis: Diagnosis) -> list[ReportSection]:
    first = diagnosis.first
    if first is None:
        return []
    failure = first.failure
    parts = []
    error = failure.error or ""
    trace = _traceback(first)
    if error.strip() and not trace and error not in failure.message and not error.startswith("SystemExit"):
        parts.append(ReportSection(_("Error"), _quotes(error.splitlines()[-MOST_LAST_LINES:])))
    if trace:
        parts.append(ReportSection(_("Traceback"), _quotes(trace)))
    last = _last_lines(failure.lines, (failure.traceback or "").rstrip().splitlines())
    if last:
        heading = _("Its last lines, from {place}").format(place=last[0].place)
        parts.append(ReportSection(heading, tuple(Line(line.text, Kind.MUTED) for line in last)))
    return parts


def _traceback(explained: Explained) -> list[str]:
    return (explained.failure.traceback or "").rstrip().splitlines()[-MOST_TRACEBACK:]


def _last_lines(lines: Sequence[LogLine], shown: Sequence[str]) -> list[LogLine]:
    """Return the end of its stderr, or of its stdout where that is empty, but for a traceback shown already."""
    by_file = {line.file: [item for item in lines if item.file == line.file] for line in lines}
    for own in reversed(list(by_file.values())):
        kept = [line for line in _without(own, shown) if line.text.strip()]
        if kept:
            return kept[-MOST_LAST_LINES:]
    return []


def _without(lines: Sequence[LogLine], shown: Sequence[str]) -> list[LogLine]:
    """Return lines but for a traceback that is shown already; torch marks its lines by `[rank0]: `."""
    texts = [_RANK_MARK.sub("", line.text).strip() for line in lines]
    told = [text.strip() for text in shown]
    for end in range(len(texts), 0, -1):
        begin = max(0, end - len(told))
        # What there is of the lines may begin in the middle of it.
        if begin < end - 1 and texts[begin:end] == told[len(told) - (end - begin) :]:
            return [*lines[:begin], *lines[end:]]
    return list(lines)


def _findings(diagnosis: Diagnosis) -> list[ReportSection]:
    """Return what stood in the way of a job that failed before any rank did."""
    if diagnosis.first is not None or diagnosis.evidence.state is not JobState.FAILED:
        return []
    lines = []
    for message, hint in diagnosis.evidence.findings:
        lines.append(Line(f"✗ {message}"))
        lines += [Line(f"  → {hint}", Kind.MUTED)] if hint else []
    for node in diagnosis.evidence.nodes:
        if node.message and node.state.is_bad:
            lines.append(Line(f"{node.name}: {node.message}"))
    return [ReportSection("", tuple(lines)), *_launchers(diagnosis)]


def _launchers(diagnosis: Diagnosis) -> list[ReportSection]:
    """Return what the launchers last said of the nodes that missed the rendezvous."""
    cause, rendezvous = diagnosis.cause, diagnosis.evidence.rendezvous
    if cause is None or cause.code != "rendezvous-timeout" or rendezvous is None:
        return []
    absent = {item.name for item in rendezvous.absent if item.has_come is False}
    parts = []
    for node in diagnosis.evidence.nodes:
        last = [line for line in node.launcher if line.text.strip()][-MOST_LAST_LINES:]
        if node.name in absent and len(last) > 1:  # A single one is told with the cause.
            heading = _("Its last lines, from {place}").format(place=last[0].place)
            parts.append(ReportSection(heading, tuple(Line(line.text, Kind.MUTED) for line in last)))
    return parts[:MOST_NAMED]


def _advice(diagnosis: Diagnosis) -> ReportSection:
    return ReportSection(_("What to try"), tuple(Line(text, Kind.ADVICE) for text in diagnosis.advice))


def _also(diagnosis: Diagnosis, most: int) -> list[ReportSection]:
    lost = _("Lost, and the job went on without")
    rest = _("Ended otherwise")
    if diagnosis.first is not None:
        lost, rest = _("Lost before it, and the job went on without"), _("Failed after it")
    return [_listed(lost, diagnosis.lost_before, most), _listed(rest, diagnosis.failed_after, most)]


def _listed(heading: str, found: Sequence[Explained], most: int) -> ReportSection:
    lines = []
    for item in found[:most]:
        moment = time.strftime("%H:%M:%S", time.localtime(item.failure.time)) if item.failure.time else "–"
        lines.append(
            Line(f"{moment}  {_consequence_words(item) if item.cause.is_consequence else item.failure.message}")
        )
    lines += _rest(len(found), most)
    return ReportSection(heading, tuple(lines))


def _consequence_words(item: Explained) -> str:
    failure = item.failure
    who = _("the launcher on {host}").format(host=failure.node)
    if failure.service is not None:
        who = _("{process} on {host}").format(process=failure.service, host=failure.node)
    if failure.rank is not None:
        who = _("rank {rank} on {host}").format(rank=failure.rank, host=failure.node)
    how = ending(failure.exit_code, failure.signal)
    return _("{who}, {ending}, a consequence: {words}").format(who=who, ending=how, words=item.cause.words)


def _places(diagnosis: Diagnosis) -> ReportSection:
    """Return where ranks stood when they failed, where that was not at one place."""
    lines = [Line(text) for text in standing.sentences(diagnosis.places[:MOST_PLACES])]
    lines += _rest(len(diagnosis.places), MOST_PLACES)
    return ReportSection(_("Where the ranks stood when they failed"), tuple(lines))


def _before(diagnosis: Diagnosis) -> ReportSection:
    before = diagnosis.before
    if before is None or diagnosis.first is None:
        return ReportSection("", ())
    lines = [Line(text) for text in (*_gpu_words(before.gpu), *_host_words(before))]
    count = ngettext("{count} reading", "{count} readings", before.samples).format(count=before.samples)
    if before.age_s is not None:
        told = _("{count}, the last {seconds:.1f} s before it").format(count=count, seconds=before.age_s)
        lines.append(Line(told, Kind.MUTED))
    heading = _("On {host} in the {seconds} s before").format(host=diagnosis.first.failure.node, seconds=int(WINDOW_S))
    return ReportSection(heading, tuple(lines))


def _gpu_words(gpu: GpuBefore | None) -> list[str]:
    if gpu is None:
        return []
    pieces = []
    if gpu.utilization_percent is not None:
        pieces.append(_("busy {percent}%").format(percent=gpu.utilization_percent))
    if gpu.memory_peak_mib is not None and gpu.memory_total_mib:
        used, total = gpu.memory_peak_mib / MIB_PER_GB, gpu.memory_total_mib / MIB_PER_GB
        pieces.append(_("holds up to {used:.1f} of {total:.1f} GB").format(used=used, total=total))
    if gpu.temperature_max_c is not None:
        pieces.append(_("up to {degrees} °C").format(degrees=gpu.temperature_max_c))
    if gpu.power_w is not None:
        limit = "" if gpu.power_limit_w is None else _(" of {watts:.0f}").format(watts=gpu.power_limit_w)
        pieces.append(_("{watts:.0f}{limit} W").format(watts=gpu.power_w, limit=limit))
    if gpu.throttle_reasons:
        pieces.append(_("held back: {reasons}").format(reasons=joined(", ", map(agent_term, gpu.throttle_reasons))))
    if gpu.ecc_uncorrected:
        pieces.append(_("{count} uncorrected memory errors").format(count=gpu.ecc_uncorrected))
    if gpu.xid is not None:
        pieces.append(f"Xid {gpu.xid}")
    if gpu.recovery_action:
        action = agent_term(gpu.recovery_action, gpu.recovery_action_notice)
        pieces.append(_("the driver asks for: {action}").format(action=action))
    if gpu.error:
        pieces.append(agent_text(gpu.error, gpu.error_notice))
    return [f"GPU {gpu.index}  " + " · ".join(pieces)] if pieces else []


def _host_words(before: Before) -> list[str]:
    lines = []
    rank = []
    if before.rank_memory_peak_mib is not None:
        peak, first = before.rank_memory_peak_mib, before.rank_memory_first_mib or 0
        rank.append(_("memory up to {used:.1f} GB").format(used=peak / MIB_PER_GB))
        if peak > 2 * first and peak - first > MIB_PER_GB:
            rank.append(_("from {used:.1f}").format(used=first / MIB_PER_GB))
    if before.rank_cpu_percent is not None:
        rank.append(_("CPU {percent:.0f}%").format(percent=before.rank_cpu_percent))
    if before.rank_state in ("disk-sleep", "stopped", "zombie"):
        rank.append(before.rank_state)
    if rank:
        lines.append(_("the rank") + "  " + " · ".join(rank))
    host = []
    if before.memory_peak_mib is not None and before.memory_total_mib:
        used, total = before.memory_peak_mib / MIB_PER_GB, before.memory_total_mib / MIB_PER_GB
        host.append(_("memory up to {used:.1f} of {total:.1f} GB").format(used=used, total=total))
    if before.cpu_percent is not None:
        host.append(_("CPU {percent:.0f}%").format(percent=before.cpu_percent))
    if before.full_disks:
        host.append(_("full: {mounts}").format(mounts=", ".join(before.full_disks)))
    if host:
        lines.append(_("the host") + "  " + " · ".join(host))
    return lines


def _others(diagnosis: Diagnosis) -> ReportSection:
    lines = []
    shown = diagnosis.others[:MOST_OTHERS]
    for other in shown:
        lines.append(Line(_other_words(other, is_over=diagnosis.first is None and diagnosis.evidence.state.is_final)))
        if other.last_line is not None and other.doing is not Doing.FAILED:
            lines.append(Line(f"    {other.last_line.text}", Kind.MUTED))
    lines += _rest(len(diagnosis.others), MOST_OTHERS)
    return ReportSection(_("The other ranks") if diagnosis.first is not None else _("The ranks"), tuple(lines))


def _other_words(other: Other, *, is_over: bool) -> str:
    who = _("rank {rank} on {host}").format(rank=other.rank, host=other.node)
    pieces = [doing_name(other.doing, is_over=is_over), *_progress(other.step, other.loss)]
    return f"{who}  " + " · ".join(pieces)


def doing_name(doing: Doing, *, is_over: bool = False) -> str:
    """Return what became of a rank, in the person's language; `is_over` of a job in which none failed before it."""
    return {
        Doing.FAILED: _("failed too"),
        Doing.ENDED: _("ended with 0") if is_over else _("had ended with 0"),
        Doing.STOPPED: _("ran until it was stopped"),
        Doing.RUNNING: _("runs"),
        Doing.STARTING: _("is starting"),
        Doing.LOST: _("not heard of"),
        Doing.ABSENT: _("never started"),
    }[doing]


def _rest(total: int, shown: int) -> list[Line]:
    return [Line(_("… and {count} more").format(count=total - shown), Kind.MUTED)] if total > shown else []


def _quotes(texts: Sequence[str]) -> tuple[Line, ...]:
    return tuple(Line(text, Kind.QUOTE) for text in texts)


def _earlier(diagnosis: Diagnosis) -> ReportSection:
    told = diagnosis.evidence.earlier[-MOST_EARLIER:]
    lines = [Line(_("attempt {number}: {why}").format(number=number, why=why)) for number, why in told]
    return ReportSection(_("Attempts before"), tuple(lines))
