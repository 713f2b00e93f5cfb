"""Commands are declared once, as bindings; footer, help screen and command palette derive from those of the screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.dom import DOMNode
from textual.screen import Screen

from dttui.i18n import _


def N_(message: str) -> str:
    """Mark a message for translation. Bindings are made at import; their texts are translated when shown."""
    return message


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


def commands_of(screen: Screen[object]) -> Iterator[ScreenCommand]:
    """Return what can be done on a screen now, each once: what is nearest to the focus first."""
    seen: set[str] = set()
    focused = screen.focused
    for node, binding, enabled, tooltip in screen.active_bindings.values():
        if binding.id is None or binding.action in seen or binding.system:
            continue
        # Textual itself does not see that a field takes this key as text.
        if binding.key == "slash" and focused is not None and focused.check_consume_key("slash", "/"):
            continue
        seen.add(binding.action)
        keys = [
            screen.app.get_key_display(other)
            for owner, other, _enabled, _tooltip in screen.active_bindings.values()
            if owner is node and other.action == binding.action
        ]
        yield ScreenCommand(
            key=" ".join(dict.fromkeys(keys)),
            binding=binding,
            name=_(binding.description),
            explanation=_(tooltip),
            action=binding.action,
            enabled=enabled,
            shown=binding.show,
            node=node,
        )


class ScreenCommands(Provider):
    """Offers the commands of the screen in the command palette."""

    async def discover(self) -> Hits:
        """Offer all of them before anything is typed."""
        for command in commands_of(self.screen):
            if command.enabled:
                yield DiscoveryHit(command.name, self._runner(command), help=command.explanation or None)

    async def search(self, query: str) -> Hits:
        """Offer those that match what was typed."""
        matcher = self.matcher(query)
        for command in commands_of(self.screen):
            score = matcher.match(command.name)
            if score > 0 and command.enabled:
                yield Hit(
                    score, matcher.highlight(command.name), self._runner(command), help=command.explanation or None
                )

    def _runner(self, command: ScreenCommand) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await self.app.run_action(command.action, default_namespace=command.node)

        return run
