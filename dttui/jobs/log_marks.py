"""The lines that dttui itself writes into copies of logs, told in the language of whoever reads them."""

from __future__ import annotations

import functools
import re

from dttui.i18n import N_, _, in_all_languages

_MARKS = (
    N_("… {count:,} bytes of this log were not kept on the host …"),
    N_("… {count:,} bytes of this log were not kept in this copy …"),
    N_("… the script replaced this file; it goes on from the beginning of the new one …"),
    N_("… the rest of this log was not fetched: the stop was forced …"),
    N_("… if there was more of this log, the host has not kept it …"),
    N_("… torchrun has started the ranks again: from here on by a new process …"),
    N_("… this file system cannot drop the middle of a file: from here on only the end is kept …"),
)
_COUNT = "{count:,}"


def retold(line: str) -> str:
    """Return a line of a log as it is; one that dttui wrote, in the language chosen now."""
    for mark, pattern in _patterns() if line.startswith("…") else ():
        if found := pattern.fullmatch(line.rstrip()):
            text = _(mark)
            return text.format(count=int(found["count"].replace(",", ""))) if _COUNT in mark else text
    return line


def is_mark(line: str) -> bool:
    """Whether a line of a log is one that dttui wrote."""
    return line.startswith("…") and any(pattern.fullmatch(line.rstrip()) for _mark, pattern in _patterns())


@functools.cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return each mark with how it looks in each language."""
    return tuple(
        (mark, re.compile(re.escape(text).replace(re.escape(_COUNT), r"(?P<count>[0-9][0-9,]{0,30})")))
        for mark in _MARKS
        for text in in_all_languages(mark)
    )
