"""What headless commands print: progress to stderr, results to stdout, in the three formats."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO

from dtagent.protocol.events import Event, EventKind, JobState
from dtagent.protocol.rpc import to_wire

from dttui.i18n import _, msg
from dttui.jobs import event_words, hint_of, message_of
from dttui.planning import Saying, merge
from dttui.sanitize import clean
from dttui.spec import Severity, text_width
from dttui.words import listed, state_name, told_state

if TYPE_CHECKING:
    from dttui.diagnosis import Diagnosis, ReportSection
    from dttui.jobs import JobDirectory, JobView, NodeView
    from dttui.jobs.plan_file import SeenPlan
    from dttui.planning import Plan
    from dttui.spec import Finding

METRIC_INTERVAL_S = 1.0
PROGRESS_INTERVAL_S = 10.0
"""Between two lines about how far a launch is, where no line can be written over."""
PATIENCE_S = 2.0
"""How long a wait goes without a word."""
MAX_NAMES = 4
"""Hosts that a line names; the others are counted."""
MOST_LINE_CHARS = 4000
BAR_WIDTH = 24
MARKS = {"error": "✗", "warning": "⚠", "info": "·"}


def can_rewrite(stream: TextIO) -> bool:
    """Whether what was written there can be written over: a terminal, and one that moves its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class Printer:
    """Shows a job as it goes."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._metric_at = 0.0
        self._metric_of: tuple[int | None, int] = (-1, 0)
        """Attempt and rank of the report that was printed last."""
        self._metric_text = ""
        self._progress_at = 0.0
        self._can_rewrite = can_rewrite(sys.stderr)
        self._has_open_line = False
        self._waits_since: float | None = None
        """By the monotonic clock; infinite once that was said."""
        self._errors: set[str] = set()
        """What findings said: the job's reason to fail, and not to be said in full each time it is told."""

    def note(self, text: str) -> None:
        """Say something to the person, not to the reader of results."""
        self.close_line()
        sys.stderr.write(f"{text}\n")

    def waits(self, names: Collection[str], until: float) -> None:
        """Say once for whom one waits, and until which Unix time at the latest, where that takes longer than a moment.

        To be called again and again; without names nobody is waited for.
        """
        if self._output != "human" or not names:
            self._waits_since = None
            return
        now = time.monotonic()
        self._waits_since = now if self._waits_since is None else self._waits_since
        if now - self._waits_since >= PATIENCE_S:
            self._waits_since = math.inf
            moment = time.strftime("%H:%M:%S", time.localtime(until))
            told = _("waiting for {hosts}, until {time} at the latest")
            self.note(one_line(told.format(hosts=listed(list(names), MAX_NAMES), time=moment)))

    def events(self, events: Iterable[Event]) -> None:
        """Show events that came together; findings that are alike on several nodes are told once."""
        for is_findings, group in groupby(events, lambda event: event.kind is EventKind.FINDING):
            found = list(group)
            if is_findings and self._output != "jsonl":
                self._note_errors(found)
                found = _folded(found)
            for event in found:
                self.event(event)

    def event(self, event: Event) -> None:
        """Show one event."""
        if self._output == "jsonl":
            print(json.dumps(to_wire(event)), flush=True)
            return
        if event.kind is EventKind.PROGRESS and "ready_nodes" in event.data and "files" not in event.data:
            self._show_progress(event)
            return
        text = self._text(event)
        if text:
            self.close_line()
            sys.stderr.write(f"{time.strftime('%H:%M:%S', time.localtime(event.time))}  {one_line(text)}\n")

    def _show_progress(self, event: Event) -> None:
        """Write how far a launch is over what was written of that before, or now and then in a line of its own."""
        when = time.strftime("%H:%M:%S", time.localtime(event.time))
        if self._can_rewrite:
            bar = progress_bar(event.data)
            sys.stderr.write(f"\r\x1b[K{when}  {bar} {one_line(event.message)}")
            sys.stderr.flush()
            self._has_open_line = True
        elif not 0 <= event.time - self._progress_at < PROGRESS_INTERVAL_S:
            self._progress_at = event.time
            sys.stderr.write(f"{when}  {one_line(event.message)}\n")

    def show_share(self, share: float, text: str) -> None:
        """Write how much of something is done, 0 to 1, over what was written of that before, where a line can be."""
        if self._can_rewrite:
            sys.stderr.write(f"\r\x1b[K{share_bar(share)} {one_line(text)}")
            sys.stderr.flush()
            self._has_open_line = True

    @property
    def rewrites(self) -> bool:
        """Whether a line on stderr can be written over."""
        return self._can_rewrite

    def close_line(self) -> None:
        """Take away a line that would be written over, before anything else is written to the terminal."""
        if self._has_open_line:
            self._has_open_line = False
            sys.stderr.write("\r\x1b[K")

    def summary(self, view: JobView, directory: JobDirectory) -> None:
        """Print the result."""
        if self._output == "jsonl":
            return
        if self._output == "json":
            print_document(job_document(view, directory), self._output)
            return
        if text := failure_text(view, directory):
            sys.stderr.write("".join(line for line in text.splitlines(True) if not self._was_said(line)))
        newest = view.newest_metric
        known = to_wire(newest) if newest is not None else {}
        known = {name: known[name] for name in ("step", "loss", "not_finite") if name in known}
        parts = [f"{view.job_id} {state_name(view.state)}", *_metric_parts(known), one_line(view.reason)]
        print(" · ".join(parts))
        print(places_text(view, directory), end="")

    def _note_errors(self, findings: Iterable[Event]) -> None:
        for event in findings:
            if event.data.get("severity") == Severity.ERROR.value and event.message.strip():
                self._errors.add(one_line(event.message))

    def _was_said(self, text: str) -> bool:
        return any(error in one_line(text) for error in self._errors)

    def _text(self, event: Event) -> str:
        if event.kind is EventKind.METRIC:
            if 0 <= event.time - self._metric_at < METRIC_INTERVAL_S:  # A clock that was set back silences none.
                return ""
            text = "  ".join(_metric_parts(event.data))
            if not text:
                return ""
            # Ranks that do not train together all report; a step is said once, and the lowest rank's is the job's.
            which = (event.attempt, event.rank or 0)
            if which[0] == self._metric_of[0] and (which[1] > self._metric_of[1] or text == self._metric_text):
                return ""
            self._metric_at, self._metric_of, self._metric_text = event.time, which, text
            return text
        if event.kind is EventKind.JOB_STATE and self._was_said(event.message):
            return told_state(event.data.get("state"))
        if event.kind is EventKind.FINDING:
            self._note_errors([event])
        if event.kind is EventKind.SAVED:
            return ""  # The result has each place.
        if event.kind is EventKind.RANK_FAILED and event.data.get("survived"):
            return ""  # Of a node that the job went on without; that was told when it was lost.
        return event_text(event)


def event_text(event: Event) -> str:
    """Return an event in words; empty where a line before has said as much."""
    if event.kind is EventKind.OUTCOME:
        return ""
    told = event_words(event)
    if event.kind is EventKind.JOB_STATE:
        return f"{told.state}  {told.text}"
    if event.kind is EventKind.NODE_STATE:
        return f"  {event.node}: {told.state}" + (f" ({told.text})" if told.text else "")
    if told.severity is None:
        return told.text
    return finding_text(told.severity, f"{told.code}: " if told.code else "", told.text, told.hint)


def finding_text(severity: Severity, about: str, message: str, hint: str) -> str:
    """Return a finding behind its mark and what it is about, with what to do."""
    return f"{MARKS[severity.value]} {about}{message}" + (f" → {hint}" if hint else "")


def progress_bar(data: dict[str, Any]) -> str:
    """Return a bar of how much of the files was sent; where there are none, of how many hosts are ready."""
    total, done = data.get("total_bytes"), data.get("sent_bytes")
    if not total:
        total, done = data.get("nodes"), data.get("ready_nodes")
    return share_bar(float(done or 0) / float(total or 1))


def share_bar(share: float) -> str:
    """Return a bar of how much of something is done, 0 to 1."""
    share = min(max(share, 0.0), 1.0)
    return f"[{'#' * int(share * BAR_WIDTH):<{BAR_WIDTH}}]"


def one_line(text: str) -> str:
    """Return text from anywhere as one clean line, its indent kept, cut where it is longer than anyone would read."""
    line = clean(text).rstrip("\n").replace("\n", " ⏎ ")
    return line if len(line) <= MOST_LINE_CHARS else f"{line[: MOST_LINE_CHARS - 1]}…"


def print_document(document: object, output: str) -> None:
    """Print one JSON document; escapes stand for all but ASCII, so that nothing in it drives a terminal."""
    print(json.dumps(document, indent=2 if output == "json" else None))


def print_rows(rows: Sequence[object], output: str) -> None:
    """Print rows as one JSON list, or as a line each."""
    if output == "json":
        print_document(rows, output)
        return
    for row in rows:
        print_document(row, output)


def table_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows under a header, columns aligned; the last one is as wide as it likes."""
    lines = [list(header), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(text_width(line[index]) for line in lines) for index in range(len(header) - 1)]
    text = ""
    for cells in lines:
        padded = [cell + " " * (width - text_width(cell)) for cell, width in zip(cells, widths, strict=False)]
        text += "  ".join([*padded, *cells[len(widths) :]]).rstrip() + "\n"
    return text


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows: on a terminal under a header, each cut to its width; else for programs, a tab between two cells."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(one_line(cell).replace("\t", " ") for cell in row))
        return
    columns = shutil.get_terminal_size().columns
    for line in table_text(header, rows).splitlines():
        print(_cut(line, columns))


def _cut(line: str, columns: int) -> str:
    if text_width(line) <= columns:
        return line
    kept = line
    while text_width(kept) > columns - 1:
        kept = kept[:-1]
    return f"{kept}…"


def print_findings(findings: Iterable[Finding], stream: TextIO | None = None) -> None:
    """Print findings, a line each, with the place in the job file where there is one."""
    for finding in findings:
        place = f"{finding.place}: {finding.place.path}" if finding.place is not None else f"({finding.subject})"
        text = finding_text(finding.severity, f"{finding.code} {place}: ", finding.message, finding.hint)
        print(one_line(text), file=stream or sys.stdout)


def print_hints(hints: Iterable[tuple[str, str]]) -> None:
    """Print what to do about hosts, by name; the same for several of them once."""
    found = [Saying(host, msg("{host}: {reason}", host=host, reason=hint), hint, "") for host, hint in hints if hint]
    for _index, message, _hint in merge(found):
        sys.stderr.write(f"  → {one_line(message)}\n")


def failure_text(view: JobView, directory: JobDirectory) -> str:
    """Return why a job failed, in short, and what to try; empty for a job that did not fail."""
    found = _diagnosed(view, directory)
    if found is None:
        return ""
    from dttui.diagnosis import short_sections

    more = _("`dttui diagnose {id}` tells more.").format(id=view.job_id)
    return sections_text(short_sections(found)) + f"{more}\n"


def sections_text(parts: Iterable[ReportSection]) -> str:
    """Return the sections of a diagnosis as lines."""
    from dttui.diagnosis import Kind

    marks = {Kind.BAD: "✗ ", Kind.ADVICE: "  → ", Kind.QUOTE: "    "}
    lines: list[str] = []
    for part in parts:
        lines += [_("{heading}:").format(heading=part.heading)] if part.heading else []
        indent = "  " if part.heading else ""
        lines += [marks.get(line.kind, indent) + line.text for line in part.lines]
    return "".join(f"{clean(line)}\n" for line in lines)


def places_text(view: JobView, directory: JobDirectory) -> str:
    """Return where a job's logs and checkpoints are, a line each."""
    return "".join(f"{one_line(line)}\n" for line in view.places(str(directory.path)))


def distributed_info(plan: Plan | SeenPlan) -> dict[str, Any]:
    """Return what seed 004's answer to a new task says of its nodes: how many, how many GPUs, the master, framework."""
    total = plan.aggregate
    return {
        "is_distributed": len(plan.nodes) > 1,
        "node_count": len(plan.nodes),
        "total_gpus": total.gpu_count if total is not None else None,
        "master_node": plan.nodes[0].name if plan.nodes and not plan.by_count else None,
        "framework": plan.framework or None,
    }


def job_document(view: JobView, directory: JobDirectory) -> dict[str, Any]:
    """Return a job's outcome as data."""
    newest = view.newest_metric
    progress = None if view.state.is_final else view.training_progress
    found = _diagnosed(view, directory)
    return {
        "job_id": view.job_id,
        "name": view.plan.job_name if view.plan else view.job_id,
        "state": view.state.value,
        "reason": view.reason,
        "exit_code": view.exit_code,
        "attempt": view.attempt,
        "world_size": view.plan.world_size if view.plan else None,
        "distributed": distributed_info(view.plan) if view.plan else None,
        "present_world_size": sum(len(node.ranks) for node in view.nodes.values()),
        "started_at": view.started_at,
        "ended_at": view.ended_at if view.state is not JobState.UNKNOWN else None,
        "nodes": [
            {
                "name": name,
                "node_rank": node.plan.node_rank,
                "ranks": node.ranks,
                "state": node.state,
                "message": node.message,
                "usage": node.usage,
                "unhealthy": _unhealthy(node),
            }
            for name, node in view.nodes.items()
        ],
        "metric": to_wire(newest) if newest else None,
        "progress": asdict(progress) if progress is not None else None,
        "failures": [to_wire(failure) for failure in view.failures],
        "cause": found.cause.code if found is not None and found.cause is not None else None,
        "advice": found.advice if found is not None else (),
        "communication": asdict(view.communication) if view.communication is not None else None,
        "figures": {name: asdict(figure) for name, figure in view.figures.items()},
        "versions": view.versions,
        "checkpoints": {name: node.checkpoints for name, node in view.nodes.items() if node.checkpoints},
        "saved": [asdict(item) for item in view.kept_saved],
        "directory": str(directory.path),
    }


def _unhealthy(node: NodeView) -> dict[str, Any] | None:
    if node.unhealthy_since is None:
        return None
    return {"what": node.unhealthy_what, "since": node.unhealthy_since}


def _diagnosed(view: JobView, directory: JobDirectory) -> Diagnosis | None:
    if view.state is not JobState.FAILED:
        return None
    from dttui.app import App  # A job that does not fail need not wait for it.

    return App().diagnose(directory, view)


def _folded(events: Sequence[Event]) -> list[Event]:
    """Return findings, those that differ in nothing but their node as one."""
    found = [
        Saying(
            subject=str(event.data.get("subject", "")),
            message=message_of(event),
            hint=hint_of(event),
            kind=(event.data.get("code"), event.data.get("severity")),
        )
        for event in events
    ]
    return [
        replace(events[index], message=message, data={**events[index].data, "hint": hint})
        for index, message, hint in merge(found)
    ]


def _metric_parts(data: dict[str, Any]) -> list[str]:
    parts = []
    if "step" in data:
        parts.append(_("step {step}").format(step=f"{data['step']:,}"))
    loss = data.get("loss", math.nan if "loss" in data.get("not_finite", ()) else None)
    if loss is not None:
        parts.append(_("loss {loss:.4f}").format(loss=loss))
    if "tokens_per_s" in data:
        parts.append(_("{rate:.1f}k tok/s").format(rate=data["tokens_per_s"] / 1000))
    elif "samples_per_s" in data:
        parts.append(_("{rate:.0f} samples/s").format(rate=data["samples_per_s"]))
    return parts
