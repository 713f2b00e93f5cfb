"""What a document says besides its command: sections told of once, and the directory that it starts in."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from dttui.i18n import _
from dttui.spec.dialects.translation import Leaf, Translated, Translation
from dttui.spec.problems import PathKey, shown

_WORKDIR: PathKey = ("run", "workdir")


def note_section(
    translation: Translation, section: PathKey, message: str, hint: str = "", *, is_warning: bool = False
) -> None:
    """Say something of a section, once, if anything of it has not been looked at."""
    length = len(section)
    if any(origin[:length] == section for origin in translation.left()):
        translation.note(section, message, hint, is_warning=is_warning)
    translation.use(section)


def note_rest(translation: Translation, message: str, hint: str = "") -> None:
    """Say the same of each key at the top that has not been looked at, once for each."""
    for key in dict.fromkeys(origin[0] for origin in translation.left()):
        note_section(translation, (key,), message, hint)


def within_directory(job: Translated, directory: str, origin: PathKey) -> Translated:
    """Return a job that starts in a directory, to which its own is relative."""
    own = job.leaves.get(_WORKDIR)
    if own is not None and str(own.data).startswith(("~", "$", "/")):
        return job
    whole = posixpath.normpath(posixpath.join(directory, str(own.data) if own is not None else "."))
    if whole == ".":
        return job
    leaf = replace(own, data=whole) if own is not None else Leaf(whole, origin)
    return replace(job, leaves={**job.leaves, _WORKDIR: leaf})


def note_image(translation: Translation, origin: PathKey) -> None:
    """Say that the image of a container is not carried over: which engine hosts have is not known here."""
    said = translation.said(origin)
    if isinstance(said, str) and said:
        message = _("not carried over: it runs in the image {image}").format(image=shown(said))
        hint = _("Write run.container with an engine and an image that the hosts have, or install what is in it there.")
        translation.note(origin, message, hint)
    translation.use(origin)
