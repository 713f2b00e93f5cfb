"""What is told of somebody who is no node of an elastic job, and wrote to the store of its rendezvous."""

from __future__ import annotations

from collections.abc import Sequence

from dtagent.protocol.meeting import Disturbance, Tampering

from dttui.engine.nodes.node_run import NodeRun
from dttui.i18n import N_, Message, msg
from dttui.sanitize import clean
from dttui.spec.findings import Finding, warning

CODE = "rendezvous-tampered"
"""Of the finding, and of the cause."""
STATE = "state"
_FOUND = {
    Tampering.FORGED.value: N_("on {host} {what} was found overwritten by somebody who is no node of the job"),
    Tampering.REPLAYED.value: N_("on {host} {what} was found replaced by an earlier one"),
    Tampering.DELETED.value: N_("on {host} {what} was found deleted"),
    Tampering.SPLIT.value: N_("on {host} {what} was found replaced by an earlier one, from which others had gone on"),
}


def when_mended(nodes: Sequence[NodeRun], node: NodeRun) -> Finding | None:
    """Return what to tell of the first disturbance that a node has put right; `None` where it has none.

    Args:
        nodes: of the attempt; the rendezvous is on the first.
        node: of them.
    """
    for item in _disturbances(node):
        if item.mended:
            message = msg(
                "the rendezvous was tampered with: {found}; that was put right, and the job goes on",
                found=_found(node, item),
            )
            return warning(CODE, node.name, message, _remedy(nodes))
    return None


def why_ended(nodes: Sequence[NodeRun], *, even_mended: bool = False) -> Message | None:
    """Return what somebody did that ended the rendezvous, and what to do; `None` where nobody did.

    Args:
        nodes: of the attempt; the rendezvous is on the first.
        even_mended: whether also what was put right counts, since it took time.
    """
    for node in nodes:
        for item in _disturbances(node):
            if even_mended or not item.mended:
                found = msg("the rendezvous was tampered with: {found}", found=_found(node, item))
                return msg("{what}. {why}", what=found, why=_remedy(nodes))
    return None


def _disturbances(node: NodeRun) -> Sequence[Disturbance]:
    found = node.status.disturbances if node.status is not None else ()
    return [item for item in found if item.how in _FOUND]


def _found(node: NodeRun, item: Disturbance) -> Message:
    what = msg("its state")
    if item.what != STATE:
        what = msg("what the nodes tell each other ({name})", name=clean(item.what))
    return msg(_FOUND[item.how], host=node.name, what=what)


def _remedy(nodes: Sequence[NodeRun]) -> Message:
    return msg(
        "Let nobody but the nodes reach {address}: use a private network for training, or a firewall.",
        address=nodes[0].planned.address,
    )
