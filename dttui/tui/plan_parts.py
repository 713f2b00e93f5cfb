"""A plan as a tree: what runs on each node with which variables and files, and once the files that are everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from textual.content import Content

from dttui.compose import LaunchChanges
from dttui.frameworks import command_lines, reason
from dttui.i18n import _, ngettext
from dttui.planning import Plan, PlannedNode, PlannedProcess
from dttui.sanitize import clean, clean_line
from dttui.spec import format_bytes
from dttui.tui import symbols
from dttui.tui.code_text import changed_lines, command_text, highlighted, language_of
from dttui.words import process_name


def _no_parts() -> Sequence[PlanPart]:
    return ()


@dataclass(frozen=True)
class PlanPart:
    """One line of the tree."""

    name: str
    text: Callable[[], Content]
    """What there is to read of it."""
    note: str = ""
    """Said behind the name."""
    is_master: bool = False
    parts: Callable[[], Sequence[PlanPart]] = _no_parts
    """What is below it."""


def plan_parts(plan: Plan) -> Iterator[PlanPart]:
    """Yield what is at the top: the files of every node, where there are several, and each node."""
    shared = _files_everywhere(plan)
    if shared:
        count = ngettext("{count} node", "{count} nodes", len(plan.nodes)).format(count=len(plan.nodes))
        files = partial(_file_parts, plan.nodes[0], shared)
        text = partial(_everywhere_text, shared)
        yield PlanPart(_("on every node"), text, note=count, parts=files)
    for node in plan.nodes:
        text, parts = partial(_node_text, plan, node), partial(_node_parts, plan, node, shared)
        yield PlanPart(clean_line(node.name), text, _ranks(node), node.node_rank == 0, parts)


def _files_everywhere(plan: Plan) -> frozenset[str]:
    """Return the paths of the files that are the same on all of several nodes."""
    first, *others = plan.nodes or (None,)
    if first is None or not others:
        return frozenset()
    return frozenset(file.path for file in first.files if all(file in node.files for node in others))


def _node_parts(plan: Plan, node: PlannedNode, shared: frozenset[str]) -> Sequence[PlanPart]:
    parts: list[PlanPart] = []
    for process in node.processes:
        name = clean_line(process_name(process.name))
        parts.append(PlanPart(f"$ {name}", partial(_command_text, process), _("command")))
        count = str(len(process.env))
        parts.append(PlanPart(f"= {name}", partial(_environment_text, plan, process), _("environment") + f" {count}"))
    return [*parts, *_file_parts(node, frozenset(file.path for file in node.files) - shared)]


def _file_parts(node: PlannedNode, paths: frozenset[str]) -> Sequence[PlanPart]:
    return [
        PlanPart(clean_line(file.path), partial(_file_text, file.path, file.text), _("file"))
        for file in node.files
        if file.path in paths
    ]


def _everywhere_text(paths: frozenset[str]) -> Content:
    said = _("These files are the same on every node, and stand here once.")
    return Content("\n").join([Content(said), Content(""), *(Content(f"• {clean(path)}") for path in sorted(paths))])


def _file_text(path: str, text: str) -> Content:
    title = _heading(_("file {path}").format(path=clean(path)))
    return Content("\n").join([title, highlighted(text.rstrip(), language_of(path))])


def _command_text(process: PlannedProcess) -> Content:
    title = _heading(_("command {name}").format(name=clean(process_name(process.name))))
    where = Content.assemble((_("working directory") + ": ", "$muted"), clean(process.cwd))
    return Content("\n").join([title, command_text(command_lines(process.argv)), Content(""), where])


def _environment_text(plan: Plan, process: PlannedProcess) -> Content:
    title = _heading(_("environment of {name}").format(name=clean(process_name(process.name))))
    given = plan.own_variables
    return Content("\n").join(
        [title, *(_variable(name, value, reason(name, value, given)) for name, value in process.env.items())]
    )


def _node_text(plan: Plan, node: PlannedNode) -> Content:
    slots = ngettext("{count} process", "{count} processes", len(node.ranks)).format(count=len(node.ranks))
    facts = [
        (_("node rank"), " · ".join([str(node.node_rank), *([_("master")] if node.node_rank == 0 else [])])),
        (_("ranks"), " · ".join([_ranks(node), slots, *([_("simulated GPUs")] if node.simulated else [])])),
        (_("address"), node.address),
        (_("zone"), node.zone or "–"),
        (_("Python"), node.python),
        (_("sent with it"), plan.upload or _("nothing")),
        (_("rendezvous"), _("within {seconds:g} s").format(seconds=plan.rendezvous_timeout_s)),
        (_("kept of each log"), _("at most {size}").format(size=format_bytes(plan.log_cap_bytes))),
    ]
    if node.required_paths:
        facts.append((_("must be there"), ", ".join(node.required_paths)))
    lines = [Content.assemble((f"{name}: ", "$muted"), clean(value)) for name, value in facts]
    for process in node.processes:
        lines += [Content(""), _command_text(process), Content(""), _environment_text(plan, process)]
    if not node.processes:
        lines += [Content(""), Content.styled(_("The errors below keep the rest from being planned."), "$warning")]
    return Content("\n").join(lines)


def _ranks(node: PlannedNode) -> str:
    return f"{node.ranks[0]}–{node.ranks[-1]}" if len(node.ranks) > 1 else ", ".join(map(str, node.ranks))


def _variable(name: str, value: str, why: str) -> Content:
    return Content.assemble(
        (f"{clean(name)}", "$primary"), ("=", "$muted"), clean(value), (f"  # {why}" if why else "", "$muted")
    )


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $accent")


def changes_note(changes: LaunchChanges | None) -> str:
    """Return behind the name of the changes how many there are."""
    if changes is None:
        return _("first launch")
    count = len(changes.parts) + changes.left_out
    return str(count) if count else _("none")


def changes_text(changes: LaunchChanges | None, name: str) -> Content:
    """Return what differs from the last launch, part by part."""
    if changes is None:
        said = _("No job called {name} has been launched from this login node yet: there is nothing to compare with.")
        return Content(said.format(name=clean_line(name)))
    since = symbols.date_and_time(changes.started_at) if changes.started_at is not None else "–"
    told = _("against the last launch: {id}, {time}").format(id=clean_line(changes.job_id), time=since)
    lines = [Content.styled(told, "$muted")]
    if changes.trouble:
        lines.append(Content.styled(_("Not all can be compared: {why}").format(why=clean(changes.trouble)), "$warning"))
    elif not changes.parts:
        lines += [Content(""), Content.styled(_("Nothing differs: this would be the same job again."), "$success")]
    for part in changes.parts:
        lines += [Content(""), _heading(clean_line(part.title)), changed_lines(part.lines)]
    if changes.left_out:
        more = _("… and {count} more").format(count=changes.left_out)
        lines += [Content(""), Content.styled(more, "$muted")]
    return Content("\n").join(lines)
