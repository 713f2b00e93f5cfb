"""From what is known of hosts to the rows of their list and the details of one. What came from a host is cleaned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dtagent
from dtagent.protocol.facts import HostFacts, PythonFacts
from textual.content import Content

from dttui.agent_words import agent_text
from dttui.app import Checkup, EnvironmentState, EnvironmentStatus, Site, Trouble, is_newer, occupant_text
from dttui.i18n import _
from dttui.inventory import Environment, Reach
from dttui.planning import without_node
from dttui.spec import Severity
from dttui.timestamps import elapsed_s
from dttui.tui import symbols
from dttui.tui.environment_filter import Filter
from dttui.tui.filter_terms import ordered
from dttui.tui.host_work import HostAction, HostTask, TaskStage
from dttui.tui.remedy_keys import with_keys
from dttui.tui.rows import environment_row, environment_state, line
from dttui.tui.widgets.cells import Part, labelled
from dttui.tui.widgets.finding_list import finding_line
from dttui.tui.widgets.host_row import NOW_S, HostRow
from dttui.words import agent_outcome_name, kind_name, listed, moment

MOST_NAMES = 6
"""Hosts that are named; the others are counted."""
TASK_S = 120.0
"""For so long what came of something is told in the row; the details keep it."""


def host_row(status: EnvironmentStatus, task: HostTask | None, now: float) -> HostRow:
    """Return the row of one host at Unix time `now`."""
    row = environment_row(status)
    agent, part = agent_words(status)
    python = _python(status.facts)
    told, brief, task_part = _told(task, status.environment.name, now)
    own = {
        "agent": agent,
        "agent_part": part,
        "heard_at": status.heard_at,
        "driver": _driver(status.facts),
        "torch": line(python.packages.get("torch")) if python is not None else "",
        "python": line(python.version) if python is not None else "",
        "way": line(status.environment.short_way),
        "task": told,
        "task_brief": brief,
        "task_part": task_part,
    }
    searched = (row.search, agent, row.problem, row.note, f"torch {own['torch']}", f"python {own['python']}")
    made: dict[str, Any] = {**vars(row), **own, "search": " ".join(searched).casefold()}
    return HostRow(**made)


def action_word(action: HostAction) -> str:
    """Return what an action is called."""
    return {
        HostAction.DEPLOY: _("deploy"),
        HostAction.UPGRADE: _("upgrade"),
        HostAction.REMOVE: _("remove agent"),
        HostAction.TRUST: _("trust"),
        HostAction.DOCTOR: _("doctor"),
        HostAction.LOOK: _("look again"),
    }[action]


def agent_words(status: EnvironmentStatus) -> tuple[str, Part]:
    """Return the version of a host's agent beside that of this dttui, in a few words, and what they are."""
    version = line(status.agent_version)
    if status.is_foreign:
        return _("other protocol"), Part.PROBLEM
    if not version:
        return (_("none"), Part.PROBLEM) if status.state is EnvironmentState.NO_AGENT else ("–", Part.MUTED)
    if is_newer(dtagent.__version__, version):
        return _("{version} older").format(version=version), Part.PROBLEM
    if is_newer(version, dtagent.__version__):
        return _("{version} newer").format(version=version), Part.PROBLEM
    return version, Part.PLAIN


def host_details(status: EnvironmentStatus, task: HostTask | None, checkup: Checkup | None) -> Content:
    """Return all that is known of one host, a line each."""
    state = environment_state(status.state)
    name = Content.assemble((line(status.environment.name), "bold"), "  ", (state.unbroken, f"${state.colour}"))
    if status.since:
        name = Content.assemble(name, ("  " + _("since {time}").format(time=moment(status.since)), "$muted"))
    pairs = [(label, Content(text)) for label, text in _facts_of(status) if text]
    lines = [name, *labelled([*pairs, *_use(status), *_health(status)])]
    if task is not None:
        lines += [Content(""), *_task(task, status.environment.name)]
    if checkup is not None:
        lines += [Content(""), *_checkup(checkup, status.environment.name)]
    return Content("\n").join(lines)


def _facts_of(status: EnvironmentStatus) -> Iterator[tuple[str, str]]:
    environment, facts = status.environment, status.facts
    yield _("way"), " · ".join(line(piece) for piece in _way(environment) if piece)
    yield _("agent"), " · ".join(piece for piece in _agent(status) if piece)
    row = environment_row(status)
    gpus = [row.gpus, _("simulated") if environment.simulated else "", _driver_words(facts)]
    yield _("GPU"), " · ".join(piece for piece in gpus if piece)
    if facts is not None:
        yield _("software"), " · ".join(line(piece) for piece in _software(facts) if piece)
        yield _("machine"), " · ".join(line(piece) for piece in _machine(facts) if piece)
    place = [environment.zone, kind_name(environment.kind or ""), environment.image]
    yield _("zone"), " · ".join(line(piece) for piece in place if piece)


def _reached(reach: Reach) -> str:
    match reach:
        case Reach.SSH:
            return _("by SSH: {way}")
        case Reach.EXEC:
            return _("by a command: {way}")
        case Reach.LOCAL:
            return _("without SSH: {way}")


def _way(environment: Environment) -> Iterator[str]:
    yield _reached(environment.reach).format(way=environment.short_way)
    if environment.user:
        yield _("as {user}").format(user=environment.user)
    if environment.proxy_jump:
        yield _("through {host}").format(host=environment.proxy_jump)
    if environment.address and environment.address != environment.host:
        yield _("training address {address}").format(address=environment.address)


def _agent(status: EnvironmentStatus) -> Iterator[str]:
    words, _part = agent_words(status)
    ours = dtagent.__version__
    if status.is_foreign:
        yield _("speaks no protocol that this dttui does")
    elif not status.agent_version:
        is_none = status.state is EnvironmentState.NO_AGENT
        yield _("none; d deploys {version}").format(version=ours) if is_none else _("not known")
    elif words == status.agent_version:
        yield _("{version}, that of this dttui").format(version=words)
    elif is_newer(ours, status.agent_version):
        yield _("{version}, older than {ours} of this dttui: u upgrades").format(version=words.split()[0], ours=ours)
    else:
        yield _("{version}, newer than {ours} of this dttui").format(version=words.split()[0], ours=ours)
    if status.protocol is not None:
        yield _("protocol {version}").format(version=status.protocol)
    yield _heard(status)


def _heard(status: EnvironmentStatus) -> str:
    if status.heard_at is None:
        return _("not heard since the start; the rest is as it was last known") if status.facts is not None else ""
    silence_s = elapsed_s(status.heard_at)
    if silence_s < NOW_S:
        return _("heard now")
    return _("heard {age} ago, at {time}").format(age=symbols.age(silence_s), time=moment(status.heard_at))


def _python(facts: HostFacts | None) -> PythonFacts | None:
    return next(iter(facts.pythons), None) if facts is not None else None


def _driver(facts: HostFacts | None) -> str:
    if facts is None or not facts.driver_version:
        return ""
    return line(" · ".join(piece for piece in (facts.driver_version, facts.cuda_version) if piece))


def _driver_words(facts: HostFacts | None) -> str:
    if facts is None or not facts.driver_version:
        return ""
    driver = _("driver {version}").format(version=line(facts.driver_version))
    if not facts.cuda_version:
        return driver
    return driver + " · " + _("CUDA up to {version}").format(version=line(facts.cuda_version))


def _software(facts: HostFacts) -> Iterator[str]:
    python = _python(facts)
    if python is None:
        return
    if not python.version:
        yield agent_text(python.error, python.error_notice)
        return
    yield _("Python {version}").format(version=python.version)
    torch = python.packages.get("torch")
    built = _("CUDA {version}").format(version=python.torch_cuda) if python.torch_cuda else ""
    yield (f"torch {torch} ({built})" if built else f"torch {torch}") if torch else _("no torch")
    yield python.executable or python.path


def _machine(facts: HostFacts) -> Iterator[str]:
    yield _("{count} CPUs").format(count=facts.cpu_count)
    yield facts.cpu_model
    yield _("memory {size}").format(size=symbols.mebibytes(facts.memory_total_mib))
    yield facts.os
    yield _("up {duration}").format(duration=symbols.duration(elapsed_s(facts.booted_at)))


def _use(status: EnvironmentStatus) -> Iterator[tuple[str, Content]]:
    if status.sample is None:
        return
    label = _("in use")
    for occupant in status.occupants:
        gpus = ", ".join(map(str, occupant.gpus))
        where = _("GPU {indices}: ").format(indices=gpus) if gpus else ""
        yield label, Content(where + line(occupant_text(occupant)))
        label = ""
    if not status.occupants:
        yield label, Content.styled(_("by nobody"), "$muted")


def _health(status: EnvironmentStatus) -> Iterator[tuple[str, Content]]:
    environment, facts, sample = status.environment, status.facts, status.sample
    problems: list[str] = []
    if sample is not None:
        problems += [
            f"GPU {gpu.index}: {line(agent_text(gpu.error, gpu.error_notice))}" for gpu in sample.gpus if gpu.error
        ]
    elif status.reason:
        said = line(without_node(status.reason, environment.name))
        tells_key = status.state is EnvironmentState.NO_AGENT  # The line of the agent does, of this screen.
        problems.append(f"{said} → {_remedy(status.hint)}" if status.hint and not tells_key else said)
    if facts is not None and facts.gpu_note and not environment.simulated:
        problems.append(line(agent_text(facts.gpu_note, facts.gpu_note_notice)))
    if facts is not None and facts.logout_kills:
        problems.append(_("a logout there ends jobs"))
    if problems:
        yield _("health"), Content("; ".join(problems)).stylize("$environment-unreachable")
    elif sample is not None:
        yield _("health"), Content.assemble(("✓ ", "bold $success"), _("no GPU reports an error; c looks closer"))


def _told(task: HostTask | None, name: str, now: float) -> tuple[str, str, Part | str]:
    """Return what a row says of what is done on a host, or was a moment ago, and that in a word or two."""
    if task is None or (not task.is_under_way and elapsed_s(task.at, now) > TASK_S):
        return "", "", Part.PLAIN
    symbol, colour = _STAGES[task.stage]
    told = _("{action}: {text}").format(action=action_word(task.action), text=_text_of(task, name))
    brief = line(task.outcome) or told
    if task.stage is TaskStage.FAILED and not task.outcome:
        brief = _("{outcome}: {notes}").format(outcome=agent_outcome_name("failed"), notes=action_word(task.action))
    return f"{symbol} {told}", f"{symbol} {brief}", colour


def _text_of(task: HostTask, name: str) -> str:
    """Return what is told of a host without its name, which stands beside it."""
    return _remedy(without_node(task.text, name)).removeprefix(f"{name}: ")


def _remedy(text: str) -> str:
    """Return a remedy as this screen says it."""
    return with_keys(line(text), on_hosts=True)


_STAGES = {
    TaskStage.UNDER_WAY: ("◔", "state-starting"),
    TaskStage.DONE: ("✓", "state-succeeded"),
    TaskStage.FAILED: ("✗", "state-failed"),
}


def _task(task: HostTask, name: str) -> Iterator[Content]:
    symbol, colour = _STAGES[task.stage]
    head = _("{action}, {time}: ").format(action=action_word(task.action), time=symbols.time_of_day(task.at))
    told, hint = _text_of(task, name), symbols.hint(_remedy(task.hint))
    yield Content.assemble((f"{symbol} ", f"bold ${colour}"), (head, "$muted"), told, (hint, "$muted"))


def _checkup(found: Checkup, name: str) -> Iterator[Content]:
    """Yield what a check-up found on a host, then what is wrong beside the hosts."""
    own = found.of(Site.HOST, name)
    if all(item.finding.severity is Severity.INFO for item in own):
        yield Content.assemble(("✓ ", "bold $success"), _("doctor: nothing is wrong on this host"))
    else:
        yield Content.styled(_("doctor: on this host"), "bold")
    yield from _troubles(own, name)
    for site, title in ((Site.LOGIN, _("doctor: on the login node")), (Site.BETWEEN, _("doctor: between hosts"))):
        troubles = [item for item in found.of(site) if item.finding.severity is not Severity.INFO]
        if troubles:
            yield Content.styled(title, "bold")
            yield from _troubles(troubles, "")


def _troubles(troubles: Sequence[Trouble], name: str) -> Iterator[Content]:
    for item in troubles:
        finding = item.finding
        message = without_node(finding.message, name) if name else finding.message
        yield finding_line(finding.model_copy(update={"message": message, "hint": _remedy(finding.hint)}))
        for command in item.commands:
            told = _remedy(command.line)
            is_key = told != line(command.line)
            yield Content.styled(f"    → {told}" if is_key else f"    {line(command.host)}$ {told}", "$primary")


_ORDER = {symbol: rank for rank, symbol in enumerate("▲⊘○◇◌◐●")}
"""What a person has to see to comes first."""
_SORTS: dict[str, Callable[[HostRow], Any] | None] = {
    "": None,
    "name": lambda row: row.name.casefold(),
    "state": lambda row: (_ORDER.get(row.state.symbol, 9), row.since),
    "agent": lambda row: (row.agent_part is Part.PLAIN, row.agent),
    "gpus": lambda row: -row.gpu_count,
    "heard": lambda row: None if row.heard_at is None else -row.heard_at,
    "zone": lambda row: row.zone.casefold() or None,
    "torch": lambda row: row.torch or None,
    "driver": lambda row: row.driver or None,
    "python": lambda row: row.python or None,
    "way": lambda row: row.way.casefold(),
}
"""Column by which hosts are sorted, empty for the order of the inventory, and its key."""
HOST_SORTS = tuple(_SORTS)


def host_order(rows: Mapping[str, HostRow], wanted: Filter, sort: str, *, is_reversed: bool) -> list[str]:
    """Return the keys of the hosts that a filter takes, in the order of a column."""
    found = [row for row in rows.values() if wanted.takes(row)]
    key = _SORTS[sort]
    if key is None:
        return [row.key for row in (reversed(found) if is_reversed else found)]
    return [row.key for row in ordered(found, key, is_reversed=is_reversed)]


def hosts_text(names: Sequence[str]) -> str:
    """Return hosts in a row, of many the first ones."""
    return line(listed(names, MOST_NAMES))
