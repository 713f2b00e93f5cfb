"""`status` and `logs`: looking at a job, running or over, from any terminal."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from argparse import Namespace

from dtagent.protocol.events import EventKind, JobState, Metric

from dttui import jobs
from dttui.app import App, JobFollower
from dttui.cli.figures import figures_text
from dttui.cli.printing import (
    failure_text,
    job_document,
    one_line,
    places_text,
    print_document,
    print_rows,
)
from dttui.cli.rank_logs import check_ranks, log_rows, processes_of, starts_own_ranks
from dttui.errors import ExitCode, NotFinishedError, UsageError
from dttui.i18n import _
from dttui.jobs import COMMUNICATION, LogFollower, LogLines, parse_since, speed_of, whole_line
from dttui.jobs.plan_file import read_plan_file
from dttui.timestamps import elapsed_s
from dttui.words import clock, measure_name, node_state_name, state_name

POLL_S = 0.2
TAKE_OVER_WAIT_S = 8.0
"""How long a controller that takes over has to find out, before `status` says that nothing is known."""


def status(options: Namespace) -> int:
    """Show one job; return its outcome, or 101 while it runs."""
    directory = jobs.find(options.job)
    follower = App().follow(directory, reads_samples=False)
    follower.catch_up()
    view = follower.view
    if not follower.is_over:
        _find_out(follower)
    if options.output != "human":
        print_document(job_document(view, directory), options.output)
    else:
        newest = view.newest_metric
        now = time.time()
        silences = view.silences(now)
        took = clock(elapsed_s(view.started_at, view.ended_at)) if view.started_at is not None else ""
        parts = (view.job_id, state_name(view.state), took, view.headline(now))
        print(one_line("  ".join(part for part in parts if part)))
        for name, node in view.nodes.items():
            ranks = ",".join(map(str, node.ranks)) or "–"
            mark, state = "★" if node.plan.node_rank == 0 else " ", node.word or node_state_name(node.state)
            said = node.message
            if node.unhealthy_since is not None and not node.is_over:
                span = elapsed_s(node.unhealthy_since, now)
                said = _("unhealthy for {seconds:.0f} s: {what}").format(seconds=span, what=node.unhealthy_what)
            if name in silences:
                said = _("no word for {seconds:.0f} s").format(seconds=silences[name])
            print(one_line(f"  {mark} {name}  [{ranks}]  {state}  {said}".rstrip()))
        if newest is not None:
            # Only one rank's are followed; another may be a step further.
            numbers = "  ".join(f"{measure_name(key)} {value:g}" for key, value in _numbers(newest).items())
            whose = _("rank {rank}").format(rank=newest.rank)
            progress = None if follower.is_over else view.training_progress
            print("  ".join([f"  {whose}: {numbers}", *(progress.words() if progress is not None else ())]))
        if view.communication is not None and COMMUNICATION not in view.figures:
            print(figures_text({COMMUNICATION: view.communication}), end="")
        print(figures_text(view.figures), end="")
        print(failure_text(view, directory) + places_text(view, directory), end="")
    return view.exit_code if view.exit_code is not None else ExitCode.NOT_FINISHED


def logs(options: Namespace) -> int:
    """Print log lines, each with its rank where there are several files."""
    since = parse_since(options.since, time.time()) if options.since is not None else None
    directory = jobs.find_open(options.job, "logs")
    follower = App().follow(directory, reads_samples=False)
    follower.catch_up()
    attempt = _attempt_asked(follower, options.attempt)
    nodes = _nodes_asked(follower, attempt, options)
    if options.follow and not follower.is_over:
        _let_look(directory)
    wanted = processes_of((options.rank,), follower.view) if options.rank is not None else None
    reader = LogFollower(
        directory,
        attempt,
        takes=lambda process, kind: (wanted is None or process in wanted) and (kind == "err" or not options.stderr),
        last_lines=options.lines,
        since=since,
        redaction=None if options.raw else follower.view.redaction(),
    )
    printer = _LinePrinter(options)
    while True:
        follower.poll()
        over = follower.is_over or attempt != follower.view.attempt or not directory.has_controller()
        found = reader.poll(nodes, to_the_end=over)
        for part in found:
            printer.show(part)
        sys.stdout.flush()
        if found:
            continue
        if over or not options.follow:
            break
        time.sleep(POLL_S)
    printer.close()
    if not any(directory.has_logs(attempt, node) for node in nodes):
        sys.stderr.write(_("job {id} has no logs").format(id=directory.job_id) + "\n")
    return ExitCode.OK


class _LinePrinter:
    """Prints what ranks have written: as it comes, but for one JSON document of all.

    Args:
        options: of `logs`.
    """

    def __init__(self, options: Namespace) -> None:
        self._options = options
        self._rows: list[object] = []
        self._untimed: set[tuple[str, str]] = set()

    def show(self, part: LogLines) -> None:
        """Print lines, or keep them for the document."""
        stream = f"{part.process}.{part.stream}"
        self._tell_untimed(part, stream)
        if self._options.output == "json":
            self._rows.extend(log_rows(part))
        elif self._options.output == "jsonl":
            print_rows(log_rows(part), self._options.output)
        else:
            label = "" if self._options.rank is not None else f"[{part.node} {stream}] "
            print("".join(f"{label}{whole_line(line)}\n" for line in part.lines), end="")

    def _tell_untimed(self, part: LogLines, stream: str) -> None:
        """Say once of a stream that its lines cannot be chosen by their time."""
        if not part.is_untimed or (part.node, stream) in self._untimed or self._options.lines is not None:
            return
        self._untimed.add((part.node, stream))
        text = _("{node}: {stream} has no times: shown whole").format(node=part.node, stream=stream)
        sys.stderr.write(one_line(text) + "\n")

    def close(self) -> None:
        """Print the document, where one is wanted."""
        if self._options.output == "json":
            print_rows(self._rows, self._options.output)


def _attempt_asked(follower: JobFollower, asked: int | None) -> int:
    """Return the attempt that a person wants to see, else the newest. Raises UsageError where there is no such."""
    newest = follower.view.attempt
    if asked is not None and asked > newest:
        raise UsageError(
            _("job {id} has no attempt {attempt}").format(id=follower.directory.job_id, attempt=asked),
            _("Its last one is {attempt}.").format(attempt=newest),
        )
    return newest if asked is None else asked


def _nodes_asked(follower: JobFollower, attempt: int, options: Namespace) -> list[str]:
    """Return the nodes whose lines a person wants. Raises UsageError where there is no such node, or rank there."""
    known = _nodes_of(follower, attempt)
    job_id = follower.directory.job_id
    if options.node is not None and options.node not in known:
        raise UsageError(
            _("job {id} has no node {node}").format(id=job_id, node=options.node),
            _("Its nodes: {names}").format(names=", ".join(known)),
        )
    nodes = [options.node] if options.node is not None else [*known]
    if options.rank is not None:
        check_ranks((options.rank,), {name: known[name] for name in nodes}, job_id)
        if starts_own_ranks(follower.view):
            nodes = [name for name in nodes if options.rank in known[name]]
    return nodes


def _nodes_of(follower: JobFollower, attempt: int) -> dict[str, tuple[int, ...]]:
    """Return the nodes of an attempt with the ranks that have logs; of those before some may have been replaced."""
    nodes = {name: node.logged_ranks for name, node in follower.view.nodes.items()}
    if attempt != follower.view.attempt:
        with contextlib.suppress(OSError, ValueError):
            plan = read_plan_file(follower.directory.bound_plan(attempt))
            return {node.name: nodes.get(node.name) or node.ranks for node in plan.nodes}
    return nodes


def _let_look(directory: jobs.JobDirectory) -> bool:
    """Have a new controller started where the old one has died; where none can be, what is known is shown as it is."""
    with contextlib.suppress(NotFinishedError):
        return App().revive(directory)
    return False


def _find_out(follower: JobFollower) -> None:
    """Let a new controller look where the old one has died; what is not known then is shown as unknown."""
    directory, view = follower.directory, follower.view
    silence_before, seen_at = directory.silence(time.time()), directory.watched_until()
    is_new = _let_look(directory)
    deadline = time.monotonic() + (TAKE_OVER_WAIT_S if is_new else 0.0)
    while True:
        silence = directory.silence(time.time())
        # Until the new one has spoken, the state is still the word of the one that died.
        is_new = not any(event.kind is EventKind.JOB_STATE for event in follower.poll()) and is_new
        if follower.is_over or not (is_new or silence or view.state is JobState.UNKNOWN):
            return
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    if is_new or silence:
        view.lose(seen_at or time.time(), silence or silence_before)


def _numbers(metric: Metric) -> dict[str, float]:
    numbers = {
        key: value
        for key, value in vars(metric).items()
        if isinstance(value, (int, float)) and key not in ("rank", "time")
    }
    broken = dict.fromkeys(metric.not_finite or (), math.nan)
    return {**numbers, **broken, **dict(filter(None, [speed_of(metric)]))}
