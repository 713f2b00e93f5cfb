"""Lines of logs as a screen shows them, and what the processes that wrote them are called there."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len

from dttui.jobs import LogLines, in_time, left_out_text, shown_line
from dttui.words import process_name

SERVICE = "service-"
"""What the names of processes begin with that serve the ranks."""
LEAST_CELLS = 3
"""Of a name: ranks that come later seldom need more."""


def short_name(process: str) -> str:
    """Return what a process is called beside others of its node."""
    return process_name(process).removeprefix(SERVICE)


def log_lines(
    found: Sequence[LogLines], job_id: str, *, among: Collection[str] = (), names_nodes: bool = False
) -> list[str]:
    """Return clean lines, those of several logs in the order of the times that they carry.

    Args:
        found: as they came.
        job_id: of the job.
        among: names of the processes that write to the same log, where there are several: each line is then behind
            whose it is, and all of them begin in one column.
        names_nodes: whether a process that is no rank is named with its node.
    """
    names = {process: short_name(process) for process in (*among, *(part.process for part in found))}
    width = max([LEAST_CELLS, *map(cell_len, names.values())])
    texts = []
    for part in in_time(found) if among else found:
        name = names[part.process]
        label = f"{' ' * (width - cell_len(name))}{name} {part.stream} │ " if among else ""
        if names_nodes and part.rank is None:
            label += f"{part.node} │ "
        told = [left_out_text(part.left_out, job_id)] if part.left_out else []
        texts += [label + text for text in [*told, *map(shown_line, part.lines)]]
    return texts
