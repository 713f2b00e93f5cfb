"""What a plan would do otherwise than the last launch of a job of that name. Reads its directory; changes nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from dttui.compose.draft_answers import ChangedPart, LaunchChanges, LineChange
from dttui.errors import DttuiError
from dttui.frameworks.bundle import command_lines
from dttui.i18n import _, ngettext
from dttui.jobs.listing import newest_called, summarize_any
from dttui.planning.models import Plan, PlannedNode
from dttui.redaction import redact
from dttui.spec import dump_job, parse_job
from dttui.words import listed, process_name

CONTEXT = 2
"""Lines that are the same, around each that is not."""
MOST_PARTS = 60
MOST_NAMES = 3

_Texts = dict[tuple[str, str], list[str]]
"""Kind and name of what a node has → its lines."""


def changes_since_launch(text: str, plan: Plan) -> LaunchChanges | None:
    """Return what differs from the last launch of a job so called; `None` where there was none.

    Args:
        text: the job file.
        plan: the plan of it.
    """
    directory = newest_called(plan.job_name)
    if directory is None:
        return None
    started_at = summarize_any(directory).started_at
    parts: list[ChangedPart] = []
    trouble = ""
    try:
        parts += _part(_("job"), _plain(directory.document.read_bytes()), _plain(text))
    except (OSError, DttuiError):
        trouble = _("its job file cannot be read")
    try:
        parts += _plan_parts(directory.read_plan(), plan)
    except (OSError, ValueError):
        trouble = trouble or _("its plan cannot be read")
    return LaunchChanges(directory.job_id, started_at, tuple(parts[:MOST_PARTS]), len(parts[MOST_PARTS:]), trouble)


def _plain(text: str | bytes) -> str:
    """Return a job file without comments, in the form that dttui writes."""
    return dump_job(parse_job(text, ""))


def _plan_parts(before: Plan, after: Plan) -> Iterator[ChangedPart]:
    yield from _part(_("plan"), "\n".join(_head(before)), "\n".join(_head(after)))
    yield from _part(_("nodes"), "\n".join(_places(before)), "\n".join(_places(after)))
    known = {node.name: node for node in before.nodes}
    found: dict[tuple[str, str, tuple[LineChange, ...]], list[str]] = {}
    diffs: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple[LineChange, ...]] = {}
    for node in after.nodes:
        if node.name not in known:
            continue
        ours, theirs = _texts(known[node.name]), _texts(node)
        for key in {**ours, **theirs}:
            pair = tuple(ours.get(key, ())), tuple(theirs.get(key, ()))
            if pair[0] != pair[1]:
                lines = diffs.get(pair) or diffs.setdefault(pair, tuple(_line_changes(*pair)))
                found.setdefault((*key, lines), []).append(node.name)
    for (kind, name, lines), nodes in found.items():
        yield ChangedPart(_title(kind, name, nodes, len(after.nodes)), lines)


def _title(kind: str, name: str, nodes: Sequence[str], every: int) -> str:
    where = _("every node") if len(nodes) == every > 1 else listed(nodes, MOST_NAMES)
    told = {
        "command": _("command {name} on {nodes}"),
        "environment": _("environment of {name} on {nodes}"),
        "file": _("file {name} on {nodes}"),
    }
    return told[kind].format(name=name if kind == "file" else process_name(name), nodes=where)


def _texts(node: PlannedNode) -> _Texts:
    texts: _Texts = {}
    for process in node.processes:
        texts["command", process.name] = [*command_lines(process.argv), f"# {process.cwd}"]
        texts["environment", process.name] = [f"{name}={value}" for name, value in process.env.items()]
    return texts | {("file", file.path): file.text.splitlines() for file in node.files}


def _head(plan: Plan) -> Iterator[str]:
    yield f"framework: {plan.framework}"
    yield f"backend: {plan.backend}"
    yield f"world_size: {plan.world_size}"
    yield f"upload: {plan.upload or '-'}"


def _places(plan: Plan) -> Iterator[str]:
    for node in plan.nodes:
        count = ngettext("{count} process", "{count} processes", len(node.ranks)).format(count=len(node.ranks))
        yield f"{node.node_rank} {node.name} · {node.address} · {count} · {node.python}"


def _part(title: str, before: str, after: str) -> Iterator[ChangedPart]:
    if before != after:
        yield ChangedPart(title, tuple(_line_changes(before.splitlines(), after.splitlines())))


def _line_changes(before: Sequence[str], after: Sequence[str]) -> Iterator[LineChange]:
    """Yield the lines that differ, with some around them; a gap is told by `@`."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    end = 0
    for group in matcher.get_grouped_opcodes(CONTEXT):
        if group[0][1] > end:
            yield LineChange("@", "")
        end = group[-1][2]
        for kind, first, first_end, second, second_end in group:
            if kind == "equal":
                yield from (LineChange(" ", redact(line)) for line in before[first:first_end])
            else:
                yield from (LineChange("-", redact(line)) for line in before[first:first_end])
                yield from (LineChange("+", redact(line)) for line in after[second:second_end])
    if end < len(before):
        yield LineChange("@", "")
