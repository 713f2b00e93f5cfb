"""`replay`: what happened in a job, told again at a chosen speed, on the run screen or as text."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from argparse import Namespace
from collections.abc import Iterator

from dtagent.protocol.events import Event
from dtagent.protocol.rpc import FrameError, decode, to_wire

from dttui import jobs
from dttui.cli.printing import Printer, can_rewrite, one_line
from dttui.cli.rank_logs import check_ranks
from dttui.errors import ExitCode, UsageError
from dttui.i18n import _
from dttui.jobs import (
    JobDirectory,
    JobView,
    Moment,
    Past,
    PastReading,
    PastReport,
    ReplayClock,
    chosen,
    metric_event,
    whole_line,
)
from dttui.jobs.plan_file import read_plan_file

LOOK_S = 0.5
"""Between two looks at the clock while nothing happens."""
READINGS_S = 10.0
"""Of the job's time, between two lines about one host."""
GB_PER_MIB = (1 << 20) / 1e9


def replay(options: Namespace) -> int:
    """Tell a job again: on a terminal on the run screen, unless a form of text was asked for."""
    directory = jobs.find(options.job)
    is_terminal = sys.stdin.isatty() and can_rewrite(sys.stdout)
    if is_terminal and not options.prints:
        from dttui.cli.screen import open_replay

        return open_replay(directory, options)
    if options.output == "json":
        raise UsageError(_("what is told as time goes by makes no JSON document"), _("Use --output jsonl."))
    view = _view(directory)
    check_ranks(options.ranks, {name: node.ranks for name, node in view.nodes.items()}, directory.job_id)
    past = Past(directory, chosen(options.ranks) if options.ranks else None, view.redaction())
    clock, teller = ReplayClock(past.begin, past.end, options.speed), _Teller(options.output, directory.job_id)
    while (following := past.next_time) is not None:
        if (wait_s := clock.wait_s(following)) > 0:
            sys.stdout.flush()
            time.sleep(min(wait_s, LOOK_S))
            continue
        for moment in past.until(max(clock.now(), following)):
            for line in teller.lines(moment):
                print(line)
    if not directory.is_over():
        text = _("{id} is not over: this is how far it had come")
        sys.stderr.write(one_line(text.format(id=directory.job_id)) + "\n")
    return ExitCode.OK


class _Teller(Printer):
    """Makes lines of what happened."""

    def __init__(self, output: str, job_id: str) -> None:
        super().__init__(output)
        self._is_data = output == "jsonl"
        self._job_id = job_id
        self._attempt = 0
        self._day = ""
        self._read_at: dict[str, float] = {}
        """Node → when a line was about its host last."""

    def lines(self, moment: Moment) -> Iterator[str]:
        """Yield the lines that tell of a moment."""
        what = moment.what
        if isinstance(what, Event) and what.attempt is not None:
            self._attempt = max(self._attempt, what.attempt)
        if self._is_data:
            yield from self._data(moment)
            return
        if not isinstance(what, (Event, PastReport, PastReading)):
            who = what.process if what.rank is not None else f"{what.node} {what.process}"
            yield from (f"[{who}] {whole_line(line)}" for line in what.lines)
            return
        if isinstance(what, PastReading):
            text = self._reading_text(moment.time, what)
        else:
            event = what if isinstance(what, Event) else metric_event(what.metric, what.attempt)
            text = self._text(event)
        if text:
            yield from self._dated(moment.time, text)

    def _dated(self, when: float, text: str) -> Iterator[str]:
        at = time.localtime(when)
        if (today := time.strftime("%F", at)) != self._day:
            self._day = today
            yield f"── {today}"
        yield f"{time.strftime('%T', at)}  {one_line(text)}"

    def _data(self, moment: Moment) -> Iterator[str]:
        what = moment.what
        if isinstance(what, Event):
            yield json.dumps(to_wire(what))
        elif isinstance(what, PastReport):
            yield json.dumps({**to_wire(metric_event(what.metric, what.attempt)), "time": moment.time})
        elif isinstance(what, PastReading):
            with contextlib.suppress(FrameError, ValueError):
                head = {"seq": -1, "time": moment.time, "kind": "sample", "attempt": self._attempt, "node": what.node}
                yield json.dumps({**head, "sample": decode(what.line)})
        else:
            head = {"seq": -1, "time": moment.time, "kind": "log", "attempt": self._attempt, "node": what.node}
            for line in what.lines:
                yield json.dumps({**head, "rank": what.rank, "stream": what.stream, "line": whole_line(line)})

    def _reading_text(self, when: float, reading: PastReading) -> str:
        """Return a host's reading in short; empty where a line was about it shortly before."""
        if when - self._read_at.get(reading.node, -math.inf) < READINGS_S:
            return ""
        try:
            body = decode(reading.line)
        except (FrameError, ValueError):
            return ""
        self._read_at[reading.node] = when
        told = [f"CPU {cpu:.0f}%"] if (cpu := _number(body.get("cpu_percent"))) is not None else []
        gpus = [gpu for gpu in body.get("gpus") or () if isinstance(gpu, dict)]
        loads = [load for gpu in gpus if (load := _number(gpu.get("utilization_percent"))) is not None]
        used = [mib for gpu in gpus if (mib := _number(gpu.get("memory_used_mib"))) is not None]
        hot = [degrees for gpu in gpus if (degrees := _number(gpu.get("temperature_c"))) is not None]
        told += [f"GPU {sum(loads) / len(loads):.0f}%"] if loads else []
        told += [f"{max(used) * GB_PER_MIB:.3g} GB"] if used else []
        told += [f"{max(hot):.0f} °C"] if hot else []
        return f"  {reading.node}: {' · '.join(told)}" if told else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _view(directory: JobDirectory) -> JobView:
    """Return a view that knows the names of the job's secrets."""
    view = JobView(directory.job_id)
    with contextlib.suppress(OSError, ValueError):
        view.set_plan(read_plan_file(directory.plan))
    return view
