"""The keys of all screens, found in the classes that have them; and what a person's keymap makes of them."""

from __future__ import annotations

import functools
import pkgutil
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import KEY_NAME_REPLACEMENTS, KEY_TO_UNICODE_NAME, REPLACED_KEYS, Keys
from textual.screen import ModalScreen

from dttui.i18n import N_, _
from dttui.spec import did_you_mean

EVERYWHERE = "app"
"""Group of what goes for every screen."""
DIALOG = "dialog"
"""Group of what goes for every dialog, which hears no keys of screens."""
GROUPS = {
    EVERYWHERE: N_("everywhere"),
    "compose": N_("compose"),
    "list": N_("environments"),
    "gpus": N_("GPUs of a host"),
    "findings": N_("findings"),
    "sections": N_("sections"),
    "guide": N_("guide"),
    "text": N_("job as text"),
    "preview": N_("preview"),
    "plan": N_("plan"),
    "estimate": N_("estimate"),
    "checks": N_("checks"),
    "bench": N_("links"),
    "run": N_("job"),
    "nodes": N_("nodes"),
    "plots": N_("plots"),
    "log": N_("logs"),
    "events": N_("events"),
    "replay": N_("replay"),
    "stacks": N_("stacks"),
    "jobs": N_("jobs"),
    "compare": N_("comparison"),
    "hosts": N_("hosts"),
    "rows": N_("rows"),
    "pick": N_("import of hosts"),
    "settings": N_("settings"),
    "keymap": N_("keymap"),
    DIALOG: N_("dialogs"),
    "section": N_("fields"),
    "fold": N_("folded fields"),
    "items": N_("lists of a job"),
    "open": N_("open a job"),
    "prompt": N_("questions of hosts"),
    "help": N_("keys"),
    "jump": N_("jump"),
}
"""What the first part of an id is called: the place where its command is."""
_WITHIN = {
    "list": "compose",
    "findings": "compose",
    "sections": "compose",
    "plan": "preview",
    "log": "run",
    "events": "run",
    "nodes": "run",
    "plots": "run",
    "replay": "run",
    "rows": "hosts",
    "fold": "section",
}
"""Groups whose keys hear beside those of another."""
_MODIFIERS = {"ctrl", "shift", "alt", "super", "hyper", "meta"}
_NAMED = {key.value.rpartition("+")[2] for key in Keys}


@dataclass(frozen=True)
class KnownBinding:
    """One command, with all its keys."""

    binding: Binding
    """The first key of it."""
    keys: tuple[str, ...]
    owner: type[DOMNode]
    """Class that has it."""

    @property
    def id(self) -> str:
        """What a keymap calls it."""
        return self.binding.id or ""

    @property
    def group(self) -> str:
        """First part of its id."""
        return group_of(self.id)


@dataclass(frozen=True)
class KeymapFault:
    """An entry of a keymap that cannot be used."""

    id: str
    message: str
    hint: str


def group_of(name: str) -> str:
    """Return the group that an id is of."""
    return name.partition(".")[0]


def group_name(group: str) -> str:
    """Return what a group is called."""
    return _(GROUPS.get(group, group))


def place_of(group: str) -> int:
    """Return where a group comes among all of them."""
    return [*GROUPS].index(group) if group in GROUPS else len(GROUPS)


def declared() -> Iterator[tuple[type[DOMNode], Binding]]:
    """Yield every binding that a class of the screen declares; all of its modules are imported for it."""
    for module in pkgutil.walk_packages(import_module("dttui.tui").__path__, "dttui.tui."):
        import_module(module.name)
    for owner in _subclasses(DOMNode):
        if owner.__module__.startswith("dttui.tui."):
            for binding in Binding.make_bindings(vars(owner).get("BINDINGS", ())):
                yield owner, binding


@functools.cache
def all_bindings() -> Mapping[str, KnownBinding]:
    """Return every command that has an id."""
    found: dict[str, KnownBinding] = {}
    for owner, binding in declared():
        _add(found, owner, binding)
    return found


@functools.cache
def bindings_of(owner: type[DOMNode]) -> tuple[KnownBinding, ...]:
    """Return the commands of a class, after those of the classes that it is made from."""
    found: dict[str, KnownBinding] = {}
    for part in reversed(owner.__mro__):
        for binding in Binding.make_bindings(vars(part).get("BINDINGS", ())):
            _add(found, owner, binding)
    return tuple(found.values())


def _add(found: dict[str, KnownBinding], owner: type[DOMNode], binding: Binding) -> None:
    if binding.id is not None and not binding.system:
        first = found.get(binding.id)
        keys = (*(first.keys if first is not None else ()), binding.key)
        found[binding.id] = KnownBinding(first.binding if first is not None else binding, keys, owner)


def checked_keymap(
    wanted: Mapping[str, str], known: Mapping[str, KnownBinding]
) -> tuple[dict[str, str], list[KeymapFault]]:
    """Return what of a keymap can be used, and what is wrong with the rest: each key does one thing at a place."""
    faults: list[KeymapFault] = []
    good: dict[str, str] = {}
    for name, keys in wanted.items():
        if name not in known:
            hint = did_you_mean(name, known) or _("The screen of settings lists them.")
            faults.append(KeymapFault(name, _("there is no command of this id"), hint))
        elif (bad := next((key for key in split_keys(keys) if not _is_key(key)), None)) is not None:
            hint = _("Write a character, or a name such as enter, f2, ctrl+g.")
            faults.append(KeymapFault(name, _("{key} is no key").format(key=bad or '""'), hint))
        else:
            good[name] = ",".join(split_keys(keys))
    while (clash := _clash(good, known)) is not None:
        name, key, other = clash
        message = _("{key} already does: {what} ({id})").format(
            key=key, what=_(known[other].binding.description), id=other
        )
        faults.append(
            KeymapFault(name, message, _("Choose another key, or give {id} another one, too.").format(id=other))
        )
        del good[name]
    return good, faults


def keys_of(known: KnownBinding, keymap: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys that a command has by a keymap, or by itself."""
    return tuple(split_keys(keymap[known.id])) if known.id in keymap else known.keys


def split_keys(text: str) -> list[str]:
    """Return the keys of a list of them, by the names that they are known by: `question_mark` for `?`."""
    return [_name_of(key.strip()) for key in (text.split(",") if text.strip() != "," else [text])]


def _clash(keymap: Mapping[str, str], known: Mapping[str, KnownBinding]) -> tuple[str, str, str] | None:
    """Return an entry whose key does something else at the same place: its id, the key, and the other's id."""
    for name in reversed(list(keymap)):
        mine = known[name]
        for key in set(keys_of(mine, keymap)) - set(mine.keys):
            for other in known.values():
                if other.id != name and _meet(mine, other) and key in keys_of(other, keymap):
                    return name, key, other.id
    return None


def _meet(one: KnownBinding, other: KnownBinding) -> bool:
    """Whether two commands may be heard at the same time, and do different things."""
    if one.owner is other.owner and one.binding.action == other.binding.action:
        return False
    places = [_WITHIN.get(item.group, item.group) for item in (one, other)]
    are_modal = [item.group == DIALOG or issubclass(item.owner, ModalScreen) for item in (one, other)]
    return (
        places[0] == places[1] or (DIALOG in places and all(are_modal)) or (EVERYWHERE in places and not any(are_modal))
    )


def _name_of(key: str) -> str:
    if len(key) != 1 or key.isalnum():
        return key
    name = unicodedata.name(key, key).lower().replace("-", "_").replace(" ", "_")
    return KEY_NAME_REPLACEMENTS.get(name, name)


def _is_key(key: str) -> bool:
    *modifiers, last = key.split("+") if key != "+" else [key]
    if not set(modifiers) <= _MODIFIERS or not last:
        return False
    if len(last) == 1 or last in _NAMED or last in REPLACED_KEYS or last in KEY_TO_UNICODE_NAME:
        return True
    try:
        return bool(unicodedata.lookup(last.replace("_", " ").upper()))
    except KeyError:
        return False


def _subclasses(of: type[DOMNode]) -> Iterator[type[DOMNode]]:
    seen: set[type[DOMNode]] = set()
    waiting: list[type[DOMNode]] = [of]
    while waiting:
        for item in waiting.pop().__subclasses__():
            if item not in seen:
                seen.add(item)
                waiting.append(item)
                yield item
