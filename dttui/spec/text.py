"""Kinds of text that documents hold: what each may look like, and how a message names it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from dttui.i18n import _
from dttui.spec.durations import DURATION

ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
"""The name of an environment variable."""
MODULE_NAME = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
"""A Python module, dotted."""
INTERFACE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,14}$"
"""A network interface, as Linux names them."""
HOST_NAME = r"^[A-Za-z0-9_.:%\[\]][A-Za-z0-9_.:%@\[\]-]*$"
"""A host name, address or ssh alias; never begins with `-`, which ssh would read as an option."""
MOUNT = r"^/[^:,\x00]*:/[^:,\x00]*(:r[ow])?$"
"""A directory of the host and where a container sees it, `/data:/data:ro`."""
IMAGE = r"^[A-Za-z0-9./_][A-Za-z0-9./_:@+-]*$"
"""An image of a container: a name with tag or digest, a path, or an address."""
USER_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
"""A login name."""


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError(_("must not contain a NUL character"))
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        code = next(ord(character) for character in text if not character.isprintable())
        raise ValueError(_("must consist of printable characters: U+{code:04X} is none").format(code=code))
    if not text.strip():
        raise ValueError(_("must not be blank"))
    return text


def _no_option(text: str) -> str:
    if text.startswith("-"):
        raise ValueError(_("must not begin with a dash"))
    return text


Text = Annotated[str, AfterValidator(_no_nul)]
"""A string that can be an argument or a path."""
ProgramPath = Annotated[str, AfterValidator(_no_nul), AfterValidator(_printable), AfterValidator(_no_option)]
"""A path that comes first among arguments, where a dash would make it an option."""
Label = Annotated[str, AfterValidator(_printable)]
"""A name for people to read; anything printable."""


def describe_pattern(pattern: str) -> str:
    """Return what text that matches one of the patterns is called."""
    names = {
        ENV_NAME: _("the name of an environment variable (letters, digits and _)"),
        MODULE_NAME: _("a dotted module name, as python -m takes it"),
        INTERFACE_NAME: _("the name of a network interface, such as eth0"),
        HOST_NAME: _("a host name, an address or an ssh alias"),
        USER_NAME: _("a login name"),
        MOUNT: _("a directory of the host, a colon and where it is seen inside, such as /data:/data:ro"),
        IMAGE: _("the name of an image, such as pytorch/pytorch:2.9.0, or the path of its file"),
        DURATION: _("a duration, such as 30s, 10m or 2h"),
    }
    return names.get(pattern) or _("text that matches {pattern}").format(pattern=pattern)
