"""What is usual, and what to try where nodes do not reach each other: the rules of thumb behind a draft, as text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from dttui.i18n import _
from dttui.tui.widgets.cells import fit

EXAMPLE_PORT = 29500
"""Where a job looks for a free port first."""


@dataclass(frozen=True)
class TickedHost:
    """A ticked environment, as the others reach it."""

    address: str
    is_master: bool


def framework_lines(nodes: int, gpus: int) -> list[Content]:
    """Return what is usual by the number of nodes and GPUs, a line each; that of the draft is marked."""
    rows = [
        ("1", "1–2", _("a single machine"), _("to try something out")),
        ("1", "4–8", _("a single machine"), _("usual training")),
        ("2–4", "8–32", "PyTorch DDP", _("data parallel")),
        ("4+", "32+", _("DeepSpeed or PyTorch FSDP"), _("the model sharded")),
        ("8+", "64+", "Megatron-LM", _("tensor parallel, for GPTs")),
    ]
    head = fit(_("nodes"), 10) + fit(_("GPUs"), 10) + fit(_("framework"), 28) + _("for")
    lines = [Content.styled("  " + head, "$muted")]
    here = usual_row(nodes, gpus)
    for index, row in enumerate(rows):
        text = "".join(fit(cell, width) for cell, width in zip(row, (10, 10, 28, 26), strict=True)).rstrip()
        lines.append(Content.styled(f"▸ {text}", "bold $primary") if index == here else Content(f"  {text}"))
    return lines


def usual_row(nodes: int, gpus: int) -> int | None:
    """Return the row that so many nodes and GPUs are in; `None` where nothing is ticked."""
    if not nodes:
        return None
    if nodes >= 8 and gpus >= 64:
        return 4
    if nodes >= 4 and gpus >= 32:
        return 3
    if nodes > 1:
        return 2
    return 0 if gpus <= 2 else 1


def zone_lines() -> list[Content]:
    """Return what speaks for training across zones, what against, and when it fits."""
    return [
        Content(_("for: more GPUs than one zone has; what is in another zone outlasts the loss of one")),
        Content(_("against: 5 to 50 ms there and back, less bandwidth, and traffic that may be charged for")),
        Content(_("fits where one zone has too few GPUs, and what is sent a step is little beside its computing")),
    ]


def commands(peers: Sequence[TickedHost], python: str) -> list[tuple[str, str]]:
    """Return commands to run on a host, with what each is for; those about others name their addresses."""
    master = next((shlex.quote(peer.address) for peer in peers if peer.is_master), "MASTER")
    others = [shlex.quote(peer.address) for peer in peers] or ["NODE"]
    probe = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.nccl.version())"
    return [
        *((f"ping -c 3 {address}", _("does it answer, and how fast")) for address in others[:4]),
        (f"nc -vz {master} {EXAMPLE_PORT}", _("is the port of the master open while the job starts")),
        ("sudo firewall-cmd --list-all", _("rules of the firewall: firewalld")),
        ("sudo ufw status verbose", _("the same: ufw")),
        ("sudo nft list ruleset", _("the same: nftables")),
        ("ip route get " + master, _("by which interface the master is reached")),
        ("nvidia-smi", _("driver, and the CUDA that it goes up to")),
        (f"{shlex.quote(python)} -c {shlex.quote(probe)}", _("torch, its CUDA and NCCL: the same everywhere")),
    ]
