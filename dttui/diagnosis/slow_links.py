"""Which link between hosts of a job is slower than its others, by what ranks send while they train. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dttui.i18n import Message, msg
from dttui.words import size_text

LEAST_BYTES = 1 << 20
"""That have to be sent over a link before its rate says anything: of small messages it is that of their round trips."""
LEAST_OTHERS = 2
"""Links that one is compared with."""
SLOWER = 3.0
"""Times as slow as the others' median a link has to be."""
LEAST_BUSY = 0.2
"""Of the time: a link that is used less holds up nobody for long."""
_LEAST_BUSY_S = 1e-3
"""As short a time as kernels count."""

Link = tuple[str, str]
"""Who sends, and to whom."""


@dataclass(frozen=True)
class LinkUse:
    """What ranks have sent from one host to another in a time."""

    sent_bytes: int
    busy_s: float
    """Summed over connections, in which there was something to send."""
    seconds: float
    """How long the time was."""

    @property
    def bytes_per_s(self) -> float:
        """How fast it went while there was something to send."""
        return self.sent_bytes / max(self.busy_s, _LEAST_BUSY_S)

    @property
    def busy(self) -> float:
        """Share of the time, 0 to 1, in which there was something to send."""
        return min(1.0, self.busy_s / self.seconds) if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class SlowLink:
    """A link that is slower than the job's others."""

    link: Link
    bytes_per_s: float
    others_bytes_per_s: float
    """The median."""
    busy: float
    """Share of the time, 0 to 1, in which there was something to send."""


def slow_links(uses: Mapping[Link, LinkUse]) -> dict[Link, SlowLink]:
    """Return the links that are slow, by what went over each of late."""
    counted = {link: use for link, use in uses.items() if use.sent_bytes >= LEAST_BYTES}
    found = {}
    for link, use in counted.items():
        others = [other.bytes_per_s for name, other in counted.items() if name != link]
        if len(others) >= LEAST_OTHERS and use.busy >= LEAST_BUSY and SLOWER * use.bytes_per_s <= median(others):
            found[link] = SlowLink(link, use.bytes_per_s, median(others), use.busy)
    return found


def host_of(slow: Collection[Link]) -> str | None:
    """Return the one host that all of several slow links lead to or from; `None` where there is none such."""
    shared = set.intersection(*(set(link) for link in slow)) if len(slow) > 1 else set()
    return shared.pop() if len(shared) == 1 else None


def sentence(slow: Sequence[SlowLink]) -> Message:
    """Return in words that some links are slow, of which there is one at least: a host's, or the slowest."""
    worst, host = min(slow, key=lambda item: item.bytes_per_s), host_of([item.link for item in slow])
    values = {
        "rate": size_text(round(worst.bytes_per_s)),
        "busy": f"{worst.busy:.0%}",
        "others": size_text(round(worst.others_bytes_per_s)),
    }
    if host is not None:
        return msg(
            "the network of {host} is slow: {rate}/s where others have {others}/s, in use {busy} of the time",
            host=host, **values)  # fmt: skip
    source, target = worst.link
    return msg(
        "the link from {source} to {target} is slow: {rate}/s where others have {others}/s, in use {busy} of the time",
        source=source, target=target, **values)  # fmt: skip
