"""Containers that launchers start a program in: their image, and what of the host is seen inside."""

from __future__ import annotations

import re

from dttui.i18n import _
from dttui.spec.dialects.commands.launch import GivenValue, Launch
from dttui.spec.dialects.shell.command_words import Word
from dttui.spec.text import MOUNT


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
    for part in said.text.split(","):
        source, _colon, rest = part.partition(":")
        inside, _colon, flags = rest.partition(":")
        mount = f"{source}:{inside or source}" + (f":{flags}" if flags in ("ro", "rw") else "")
        if said.is_open or not re.fullmatch(MOUNT, mount):
            left.append(part)
        else:
            launch.mounts.append((mount, said))
    if left:
        reason = _("only directories with absolute paths are mounted: {mounts}").format(mounts=", ".join(left))
        hint = _("What is sent is seen inside without it; others go under run.container.mounts.")
        launch.leave_out(said, reason, hint, is_warning=True)
