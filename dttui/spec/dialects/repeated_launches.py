"""What is said of a script that starts its training several times: in a loop, again after a failure, once a node."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dttui.i18n import _, ngettext
from dttui.spec.dialects.commands.launch import Launch, ProgramKind
from dttui.spec.dialects.shell.following import MOST_ROUNDS
from dttui.spec.dialects.translation import make_note
from dttui.spec.findings import Finding
from dttui.spec.problems import PathKey, shown
from dttui.spec.yaml_source import YamlSource

_NODE_RANK = re.compile(r"--(?:node|machine)[-_]rank\b")
_NODE_RANKS = ("NODE_RANK", "MACHINE_RANK", "GROUP_RANK", "RANK")
"""Variables by which a launcher is told which of the nodes it is on."""


def note_repeats(
    source: YamlSource, origin: PathKey, chosen: Launch, others: Sequence[Launch]
) -> tuple[list[Finding], list[Launch]]:
    """Say how often a script starts the chosen launch.

    Returns:
        What is to be said, and the launches that nothing has been said of.
    """
    started, rank = _started(chosen), _node_rank(chosen)
    of_nodes: list[Launch] = []
    again: list[Launch] = []
    apart: list[Launch] = []
    left: list[Launch] = []
    for launch in others:
        is_alike = _started(launch) == started
        if is_alike and _node_rank(launch) != rank:
            of_nodes.append(launch)
        elif launch.mark != chosen.mark:
            left.append(launch)
        else:
            again.append(launch)
            apart += [] if is_alike else [launch]
    notes: list[Finding] = []
    if of_nodes:
        marks = sorted({launch.mark for launch in (chosen, *of_nodes)}, key=lambda mark: (mark.file, mark.line))
        lines = ", ".join(dict.fromkeys(mark.line_text for mark in marks))
        message = _("what is started on each node by its rank, in lines {numbers}, is one job").format(numbers=lines)
        notes.append(make_note(source, origin, message, _("dttui starts the nodes itself.")))
    if apart:
        message = ngettext(
            "not carried over: line {number} starts this {count} time more, with other words, as a loop does",
            "not carried over: line {number} starts this {count} times more, with other words, as a loop does",
            len(apart),
        )
        if len(again) + 1 >= MOST_ROUNDS:
            message = _("not carried over: line {number} starts this again and again, with other words")
        message = message.format(number=chosen.mark.line_text, count=len(apart))
        last = " ".join(word.text for word in apart[-1].arguments)
        hint = _("Each is a job of its own; the last has the arguments {arguments}").format(arguments=shown(last[:200]))
        notes.append(make_note(source, origin, message, hint, is_warning=True))
    elif again:
        message = _("not carried over: line {number} starts this again and again, with the same words")
        hint = _("dttui starts a job again that failed: write recovery.max_restarts.")
        notes.append(make_note(source, origin, message.format(number=chosen.mark.line_text), hint))
    return notes, left


def _started(launch: Launch) -> tuple[ProgramKind, str, tuple[str, ...]]:
    program = launch.program.text if launch.program is not None else ""
    return launch.kind, program, tuple(word.text for word in launch.arguments)


def _node_rank(launch: Launch) -> tuple[str, ...]:
    """Return all by which a launch is told which of the nodes it is on."""
    options = [said.text for key, said in launch.said.items() if _NODE_RANK.search(key)]
    variables = [launch.environment[name].text for name in _NODE_RANKS if name in launch.environment]
    return (*options, *variables)
