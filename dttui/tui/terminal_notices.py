"""How a terminal is told to call a person: its bell, and the sequences by which it shows a notification."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dttui.sanitize import clean
from dttui.tui.settings import Channel

MOST = 200
"""Characters of a notification."""
_BELL = "\a"
_OSC9_TERMINALS = ("iterm", "wezterm", "ghostty", "kitty", "foot", "windows")
"""Parts of the names of terminals that take OSC 9."""
_OSC777_TERMINALS = ("rxvt", "vte", "konsole", "contour")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def sequence(title: str, text: str, *, channel: Channel, bell: bool, environment: Mapping[str, str]) -> str:
    """Return what to write to the terminal; nothing of `title` and `text` drives it.

    Args:
        title: of what.
        text: what is told.
        channel: how; `auto` by the terminal's name.
        bell: whether the bell rings.
        environment: variables, which tell the terminal's name.
    """
    wanted = channel_of(environment) if channel == "auto" else channel
    told = _wrapped(_notification(wanted, _plain(title), _plain(text)), environment)
    return told + (_BELL if bell else "")


def channel_of(environment: Mapping[str, str]) -> Channel:
    """Return by what a terminal is known to notify. What runs in tmux or screen does not know what is around them."""
    names = ("TERM_PROGRAM", "LC_TERMINAL", "TERM", "TERMINAL_EMULATOR")
    told = " ".join(environment.get(name, "") for name in names).casefold()
    if environment.get("WT_SESSION") or environment.get("KITTY_WINDOW_ID"):
        return "osc9"
    if any(name in told for name in _OSC9_TERMINALS):
        return "osc9"
    if environment.get("VTE_VERSION") or any(name in told for name in _OSC777_TERMINALS):
        return "osc777"
    return "none"


def _notification(channel: Channel, title: str, text: str) -> str:
    if channel == "osc9":
        return f"\x1b]9;{title}: {text}{_BELL}"
    if channel == "osc777":
        return f"\x1b]777;notify;{title.replace(';', ',')};{text}{_BELL}"
    return ""


def _wrapped(told: str, environment: Mapping[str, str]) -> str:
    """Have tmux hand it on to the terminal that it runs in, where that is allowed there."""
    if not told or not environment.get("TMUX"):
        return told
    return f"\x1bPtmux;{told.replace(chr(27), chr(27) * 2)}\x1b\\"


def _plain(text: str) -> str:
    """Return it on one line, without a character that could end the sequence or begin another."""
    return " ".join(_CONTROL.sub(" ", clean(text)).split())[:MOST]
