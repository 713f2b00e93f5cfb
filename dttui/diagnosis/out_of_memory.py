"""What is meant by an end for want of memory: the host was full, or a limit was reached, or neither is known. Pure."""

from __future__ import annotations

from dataclasses import replace

from dttui.diagnosis.advice import LESS_HOST_MEMORY, MEMORY_LIMITS, WHO_KILLS, WRONG_SIZE
from dttui.diagnosis.causes import tell
from dttui.diagnosis.last_readings import Before
from dttui.diagnosis.models import Cause, Confidence, Failed
from dttui.i18n import _

FULL_SHARE = 0.92
"""Of a host's memory: from here on the kernel may have killed somebody."""
ROOMY_SHARE = 0.8
"""Of a host's memory: up to here it was not the host that was full."""
MIB_PER_GB = 1e9 / (1 << 20)
"""Readings are in MiB, and memory is told in GB, as on every screen."""
MIB_BYTES = 1 << 20


def weighed(cause: Cause, failure: Failed, before: Before) -> Cause:
    """Return a cause that may be memory, as the readings make it: others come back as they are."""
    host = failure.node
    if cause.code == "memory-refused":
        return _refused(cause, failure, before)
    if cause.code in ("killed", "worker-killed"):
        return _killed(cause, failure, before)
    share = before.host_memory_share
    if cause.code == "bus-error" and share is not None and share >= FULL_SHARE:
        return _full(cause, host, share)
    return cause


def _refused(cause: Cause, failure: Failed, before: Before) -> Cause:
    host, limit_mib = failure.node, failure.memory_limit_mib
    share, total_mib = before.host_memory_share, before.memory_total_mib
    if share is None or total_mib is None or before.memory_peak_mib is None:
        return cause
    used, total = before.memory_peak_mib / MIB_PER_GB, total_mib / MIB_PER_GB
    if cause.asked_bytes is not None and cause.asked_bytes > total_mib * MIB_BYTES:
        more = _("All of {host} has {total:.0f} GB.").format(host=host, total=total)
        return replace(
            cause, code="memory-limit", words=f"{cause.words} {more}", advice=(tell(WRONG_SIZE, {}), *cause.advice[:1])
        )
    if share >= FULL_SHARE:
        more = _("The memory of {host} was full ({share}).").format(host=host, share=f"{share:.0%}")
        return replace(cause, code="host-oom", words=f"{cause.words} {more}", advice=(tell(LESS_HOST_MEMORY, {}),))
    if share < ROOMY_SHARE:
        more = _(
            "The host had room ({used:.1f} of {total:.1f} GB in use): a limit stood in the way (ulimit -v, a "
            "container, a cgroup), or it was too much at once."
        ).format(used=used, total=total)
        if limit_mib is not None and limit_mib < total_mib:
            more = _(
                "The host had room ({used:.1f} of {total:.1f} GB in use), but this rank may have no more than "
                "{limit:.1f} GB there (ulimit -v, or its cgroup)."
            ).format(used=used, total=total, limit=limit_mib / MIB_PER_GB)
        limits = tell(MEMORY_LIMITS, {"host": host})
        return replace(cause, code="memory-limit", words=f"{cause.words} {more}", advice=(limits, *cause.advice[:1]))
    more = _("{used:.1f} of {total:.1f} GB of the host were in use.").format(used=used, total=total)
    return replace(cause, words=f"{cause.words} {more}")


def _killed(cause: Cause, failure: Failed, before: Before) -> Cause:
    host, share = failure.node, before.host_memory_share
    # Who exits with 137 may have run something elsewhere, in a container of its own.
    if failure.is_spared and not failure.is_at_limit and (failure.signal is not None or cause.code == "worker-killed"):
        told = _(
            "The kernel did not do it for want of memory: it counts no such kill in the cgroup of the job on {host}."
        )
        words = f"{cause.words} {told.format(host=host)}"
        return replace(cause, words=words, advice=(tell(WHO_KILLS, {"host": host}),))
    # The host's own count from after the end, and that of the readings, which may have ended before.
    counts = [count for count in (failure.oom_kills, before.oom_kills) if count is not None]
    kills = max(counts, default=None)
    is_roomy = share is not None and share < ROOMY_SHARE
    if failure.is_at_limit or (kills and is_roomy):
        words = _(
            "The kernel of {host} killed a process for want of memory: it had reached the limit of its container or "
            "cgroup."
        )
        if is_roomy:
            words = _(
                "The kernel of {host} killed a process for want of memory, though the host had room ({share} in use): "
                "it had reached the limit of its container or cgroup."
            )
        return replace(
            cause,
            code="memory-limit",
            words=words.format(host=host, share=f"{share or 0:.0%}"),
            advice=(tell(MEMORY_LIMITS, {"host": host}), tell(LESS_HOST_MEMORY, {})),
            confidence=Confidence.LIKELY,
        )
    if kills or (kills is None and share is not None and share >= FULL_SHARE):
        return _full(cause, host, share)
    if kills == 0:
        told = _("The kernel did not do it for want of memory: it counts no such kill on {host} in these seconds.")
        words = f"{cause.words} {told.format(host=host)}"
        return replace(cause, words=words, advice=(tell(WHO_KILLS, {"host": host}),))
    return cause  # That the host had room says nothing of the limit of a container or cgroup.


def _full(cause: Cause, host: str, share: float | None) -> Cause:
    words = _("The kernel of {host} killed this rank for want of memory.").format(host=host)
    if share is not None:
        words = _("The memory of {host} was full ({share}), and the kernel killed this rank for it.")
        words = words.format(host=host, share=f"{share:.0%}")
    advice = (tell(LESS_HOST_MEMORY, {}), *cause.advice[:1])
    return replace(cause, code="host-oom", words=words, advice=advice, confidence=Confidence.LIKELY)
