"""What a framework's own code is asked about a job before it starts, and what its answer means. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dtagent.protocol.facts import HostFacts
from dtagent.protocol.probes import FrameworkAnswer, ValidationReply, ValidationRequest
from dtagent.protocol.sentences import MODULE_MISSING

from dttui.agent_words import agent_text
from dttui.frameworks import get_framework
from dttui.frameworks.bundle import Hole, address_hole, fill, port_hole
from dttui.frameworks.parts.prefix import is_watched
from dttui.i18n import _, joined
from dttui.planning.models import Finding, Plan, PlannedNode
from dttui.preflight.software import python_of
from dttui.sanitize import clean
from dttui.spec.findings import error

SECONDS = 20.0
"""How long a framework may take to be imported and to answer; then nothing is known."""
TIMEOUT_S = SECONDS + 5.0
_MAX_CHARS = 500
_OWN_ARGUMENTS = "torchrun"
"""The check of arguments that dttui writes all by itself: not worth an import of torch in every launch."""


def request_for(plan: Plan, node: PlannedNode, *, thorough: bool) -> ValidationRequest | None:
    """Return what to ask of a node's host; `None` where the framework has nobody to ask.

    Args:
        plan: of the job.
        node: one of its nodes.
        thorough: ask about torchrun's arguments too.
    """
    wanted = _wanted(plan, thorough=thorough)
    process = next(iter(node.processes), None)
    if not wanted or process is None or plan.container is not None:  # Nobody has looked into the image.
        return None
    if is_watched(node.prefix):
        return None  # Who looks on would look at what is asked.
    values = _plausible(plan, node)
    return ValidationRequest(
        python=node.python,
        checks=wanted,
        argv=[fill(word, values) for word in process.argv],
        env={name: fill(value, values) for name, value in process.env.items() if not name.startswith("DTTUI_")},
        files={file.path: fill(file.text, values) for file in node.files if "/" not in file.path},
        world_size=plan.world_size,
        seconds=SECONDS,
        prefix=list(node.prefix),
    )


def unread(plan: Plan, *, thorough: bool) -> str:
    """Return what is to be told where nobody is asked although somebody could be; empty where nothing is."""
    if plan.container is None or not _wanted(plan, thorough=thorough):
        return ""
    return _("settings not read: {reason}").format(reason=_("in a container"))


def checks_of(framework: str) -> Sequence[str]:
    """Return the checks of a framework."""
    return get_framework(framework).verdicts if framework else ()


def versions_of(node: PlannedNode, facts: HostFacts) -> object:
    """Return what must be equal for two hosts' frameworks to say the same; `None` without the interpreter."""
    python = python_of(node, facts)
    return (
        None if python is None or python.error is not None else (python.version, tuple(sorted(python.packages.items())))
    )


def shape_of(plan: Plan) -> object:
    """Return that on which settings depend, and of which hosts may tell other than the inventory."""
    return plan.backend, tuple((node.name, node.slots, node.cuda_slots) for node in plan.nodes)


def judge_answer(node: PlannedNode, reply: ValidationReply) -> tuple[str, tuple[Finding, ...]]:
    """Return what is to be told of an answer in a few words, and what forbids a launch."""
    said: list[str] = []
    found: list[Finding] = []
    if reply.unseen is not None:
        said.append(_("settings not read: {reason}").format(reason=agent_text(reply.unseen, reply.unseen_notice)))
    for check, verdict in reply.verdicts.items():
        if verdict.refusal:
            reason = _line(agent_text(verdict.refusal, verdict.refusal_notice))
            message = _("{host}: {framework} refuses what it would be given: {reason}")
            hint = _("Correct the job by that; where you know better, ignore framework-refuses.")
            message = message.format(host=node.name, framework=clean(check), reason=reason)
            found.append(error("framework-refuses", node.name, message, hint))
        elif verdict.unseen is None:
            said.append(_("read by {framework}").format(framework=clean(check)))
        elif not _lacks_module(verdict):  # Which is told as a package that is missing.
            reason = _line(agent_text(verdict.unseen, verdict.unseen_notice))
            said.append(_("not read by {framework}: {reason}").format(framework=clean(check), reason=reason))
    return joined(" · ", said), tuple(found)


def _lacks_module(answer: FrameworkAnswer) -> bool:
    """Whether it could not be imported; of an agent without codes by the name of Python's exception."""
    if answer.unseen_notice is not None:
        return answer.unseen_notice.code == MODULE_MISSING.code
    return (answer.unseen or "").startswith("ModuleNotFoundError")


def _wanted(plan: Plan, *, thorough: bool) -> list[str]:
    return [name for name in checks_of(plan.framework) if thorough or name != _OWN_ARGUMENTS]


def _line(text: str) -> str:
    """Return what a framework said as one line, without where pydantic explains its errors."""
    lines = (line for line in clean(text).splitlines() if "errors.pydantic.dev" not in line)
    return " ".join(" ".join(lines).split())[:_MAX_CHARS]


def _plausible(plan: Plan, node: PlannedNode) -> dict[str, str]:
    """Return something for each hole that only a start fills; the host knows the directories."""
    values = {
        Hole.JOB_ID.value: "preflight",
        Hole.ATTEMPT.value: "0",
        Hole.MASTER_PORT.value: str(plan.port_range[0]),
        Hole.INTERFACE.value: "lo",
        Hole.GPU_IDS.value: ",".join(map(str, node.gpu_ids or range(node.cuda_slots))),
        Hole.PYTHON.value: node.python,
    }
    for each in plan.nodes:
        values[address_hole(each.node_rank)] = each.address
        first, last = each.port_range or plan.port_range
        values[port_hole(each.node_rank)] = str(min(first + each.node_rank, last))
    return values
