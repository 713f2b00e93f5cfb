"""Containers that launchers start a program in: their image, and what of the host is seen inside."""

from __future__ import annotations

import re

from dttui.i18n import _
from dttui.spec.dialects.commands.launch import GivenValue, Launch
from dttui.spec.dialects.shell.command_words import Word
from dttui.spec.text import MOUNT

_FIRST_MARK = 0xE000
"""Of characters that stand for what is not known while a list is parted."""


def take_image(launch: Launch, said: GivenValue, engine: str) -> None:
    """Take the image, and what starts it; enroot's `registry#image` is another spelling of `registry/image`."""
    word = said.word
    launch.settings["run.container.image"] = GivenValue(
        said.key, Word(word.text.replace("#", "/"), word.mark, word.holes)
    )
    launch.settings["run.container.engine"] = launch.enter("engine", Word(engine, word.mark))


def take_mounts(launch: Launch, said: GivenValue) -> None:
    """Take `/data:/data:ro,/scratch`; what is sent with the job is seen inside without it."""
    left: list[str] = []
    unknown: list[str] = []
    marks = {chr(_FIRST_MARK + index): hole.text for index, hole in enumerate(said.word.holes)}
    text = said.text
    for mark, hole in marks.items():
        text = text.replace(hole, mark)
    for part in text.split(","):
        source, _colon, rest = part.partition(":")
        inside, _colon, given = rest.partition(":")
        flags = [flag for flag in given.split("+") if flag]
        access = "ro" if "ro" in flags else "rw" if "rw" in flags else ""
        mount = f"{source}:{inside or source}" + (f":{access}" if access else "")
        if any(mark in part for mark in marks) or not re.fullmatch(MOUNT, mount):
            left.append("".join(marks.get(character, character) for character in part))
            continue
        launch.mounts.append((mount, said))
        unknown += [flag for flag in flags if flag not in ("ro", "rw")]
    if left:
        reason = _("only directories with absolute paths are mounted: {mounts}").format(mounts=", ".join(left))
        hint = _("What is sent is seen inside without it; others go under run.container.mounts.")
        launch.leave_out(said, reason, hint, is_warning=True)
    if unknown:
        reason = _("a job's mounts are read-only or not, and nothing else: {flags}")
        launch.leave_out(said, reason.format(flags=", ".join(dict.fromkeys(unknown))), is_warning=True)
