"""From what is known of hosts and jobs to what widgets show. Everything that came from a host is made clean here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dtagent.protocol.events import NodeStanding
from dtagent.protocol.metric_fields import (
    MIB,
    PERCENT,
    Declared,
    amount_text,
    cells_of,
    figures_of,
    is_amount,
    metrics_of,
)
from dtagent.protocol.telemetry import GpuSample, HostSample, RankSample

from dttui.agent_words import agent_text
from dttui.app import EnvironmentState, environment_state_name, occupant_text
from dttui.i18n import N_, _, told_now
from dttui.planning import Choice, gpu_text, without_node
from dttui.sanitize import clean_line
from dttui.timestamps import elapsed_s
from dttui.tui import symbols
from dttui.tui.environment_filter import Filter
from dttui.tui.filter_terms import ordered
from dttui.tui.remedy_keys import with_keys
from dttui.tui.symbols import StateWord
from dttui.tui.widgets.environment_row import EnvironmentRow
from dttui.tui.widgets.node_row import NodeRow, SlotCell
from dttui.words import kind_name, without_log_head

if TYPE_CHECKING:
    from dttui.app import EnvironmentStatus, Occupant
    from dttui.jobs import Failure, NodeView

RowT = TypeVar("RowT", bound=EnvironmentRow)

_PROBLEMS = (
    EnvironmentState.UNREACHABLE,
    EnvironmentState.NO_AGENT,
    EnvironmentState.REFUSED,
    EnvironmentState.UNHEALTHY,
)

_ARRIVED = {
    True: N_("has joined, and waits"),
    False: N_("has not joined"),
    None: N_("does not say whether it has joined"),
}


def line(text: str | None) -> str:
    """Return text from anywhere as one clean line."""
    return clean_line(told_now(text or ""))


def environment_state(state: EnvironmentState) -> StateWord:
    """Return how the state of an environment is shown."""
    symbol, colour = {
        EnvironmentState.CONNECTING: ("◌", "environment-connecting"),
        EnvironmentState.IDLE: ("●", "environment-idle"),
        EnvironmentState.BUSY: ("◐", "environment-busy"),
        EnvironmentState.UNHEALTHY: ("▲", "environment-unhealthy"),
        EnvironmentState.UNREACHABLE: ("○", "environment-unreachable"),
        EnvironmentState.NO_AGENT: ("◇", "environment-unreachable"),
        EnvironmentState.REFUSED: ("⊘", "environment-unreachable"),
    }[state]
    return StateWord(symbol, environment_state_name(state), colour)


class GpusAsked(NamedTuple):
    """What the job asks of the GPUs of an environment."""

    number: int | None = None
    """`None` for all."""
    ids: tuple[int, ...] = ()
    """Numbers of those that it names; none where any will do."""


ALL_GPUS = GpusAsked()


def environment_row(status: EnvironmentStatus, asked: GpusAsked = ALL_GPUS) -> EnvironmentRow:
    """Return the row of one environment, with the GPUs that the job asks of it where it is ticked."""
    environment = status.environment
    choice = Choice(environment, status.facts, asked.number, asked.ids)
    label, load = load_of(status)
    state = environment_state(status.state)
    gpus = gpu_text(choice)
    shown = [line(text) for text in (environment.name, environment.kind, environment.zone, environment.image)]
    name, kind, zone, image = shown
    kind = kind_name(kind)
    reason = line(without_node(status.reason, environment.name))
    searched = (
        *shown,
        kind,
        environment.id or "",
        environment.host or "",
        environment.way,
        state.word,
        gpus,
        _("sim") if environment.simulated else "",
    )
    return EnvironmentRow(
        key=environment.name,
        name=name,
        kind=kind,
        zone=zone,
        image=image,
        state=state,
        note=("; ".join(map(_occupant, status.occupants)) or reason) if status.state is EnvironmentState.BUSY else "",
        since=status.since,
        gpus=gpus,
        gpu_count=choice.gpu_count or 0,
        simulated=environment.simulated,
        load_label=label,
        load=load,
        booted_at=status.facts.booted_at if status.facts and status.state is not EnvironmentState.CONNECTING else None,
        problem=reason if status.state in _PROBLEMS else "",
        shows_age=status.state is EnvironmentState.UNREACHABLE,
        search=" ".join(searched).casefold(),
        states=(status.state.value, state.word),
        kinds=tuple(dict.fromkeys((line(environment.kind), kind))),
        free_gpus=_free_gpus(status, choice.gpu_count),
        cpus=choice.cpu_count,
        memory_gb=None if choice.memory_bytes is None else choice.memory_bytes / 1e9,
    )


def _free_gpus(status: EnvironmentStatus, count: int | None) -> int | None:
    """Return how many GPUs nobody has; `None` where nothing comes from the host."""
    if count is None or status.reading is None or status.state in _PROBLEMS:
        return None
    taken = {gpu for occupant in status.occupants for gpu in occupant.gpus}
    simulated = sum(occupant.simulated or 0 for occupant in status.occupants)
    return max(0, count - len(taken) - simulated)


def _occupant(occupant: Occupant) -> str:
    """Return who has GPUs and for how long, as short as it goes: `li, 3h`. The detail has the rest."""
    text = line(occupant.name)
    if occupant.held_s is not None:
        text = f"{text}, {symbols.age(occupant.held_s)}"
    return f"{text}, " + _("overdue") if occupant.is_overdue else text


def stranger_row(key: str) -> EnvironmentRow:
    """Return the row of a ticked environment that the inventory lacks."""
    return EnvironmentRow(
        key=key,
        name=line(key),
        kind="",
        zone="",
        image="",
        state=StateWord("✗", _("unknown"), "environment-unreachable"),
        note="",
        since=0.0,
        gpus="",
        gpu_count=0,
        simulated=False,
        load_label="",
        load=None,
        booted_at=None,
        problem=_("not in the inventory"),
        shows_age=False,
        search=line(key).casefold(),
    )


_FREE_FIRST: dict[str, int] = {symbol: rank for rank, symbol in enumerate("●◐◌▲◇⊘○")}

SORTS: tuple[tuple[str, Callable[[], str], Callable[[EnvironmentRow], Any]], ...] = (
    ("inventory", lambda: _("inventory order"), lambda row: 0),
    ("state", lambda: _("free first"), lambda row: (_FREE_FIRST.get(row.state.symbol, 9), row.load or 0.0)),
    ("gpus", lambda: _("most GPUs first"), lambda row: -row.gpu_count),
    ("name", lambda: _("name"), lambda row: row.name.casefold()),
    ("zone", lambda: _("zone"), lambda row: row.zone.casefold() or None),
    ("free", lambda: _("most free GPUs first"), lambda row: None if row.free_gpus is None else -row.free_gpus),
    ("util", lambda: _("least load first"), lambda row: row.load),
    ("kind", lambda: _("kind"), lambda row: row.kind.casefold() or None),
    ("image", lambda: _("image"), lambda row: row.image.casefold() or None),
    ("up", lambda: _("longest up first"), lambda row: row.booted_at),
)
"""Ways to sort: name, what it is called on screen, and the key, `None` for what comes last either way."""


def arranged(rows: Mapping[str, EnvironmentRow], wanted: Filter, sort: str, *, is_reversed: bool = False) -> list[str]:
    """Return the keys of the rows that a filter takes, in the order asked for; ties keep that of the inventory."""
    found = [row for row in rows.values() if wanted.takes(row)]
    key = next(key for name, _label, key in SORTS if name == sort)
    if sort == "inventory":
        return [row.key for row in (reversed(found) if is_reversed else found)]
    return [row.key for row in ordered(found, key, is_reversed=is_reversed)]


def environment_detail(status: EnvironmentStatus) -> list[tuple[str, str]]:
    """Return more about an environment, as (text, theme variable): where it is, what it runs, what is wrong with it."""
    environment, facts = status.environment, status.facts
    pieces = [environment.short_way, kind_name(environment.kind or "")]
    if environment.address and environment.address != environment.host:
        pieces.append(_("training address {address}").format(address=environment.address))
    if facts is not None:
        python = next(iter(facts.pythons), None)
        torch = python.packages.get("torch") if python else None
        pieces.append(_("{count} CPUs").format(count=facts.cpu_count))
        if python is not None:
            why = agent_text(python.error, python.error_notice)
            version = _("Python {version}").format(version=python.version) if python.version else why
            pieces += [version, f"torch {torch}" if torch else _("no torch")]
        pieces.append((facts.driver_version and _("driver {version}").format(version=facts.driver_version)) or "")
        if facts.gpu_note and not environment.simulated:
            pieces.append(agent_text(facts.gpu_note, facts.gpu_note_notice))
        pieces += [facts.cpu_model, facts.os]
    first = " · ".join(line(piece) for piece in pieces if piece)
    if status.state in _PROBLEMS:
        said = line(status.reason)
        return [
            (first, "muted"),
            (f"{said} → {with_keys(line(status.hint))}" if status.hint else said, "environment-unreachable"),
        ]
    sample = status.sample
    if sample is None:
        return [(first, "muted"), ("", "muted")]
    return [(first, "muted"), (_usage(sample, status.occupants), "muted")]


def failure_words(failures: Sequence[Failure]) -> dict[str, dict[int | None, str]]:
    """Return what is told of the ranks that broke, by node: which was the first, and how much later others followed."""
    found: dict[str, dict[int | None, str]] = {}
    for failure in failures:
        if len(failures) == 1:
            word = _("failed")
        elif failure is failures[0]:
            word = _("failed first")
        else:
            word = _("failed {span} later").format(span=symbols.duration(elapsed_s(failures[0].time, failure.time)))
        found.setdefault(failure.node, {}).setdefault(failure.rank, word)
    return found


def node_row(
    node: NodeView,
    job_id: str,
    failed_ranks: Mapping[int | None, str],
    *,
    is_over: bool,
    now: float,
    late_rank: int | None = None,
    first_failed: str = "",
) -> NodeRow:
    """Return the row of one node of a job at Unix time `now`.

    The last readings of a host that is silent, or has no agent any more, are old, and those of a node that is over too:
    only ranks that failed are shown of it.

    Args:
        node: the node.
        job_id: the job.
        failed_ranks: of the node's, each with what is told of it; `None` among them is the launcher.
        is_over: whether the job is.
        now: Unix time.
        late_rank: for which the others wait.
        first_failed: node on which something broke first; empty where nothing has.
    """
    state = node.state if not failed_ranks or node.state.is_bad else NodeStanding.FAILED
    has_ended = is_over or node.is_over
    shows_readings = not has_ended and not node.is_unseen
    return NodeRow(
        name=line(node.plan.name),
        is_master=node.plan.node_rank == 0,
        state=replace(symbols.node_state(state), word=line(node.word)) if node.word else symbols.node_state(state),
        ranks=_ranks(node.ranks),
        simulated=node.plan.simulated,
        problem=_problem(node, failed_ranks, now, is_read=shows_readings),
        note=_note(node, None if is_over else node.silence_s(now), first_failed, has_ended=has_ended),
        labels=(_("util"), _("mem")) if node.gpu_ids else (_("cpu"), _("RAM")),
        slots=tuple(_slot_cells(node, job_id, failed_ranks, late_rank, is_read=shows_readings)),
        figures=_host_figures(node.sample) if node.sample and shows_readings else (),
    )


def _ranks(ranks: Sequence[int]) -> str:
    """Return ranks, which are contiguous: `4–7`; empty for none."""
    if not ranks:
        return ""
    return f"{ranks[0]}–{ranks[-1]}" if len(ranks) > 1 else str(ranks[0])


def _slot_cells(
    node: NodeView, job_id: str, failed_ranks: Mapping[int | None, str], late_rank: int | None, *, is_read: bool
) -> Iterator[SlotCell]:
    """Yield the cells of a node's slots; where its readings do not count, of ranks that failed, without readings."""
    slots = [
        SlotCell(
            rank=slot.rank,
            load=None if (load := slot.figures.get("utilization_percent")) is None else load / 100,
            texts=(*_figures(GpuSample, slot.figures), *_figures(RankSample, slot.process_figures)),
            error=line(agent_text(slot.error, slot.error_notice)),
            memory=slot.memory_share,
            is_late=slot.rank == late_rank,
        )
        for slot in node.slots(job_id)
    ]
    if not is_read:
        failed = dict.fromkeys(slot.rank for slot in slots if slot.rank in failed_ranks)
        slots = [SlotCell(rank, None, (), "") for rank in failed]
    for slot in slots:
        yield replace(slot, error=failed_ranks[slot.rank]) if slot.rank in failed_ranks else slot


def _host_figures(sample: HostSample) -> tuple[str, ...]:
    """Return what is shown of a host itself; each empty where it is not known."""
    received, sent = (
        [*rates.values(), *(getattr(port, field) for port in sample.rdma or ())]
        for rates, field in (
            (sample.network_receive_bytes_per_s, "receive_bytes_per_s"),
            (sample.network_transmit_bytes_per_s, "transmit_bytes_per_s"),
        )
    )
    network = ""
    if received or sent:
        network = f"↓{amount_text(sum(received), 'B/s')} ↑{amount_text(sum(sent), 'B/s')}"
    label = _("CPU")
    cpu = "" if sample.cpu_percent is None else f"{label} {sample.cpu_percent:.0f}%"
    return (cpu, network, *_figures(HostSample, figures_of(sample)))


def _note(node: NodeView, silence_s: float | None, first_failed: str, *, has_ended: bool) -> str:
    """Return what there is to say of a node that is no problem yet; of a silent one that it is."""
    if silence_s is not None:
        return _("no word for {span}").format(span=symbols.duration(silence_s))
    if node.absence is not None and not has_ended:
        arrived = _(_ARRIVED[node.absence.has_come])
        said = without_log_head(line(node.absence.said))
        return f"{arrived} · {said}" if said else arrived
    if node.state is not NodeStanding.STOPPED:
        return ""
    if not first_failed or first_failed == node.plan.name:
        return line(node.message)
    followed = _("followed {node}").format(node=line(first_failed))
    return f"{followed} · {line(node.message)}" if node.message else followed


def _problem(node: NodeView, failed_ranks: Mapping[int | None, str], now: float, *, is_read: bool) -> str:
    """Return what is wrong with a node itself, or, where its readings count, with its health; empty where nothing."""
    problem = line(node.message) if node.state.is_bad and not failed_ranks else ""
    if problem or node.unhealthy_since is None or not is_read:
        return problem
    span = symbols.duration(elapsed_s(node.unhealthy_since, now))
    return _("unhealthy for {span}: {what}").format(span=span, what=line(node.unhealthy_what))


def _figures(kind: type, values: Mapping[str, float | None]) -> tuple[str, ...]:
    """Return the readings of a kind of sample that have a place in cells and rows, always as many."""
    return tuple(cell_text(item, values.get(name)) for name, item in cells_of(kind).items())


def cell_text(declared: Declared, value: float | None) -> str:
    """Return a reading as a cell shows it: in a few characters, after what it is called there; empty for none."""
    if value is None:
        return ""
    text = f"{value:.0f}{declared.unit.symbol}"
    if is_amount(declared.unit.symbol):
        text = amount_text(value, declared.unit.symbol)
    elif declared.unit == MIB:
        text = symbols.mebibytes(int(value))
    elif declared.unit == PERCENT:
        text = f"{min(value / 100, 99.99):.0%}"
    return f"{declared.cell} {text}".strip()


def load_of(status: EnvironmentStatus) -> tuple[str, float | None]:
    """Return what is loaded, GPU or CPU, and how much of it, from 0 to 1; `None` where that is not known."""
    reading = status.reading
    if reading is None:
        return "", None
    used = [percent for percent in reading.gpus("utilization_percent") if percent is not None]
    if used:
        return _("GPU"), metrics_of(GpuSample)["utilization_percent"].aggregation(used) / 100
    percent = reading.host("cpu_percent")
    return _("CPU"), None if percent is None else percent / 100


def _usage(sample: HostSample, occupants: Sequence[Occupant]) -> str:
    pieces = []
    if sample.load1 is not None:
        pieces.append(_("load {load:.1f}").format(load=sample.load1))
    if sample.memory_used_mib is not None and sample.memory_total_mib is not None:
        used, total = symbols.mebibytes(sample.memory_used_mib), symbols.mebibytes(sample.memory_total_mib)
        pieces.append(_("memory {used} of {total}").format(used=used, total=total))
    if sample.disk_free_mib is not None:
        pieces.append(_("disk free {size}").format(size=symbols.mebibytes(sample.disk_free_mib)))
    pieces += filter(None, _figures(HostSample, figures_of(sample)))
    pieces += [line(occupant_text(occupant)) for occupant in occupants]
    return " · ".join(pieces)
