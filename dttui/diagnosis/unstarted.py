"""Why a job failed before any rank did: in the preflight, in the launch, or since nodes missed the rendezvous. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dtagent.protocol.events import JobState

from dttui.diagnosis.models import AbsentNode, Cause, Confidence, Evidence, Rendezvous
from dttui.i18n import _, ngettext
from dttui.spec.failure_causes import HOST_UNREACHABLE, INTERNAL, INVALID, LAUNCH, NEVER_RAN, PREFLIGHT
from dttui.words import listed

MOST_NAMED = 4
_NOT_FOR_RANKS = NEVER_RAN | {INTERNAL, INVALID}
_ABOUT_THE_NETWORK = re.compile(
    r"connect|refused|timed out|No route|unreachable|retrying|getaddrinfo|resolve|hostname|TCPStore|socket\.cpp",
    re.IGNORECASE,
)


def why_unstarted(evidence: Evidence) -> Cause:
    """Return why a job failed of which no rank did."""
    if (rendezvous := missed_rendezvous(evidence)) is not None:
        return _missed(evidence, rendezvous)
    if evidence.outcome_cause == PREFLIGHT and evidence.findings:
        return _refused(evidence.findings)
    if evidence.outcome_cause == HOST_UNREACHABLE and evidence.refused:
        words = _("{hosts}: reached, and refused: its key or our credentials were not accepted. Nothing was started.")
        hints = tuple(hint for _message, hint in evidence.findings if hint)
        named = listed(list(evidence.refused), MOST_NAMED)
        look = _("See what `dttui envs` says of that host, and try the way to it by hand.")
        return Cause("host-refused", words.format(hosts=named), hints[:1] or (look,), Confidence.CERTAIN)
    if evidence.outcome_cause == HOST_UNREACHABLE and evidence.agentless:
        named = listed(list(evidence.agentless), MOST_NAMED)
        words = _("{hosts}: reached, but no agent runs there. Nothing was started.").format(hosts=named)
        hosts = " ".join(evidence.agentless[:MOST_NAMED])
        remedy = _("`dttui agents deploy {hosts}` brings it back.").format(hosts=hosts)
        return Cause("no-agent", words, (remedy,), Confidence.CERTAIN)
    known = {
        HOST_UNREACHABLE: (
            _("A host could not be reached, so nothing was started."),
            _("See what `dttui envs` says of that host, and try the way to it by hand."),
        ),
        PREFLIGHT: (
            _("A check before the launch found what would have made it fail."),
            _("Put right what the findings name, and launch again. Nothing was started."),
        ),
        LAUNCH: (
            _("The launch failed on a host, and every other host was cleared again."),
            _("Nothing is left running. Put right what is named above, and launch again."),
        ),
    }
    if evidence.cleared and evidence.outcome_cause not in known:
        # The reason says which host that was, and what is known of it since.
        return Cause("node-lost", evidence.reason, since_cleared(evidence, evidence.cleared), Confidence.CERTAIN)
    before = _("`dttui attach {job} --output jsonl` prints all that was told before.").format(job=evidence.job_id)
    code = evidence.outcome_cause or "unknown"
    words, advice = known.get(code, ("", before))
    return Cause(code, words, (advice,), Confidence.CERTAIN if words else Confidence.POSSIBLE)


def since_cleared(evidence: Evidence, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return what there is to do about hosts that were lost, and that a later look has found clean."""
    names = listed(list(hosts), MOST_NAMED)
    clean = _("Nothing is left to do there: a later look has found nothing of the job on {hosts}.").format(hosts=names)
    logs = _("`dttui logs {job} --node {host}` shows what was printed there.").format(
        job=evidence.job_id, host=hosts[0]
    )
    return clean, logs


def missed_rendezvous(evidence: Evidence) -> Rendezvous | None:
    """Return the rendezvous that not all nodes came to, of a job whose ranks never all ran; `None` of any other."""
    has_ended_otherwise = evidence.state in (JobState.SUCCEEDED, JobState.CANCELLED)
    if has_ended_otherwise or evidence.running_at is not None or evidence.outcome_cause in _NOT_FOR_RANKS:
        return None
    rendezvous = evidence.rendezvous
    return rendezvous if rendezvous is not None and rendezvous.absent else None


def _refused(findings: Sequence[tuple[str, str]]) -> Cause:
    """Return the first error of the preflight, and how many more there are."""
    message, hint = findings[0]
    others = len(findings) - 1
    more = ngettext(" (and {count} more error)", " (and {count} more errors)", others) if others else ""
    words = message + more.format(count=others)
    again = _("Put right what the findings name, and launch again. Nothing was started.")
    return Cause("preflight", words, (hint, again) if hint else (again,), Confidence.CERTAIN)


def _missed(evidence: Evidence, rendezvous: Rendezvous) -> Cause:
    absent = [item for item in rendezvous.absent if item.has_come is False] or list(rendezvous.absent)
    names = {item.name for item in absent}
    fields = {
        "joined": listed([node.name for node in evidence.nodes if node.name not in names], MOST_NAMED),
        "absent": listed([item.name for item in absent], MOST_NAMED),
        "place": rendezvous.place,
        "seconds": f"{rendezvous.waited_s:.0f}",
    }
    if all(item.has_come for item in absent):
        words = _(
            "All nodes came to the rendezvous at {place}, but ranks of {absent} did not start within {seconds} s."
        )
    elif fields["joined"]:
        words = _("{joined} joined the rendezvous at {place}; {absent} did not within {seconds} s.")
    else:
        words = _("Nobody joined the rendezvous at {place} within {seconds} s.")
    said = [_("The launcher of {host} last said: {line}").format(host=item.name, line=item.said) for item in absent[:1]]
    if not absent[0].said:
        said = [_("The launcher of {host} has printed nothing.").format(host=absent[0].name)]
    advice = _reasons(evidence, rendezvous, absent[0])
    return Cause("rendezvous-timeout", " ".join([words.format(**fields), *said]), advice, Confidence.CERTAIN)


def _reasons(evidence: Evidence, rendezvous: Rendezvous, absent: AbsentNode) -> tuple[str, ...]:
    """Return what may keep a node from coming, the likeliest first, and how to find out."""
    node = next((item for item in evidence.nodes if item.name == absent.name), None)
    python = node.python if node is not None else "python"
    is_master = bool(evidence.nodes) and evidence.nodes[0].name == absent.name
    host = absent.name
    network = _(
        "A port or a firewall: {host} must reach {place}. `dttui preflight` with the job file tries it from every host."
    ).format(host=host, place=rendezvous.place)
    if absent.has_reached:
        network = _("A port or a firewall is unlikely: before the start, {host} reached a port of the master.")
        network = network.format(host=host)
    interface = _(
        "The wrong network: where the master has several, give its `address` in the inventory that others can reach."
    )
    begin = _(
        "Its launcher may not have come as far as torchrun: look at run.prefix, and time `{python} -c 'import torch'` "
        "on {host}; while it hangs, `ps -fu $USER` there shows at what."
    ).format(python=python, host=host)
    slow = _("If {host} is only slow, raise communication.rendezvous_timeout (it was {seconds:.0f} s).").format(
        host=host, seconds=rendezvous.limit_s
    )
    logs = _("`dttui logs {job} --node {host}` shows all that its launcher printed.").format(
        job=evidence.job_id, host=host
    )
    if absent.has_come:
        return begin, slow, logs
    if absent.said and not is_master and _ABOUT_THE_NETWORK.search(absent.said):
        return (interface, network, logs, slow) if absent.has_reached else (network, interface, logs, slow)
    if absent.said:
        return logs, begin, network, slow
    return begin, network, interface, slow
