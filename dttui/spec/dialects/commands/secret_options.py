"""Options of a program whose values look like secrets: those are readable in the job file, and on the hosts."""

from __future__ import annotations

import re
from itertools import pairwise

from dttui.i18n import _
from dttui.spec.dialects.commands.launch import PROGRAM, Launch
from dttui.spec.dialects.shell.command_words import Word
from dttui.spec.dialects.translation import Translation
from dttui.spec.secret_names import is_secret

_SECRET = re.compile(
    r"(?=.*[0-9])(?=.*[A-Za-z])[\w+=-]{12,}|[\w+=-]{20,}"
    r"|(?:sk|hf|gh[opsu]|glpat|xox[abp])[-_][\w+=./-]{8,}"
    r"|(?![./~])(?=.*[0-9])(?=.*[A-Z])(?=.*[a-z])(?!.*\.[a-z]{2,4}$)[\w+=./-]{16,}"
)
"""What a token or a key may look like, where an option is called so; with `.` or `/` in it it is often a path."""
_ALWAYS = re.compile(r"password|passwd|secret", re.IGNORECASE)
"""In the name of an option whose value is one in any form."""
_NAMES_A_PLACE = re.compile(r"_(?:file|path|dir|name|id)$", re.IGNORECASE)
_LONGEST = 1_000


def note_secrets(translation: Translation, launch: Launch) -> None:
    """Name options, and words such as `wandb.api_key=…`, whose values look like secrets."""
    found = []
    for word, following in pairwise((*launch.arguments, Word("", launch.mark))):
        option, separator, value = word.text.partition("=")
        if not separator and not option.startswith("-"):
            continue
        has_hole = word.holes if separator else following.holes
        value = value if separator else following.text
        name = option.lstrip("-+").rpartition(".")[2].replace("-", "_")
        if not has_hole and is_secret(name) and not _NAMES_A_PLACE.search(name) and _is_like_secret(name, value):
            found.append(option)
    if found:
        message = _(
            "what is given to {options} may be secret, and is readable in the job file and in commands on hosts"
        )
        hint = _("Have the script take it from a variable that run.secrets names.")
        message = message.format(options=", ".join(dict.fromkeys(found)))
        translation.note((PROGRAM,), message, hint, is_warning=True)


def _is_like_secret(name: str, value: str) -> bool:
    if _ALWAYS.search(name):
        return bool(value) and not value.startswith("-")
    return _SECRET.fullmatch(value[:_LONGEST]) is not None
