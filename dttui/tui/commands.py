"""Commands are declared once, as bindings; footer, help screen and command palette derive from those of the screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from textual.app import App
from textual.binding import ActiveBinding, Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import Screen

from dttui.i18n import N_ as N_
from dttui.i18n import _, in_all_languages
from dttui.tui.bindings import KnownBinding, all_bindings, bindings_of, group_name, group_of, keys_of

_HERE = 10.0
"""By how much a command of the screen comes before one of another."""


@dataclass(frozen=True)
class ScreenCommand:
    """One thing a person can do on a screen, as it is shown."""

    key: str
    """As a person reads it: `^l`."""
    binding: Binding
    """The first key of it."""
    name: str
    explanation: str
    action: str
    enabled: bool
    shown: bool
    """Whether it has a place in the line of keys."""
    node: DOMNode
    """Where the action is."""


class HasCommands(Protocol):
    """An app whose keys a person may change, and that shows where a command of another screen is."""

    @property
    def keymap(self) -> Mapping[str, str]:
        """Keys by the id of what they do."""

    async def lead_to(self, group: str, told: str) -> None:
        """Go to the place of a group of commands where there is a way, and say what to do there."""


def commands_of(screen: Screen[object]) -> Iterator[ScreenCommand]:
    """Return what can be done on a screen now, each once: what is nearest to the focus first."""
    seen: set[str] = set()
    focused = screen.focused
    active = _as_declared([item for item in screen.active_bindings.values() if item.binding.id is not None])
    for node, first, enabled, _tooltip in active:
        if first.action in seen or first.system:
            continue
        # Textual itself does not see that a field takes this key as text.
        if first.key == "slash" and focused is not None and focused.check_consume_key("slash", "/"):
            continue
        seen.add(first.action)
        same = [other for owner, other, _enabled, _tip in active if owner is node and other.action == first.action]
        keys = [screen.app.get_key_display(other) for other in same]
        yield _command(first, " ".join(dict.fromkeys(keys)), node, enabled=enabled, shown=first.show)


def all_commands_of(screen: Screen[object]) -> Iterator[ScreenCommand]:
    """Return besides what all else that is to be seen on a screen can do, whatever has the focus."""
    ids: set[str] = set()
    actions: set[tuple[DOMNode, str]] = set()
    for command in commands_of(screen):
        ids.add(command.binding.id or "")
        actions.add((command.node, command.action))
        yield command
    for node in [*_displayed(screen), screen, *([] if screen.is_modal else [screen.app])]:
        for known in bindings_of(type(node)):
            action = known.binding.action
            if known.id in ids or (node, action) in actions:
                continue
            ids.add(known.id)
            actions.add((node, action))
            same = [other for other in bindings_of(type(node)) if other.binding.action == action]
            keys = " ".join(keys_shown(screen.app, other) for other in same)
            enabled = node.check_action(action.partition("(")[0].rpartition(".")[2], ()) is True
            yield _command(known.binding, keys, node, enabled=enabled, shown=False)


def _as_declared(active: list[ActiveBinding]) -> list[ActiveBinding]:
    """Return bindings in the order that their classes have them in; textual has those last whose key was changed."""
    nodes = list(dict.fromkeys(item.node for item in active))
    places = {
        (node, known.id): (number, place)
        for number, node in enumerate(nodes)
        for place, known in enumerate(bindings_of(type(node)))
    }
    return sorted(active, key=lambda item: places.get((item.node, item.binding.id or ""), (len(nodes), 0)))


def _command(binding: Binding, key: str, node: DOMNode, *, enabled: bool, shown: bool) -> ScreenCommand:
    return ScreenCommand(
        key=key,
        binding=binding,
        name=_(binding.description),
        explanation=_(binding.tooltip),
        action=binding.action,
        enabled=enabled,
        shown=shown,
        node=node,
    )


def keys_shown(app: App[object], known: KnownBinding) -> str:
    """Return the keys of a command as a person reads them, by their keymap."""
    keys = keys_of(known, cast(HasCommands, app).keymap)
    return " ".join(app.get_key_display(Binding(key, known.binding.action)) for key in keys)


def by_group(commands: Sequence[ScreenCommand]) -> dict[str, list[ScreenCommand]]:
    """Return commands by the group that each is of, in the order in which groups come."""
    groups: dict[str, list[ScreenCommand]] = {}
    for command in commands:
        groups.setdefault(group_of(command.binding.id or ""), []).append(command)
    return groups


def _displayed(node: DOMNode) -> Iterator[DOMNode]:
    """Yield what is below a node and is shown."""
    for child in node.children:
        if child.display:
            yield child
            yield from _displayed(child)


Run = Callable[[], Awaitable[None] | None]


@dataclass(frozen=True)
class _Offer:
    """A line of the palette."""

    name: str
    key: str
    group: str
    explanation: str
    searched: str
    """All its words, in every language."""
    run: Run
    is_here: bool

    @property
    def line(self) -> Content:
        return Content.assemble(self.name, (f"  {self.key}", "$text-muted")) if self.key else Content(self.name)

    @property
    def help(self) -> str:
        return f"{self.group} · {self.explanation}" if self.explanation else self.group


class ScreenCommands(Provider):
    """Offers in the palette what can be done on the screen, and after that where all else is done."""

    async def discover(self) -> Hits:
        """Offer all of them before anything is typed, group by group."""
        for offer in self._offers():
            yield DiscoveryHit(offer.line, offer.run, text=offer.name, help=offer.help)

    async def search(self, query: str) -> Hits:
        """Offer those that have all the words that were typed, in either language; of the screen also what is near."""
        matcher = self.matcher(query)
        words = query.casefold().split()
        for offer in self._offers():
            name = offer.name.casefold()
            if all(word in name for word in words):
                score = 3.0
            elif all(word in offer.searched for word in words):
                score = 2.0
            else:
                score = min(matcher.match(offer.name), 1.0) if offer.is_here else 0.0
            if score > 0:
                score += _HERE * offer.is_here - len(offer.name) / 1000
                yield Hit(score, offer.line, offer.run, text=offer.name, help=offer.help)

    def _offers(self) -> Iterator[_Offer]:
        """Yield what can be done here, what goes for every screen, and what is done on others."""
        here = list(all_commands_of(self.screen))
        for group, commands in by_group(here).items():
            for command in commands:
                if command.enabled:
                    yield self._offer(command.binding, command.key, group, self._runner(command), is_here=True)
        for name, explanation, run, _discover in self.app.get_system_commands(self.screen):
            searched = f"{name} {explanation}".casefold()
            yield _Offer(name, "", group_name("app"), explanation, searched, run, is_here=True)
        done = {command.binding.id for command in here if command.enabled}
        for known in all_bindings().values():
            if known.id not in done:
                key = keys_shown(self.app, known)
                yield self._offer(known.binding, key, known.group, self._leader(known, key), is_here=False)

    def _offer(self, binding: Binding, key: str, group: str, run: Run, *, is_here: bool) -> _Offer:
        messages = (binding.description, binding.tooltip)
        told = [text for message in messages if message for text in in_all_languages(message)]
        searched = " ".join([*told, group_name(group), group, key]).casefold()
        return _Offer(_(binding.description), key, group_name(group), _(binding.tooltip), searched, run, is_here)

    def _runner(self, command: ScreenCommand) -> Run:
        async def run() -> None:
            await self.app.run_action(command.action, default_namespace=command.node)

        return run

    def _leader(self, known: KnownBinding, key: str) -> Run:
        async def run() -> None:
            text = _("{key} does it there: {what}")
            what = _(known.binding.tooltip or known.binding.description)
            await cast(HasCommands, self.app).lead_to(known.group, text.format(key=key, what=what))

        return run
