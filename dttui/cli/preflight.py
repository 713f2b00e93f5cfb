"""`preflight`: check the hosts of a job as a launch would, and start nothing."""

from __future__ import annotations

import asyncio
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from dtagent.protocol.events import EventKind

from dttui.app import App
from dttui.cli.preflight_text import board_lines, result_lines
from dttui.cli.printing import can_rewrite, one_line, print_document
from dttui.cli.prompting import TerminalPrompter
from dttui.cli.sources import choose, read_inventory, read_submission
from dttui.errors import ExitCode, UsageError
from dttui.i18n import _
from dttui.jobs import Board, Cell, Check, cells_to_data, check_ignored, check_name
from dttui.planning import Submission
from dttui.spec import Cluster, DocumentError, Job, Node, Run, as_problem
from dttui.spec.entry_points import COMMAND

PAINT_S = 0.1
"""Between two paintings of the board."""


async def preflight(options: Namespace) -> int:
    """Check the hosts of a job, or some hosts by themselves; return 0, 3 with errors or 4 with a host out of reach."""
    submission = replace(_submission(options), ignored=check_ignored(options.ignore))
    app = App()
    plan = app.plan(submission)
    if plan.errors:
        raise DocumentError(as_problem(finding, options.file or "") for finding in plan.errors)
    if options.dry_run:
        _print_dry([*(node.name for node in plan.nodes), *plan.recovery.usable_spares], options)
        return ExitCode.OK
    options.unfinished = _("Nothing was started or changed. Those that had answered by then are shown.")
    painter = _Painter(options)
    began = time.monotonic()
    try:
        board = await app.check(
            submission,
            plan,
            TerminalPrompter(),
            measures_bandwidth=options.bandwidth,
            begin=painter.begin,
            on_change=painter.changed,
        )
    except asyncio.CancelledError:
        painter.clear()
        if painter.board is not None and options.until is not None and options.output == "human":
            for line in board_lines(painter.board):
                print(line)
        raise
    finally:
        await app.close()
        painter.clear()
    code = ExitCode.UNREACHABLE if board.unreachable else ExitCode.PREFLIGHT if board.errors else ExitCode.OK
    _print(board, time.monotonic() - began, code, options)
    return code


def _print_dry(names: Sequence[str], options: Namespace) -> None:
    """Say which hosts would be asked for what."""
    if options.output != "human":
        checks = [check.value for check in Check]
        print_document({"dry_run": True, "nodes": list(names), "checks": checks}, options.output)
        return
    for name in names:
        print(one_line(_("would check {host}: {checks}").format(host=name, checks=", ".join(map(check_name, Check)))))
    print(_("Nothing was done: this is what would be."))


def _submission(options: Namespace) -> Submission:
    if (options.file is None) == (options.nodes is None):
        raise UsageError(_("name a job file, or hosts by --nodes"), "dttui preflight JOB.YAML")
    if options.file is not None:
        return read_submission(options, options.file)
    inventory = read_inventory(options)
    names = [name for name in options.nodes.split(",") if name]
    chosen = choose(inventory, names)
    job = Job(
        name="preflight",
        framework=COMMAND,
        run=Run(command=("true",)),
        dataset="none",
        cluster=Cluster(nodes=tuple(Node(id=environment.name) for environment in chosen)),
    )
    return Submission(job, inventory, Path())


class _Painter:
    """Shows what has come so far: a board that is painted again at a terminal, a line of JSON a change for `jsonl`."""

    def __init__(self, options: Namespace) -> None:
        self._is_lines = options.output == "jsonl"
        self._paints = options.output == "human" and can_rewrite(sys.stderr)
        self._painted = 0
        """Lines."""
        self._next: asyncio.TimerHandle | None = None
        self.board: Board | None = None

    def begin(self, board: Board) -> None:
        """Take the board that will be filled."""
        self.board = board

    def changed(self, name: str, cells: Mapping[Check, Cell]) -> None:
        """Take in what changed of a node."""
        if self._is_lines:
            _print_event(EventKind.PREFLIGHT, "", {"cells": cells_to_data(cells)}, node=name)
        elif self._paints and self._next is None:
            self._next = asyncio.get_running_loop().call_later(PAINT_S, self._paint)

    def _paint(self) -> None:
        self._next = None
        if self.board is not None:
            lines = board_lines(self.board, fits_screen=True)
            self.clear()
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()
            self._painted = len(lines)

    def clear(self) -> None:
        """Take away what was painted, and paint no more unless something changes."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._painted:
            sys.stderr.write(f"\x1b[{self._painted}F\x1b[J")
            sys.stderr.flush()
            self._painted = 0


def _print(board: Board, seconds: float, code: ExitCode, options: Namespace) -> None:
    if options.output == "human":
        for line in (*board_lines(board), *result_lines(board, seconds)):
            print(line)
        return
    findings = [finding.model_dump(mode="json", exclude={"path"}) for finding in board.findings]
    if options.output == "jsonl":
        for finding in findings:
            message = str(finding.pop("message"))
            _print_event(EventKind.FINDING, message, finding)
        _print_event(EventKind.OUTCOME, "", {"exit_code": int(code), "seconds": seconds})
        return
    document = {
        "nodes": [{"name": name, "checks": cells_to_data(board.rows[name])} for name in board.names],
        "drift": [asdict(item) for item in board.drift],
        "findings": findings,
        "ignored": sorted(board.ignored),
        "seconds": seconds,
        "exit_code": int(code),
    }
    print_document(document, options.output)


def _print_event(kind: EventKind, message: str, data: dict[str, object], node: str | None = None) -> None:
    event = {"time": time.time(), "kind": kind.value, "message": message, "data": data}
    print_document(event if node is None else {**event, "node": node}, "jsonl")
    sys.stdout.flush()
