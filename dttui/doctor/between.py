"""What is wrong between hosts: connections that fail, versions that differ. Pure: answers in, troubles out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dtagent.protocol.probes import Reached, ReachOutcome

from dttui.doctor.examination import Examined
from dttui.doctor.models import Remedy, Site, Trouble
from dttui.doctor.reachability import Pair, Reachability
from dttui.doctor.remedies import Remedies, build_index
from dttui.i18n import _
from dttui.jobs.board import Drift
from dttui.preflight.node_reachability import connection_failure, is_loopback
from dttui.preflight.software import drift_findings, version_differences
from dttui.spec.findings import Finding, error, info, warning

BLOCKED = (ReachOutcome.REFUSED, ReachOutcome.TIMED_OUT, ReachOutcome.NO_ROUTE)
"""How an attempt ends that a firewall does not let through."""


def judge_drift(hosts: Sequence[Examined], options: Sequence[str]) -> Iterator[Trouble]:
    """Yield what is not the same on all hosts, with the commands that make it so where a package does."""
    told = {
        host.name: (host.facts, host.facts.pythons[0])
        for host in hosts
        if host.facts is not None and host.facts.pythons and not host.facts.pythons[0].error
    }
    has_gpus = any(facts.gpus for facts, _python in told.values())
    drift = version_differences(told, ["torch"], uses_torch=True, uses_nccl=has_gpus)
    for difference, finding in zip(drift, drift_findings(drift), strict=True):
        yield Trouble(Site.BETWEEN, finding, tuple(_alike(difference, told, hosts, options)))


def _alike(
    drift: Drift, told: Mapping[str, tuple[object, object]], hosts: Sequence[Examined], options: Sequence[str]
) -> Iterator[Remedy]:
    for host in hosts:
        if host.facts is None or not any(host.name in names for names in drift.others.values()):
            continue
        python = host.facts.pythons[0]
        remedies = Remedies(host.name, host.seen.user, tuple(options))
        package = drift.item if drift.item == "torch" else None
        if drift.item == "NCCL":
            package = next((name for name in python.packages if name.startswith("nvidia-nccl-")), None)
        if package is not None:
            yield remedies.install(python.path, [f"{package}=={drift.usual.partition('+')[0]}"])
        elif drift.item == "CUDA" and (index := build_index(drift.usual)):
            version = python.packages["torch"].partition("+")[0]
            yield remedies.install(python.path, ["--force-reinstall", f"torch=={version}"], index)
        elif drift.item == "Python":
            yield remedies.show_pythons()
        elif drift.item == "driver":
            yield remedies.show_driver()


def judge_reachability(tried: Reachability, hosts: Sequence[Examined], options: Sequence[str]) -> Iterator[Trouble]:
    """Yield which hosts do not reach which others; the same both ways is said once."""
    seen = {host.name: host for host in hosts}
    for finding in tried.findings:
        remedies = Remedies(finding.subject, seen[finding.subject].seen.user, tuple(options))
        yield Trouble(Site.HOST, finding, (remedies.show_listeners(), remedies.edit_inventory()))
    broken = {(pair.source, pair.target): pair for pair in tried.pairs if not pair.is_whole}
    told: set[tuple[str, str]] = set()
    for (source, target), pair in broken.items():
        if (source, target) in told:
            continue
        back = broken.get((target, source))
        is_mutual = back is not None and _kind(back) == _kind(pair)
        told |= {(source, target), (target, source)} if is_mutual else {(source, target)}
        yield Trouble(Site.BETWEEN, _finding(pair, is_mutual=is_mutual), tuple(_openings(pair, seen, options)))
    if tried.is_partial:
        message = _("each host tried its neighbours in the inventory alone: there are too many for all pairs")
        yield Trouble(Site.BETWEEN, info("pairs-partly", "network", message))


def _kind(pair: Pair) -> tuple[ReachOutcome | None, ...]:
    return tuple(found.outcome if found is not None else None for found in (pair.ranged, pair.free))


def _finding(pair: Pair, *, is_mutual: bool) -> Finding:
    arrow = "↔" if is_mutual else "→"
    where = f"{pair.source} {arrow} {pair.target}"
    failed = _worst(pair)
    if failed is None:
        message = _("{where}: nothing could be tried: {host} does not listen").format(where=where, host=pair.target)
        return warning("unchecked", where, message)
    if is_loopback(failed.address):
        message = _("{where}: the name {address} resolves to loopback ({ip}) on {host}")
        message = message.format(where=where, address=pair.address, ip=failed.address, host=pair.source)
        hint = _("Set `address` of {master} in the inventory to its IP address, or correct /etc/hosts of {host}.")
        return error("address-loopback", where, message, hint.format(master=pair.target, host=pair.source))
    message, hint = connection_failure(where, failed, pair.address, pair.target)
    if failed.outcome is ReachOutcome.UNRESOLVED:
        return error("address-unknown", where, message, hint)
    if _is_reached(pair.free):
        what = _("on the ports of port_range, where a job's ranks meet: {reason}").format(reason=message)
        return error("ports-blocked", where, what, hint)
    if _is_reached(pair.ranged):
        what = _("on other ports than those of port_range: {reason}").format(reason=message)
        return error(
            "ports-blocked", where, what, _("gloo and NCCL take any free port: open all TCP ports between the hosts.")
        )
    return error("hosts-apart", where, message, hint)


def _worst(pair: Pair) -> Reached | None:
    tried = [found for found in (pair.ranged, pair.free) if found is not None]
    return next((found for found in tried if found.outcome is not ReachOutcome.REACHED), None)


def _is_reached(found: Reached | None) -> bool:
    return found is not None and found.outcome is ReachOutcome.REACHED


def _openings(pair: Pair, seen: Mapping[str, Examined], options: Sequence[str]) -> Iterator[Remedy]:
    """Yield what opens the firewalls of both: which of them it is, and in which direction, nobody outside can tell.

    Where it is the address that is wrong, yield what shows the right one, and where that is written.
    """
    failed, source, target = _worst(pair), seen[pair.source], seen[pair.target]
    if failed is None:
        return
    if failed.outcome not in BLOCKED or is_loopback(failed.address):
        remedies = Remedies(target.name, target.seen.user, tuple(options))
        yield from (remedies.show_addresses(), remedies.edit_inventory())
        return
    for here, there in ((target, source), (source, target)):
        peer = there.address if there is not source else failed.source or source.address
        yield Remedies(here.name, here.seen.user, tuple(options)).let_in(here.seen.firewall, peer)
