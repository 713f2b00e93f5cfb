"""Environment variables that documents give: plain ones, those of the person who starts it, and secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dttui.i18n import _
from dttui.spec.dialects.translation import Translation
from dttui.spec.problems import PathKey, shown
from dttui.spec.secret_names import is_secret
from dttui.spec.text import ENV_NAME

_RANKS = frozenset(
    ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES", "NPROC_PER_NODE"]
)


class JobVariables:
    """The variables of one document, as they are carried over."""

    def __init__(self, translation: Translation, given: Mapping[str, str]) -> None:
        self._translation = translation
        self._given = given
        self.values: dict[str, str] = {}
        """Those whose values are known, by name."""
        self._secrets: list[tuple[str, PathKey]] = []

    def give(self, name: object, value: object, origin: PathKey) -> None:
        """Carry one over.

        Args:
            name: of it.
            value: its text or number; `None` where whoever starts it gives it.
            origin: where the document says it.
        """
        translation = self._translation
        translation.use(origin)
        value = self._given.get(name, value) if isinstance(name, str) else value
        if not isinstance(name, str) or not re.fullmatch(ENV_NAME, name):
            message = _("not carried over: {name} is no name of a variable").format(name=shown(name))
            translation.note(origin, message, is_warning=True)
        elif isinstance(value, (Mapping, tuple)):
            message = _("not carried over: where its value comes from is not known here")
            translation.note(origin, message, _("Write run.env.{name}.").format(name=name), is_warning=True)
        elif value is None:
            self.ask(name, origin)
        elif is_secret(name):
            self.hide(name, origin)
        elif name not in _RANKS:
            text = value if isinstance(value, str) else translation.source.written(origin) or str(value)
            self.values[name] = text
            translation.put(("run", "env", name), text, origin)

    def ask(self, name: str, origin: PathKey) -> None:
        """Have one come from dttui's own environment, as whoever starts the job gives it."""
        self._translation.use(origin)
        self._secrets.append((name, origin))

    def hide(self, name: str, origin: PathKey) -> None:
        """Carry the name of a secret over, and not its value."""
        message = _("carried over as a name under run.secrets, without its value")
        self._translation.note(origin, message, _("Export it before starting dttui."), is_warning=True)
        self.ask(name, origin)

    def finish(self) -> None:
        """Put the names of what is asked for into the job."""
        if self._secrets:
            names = tuple(dict.fromkeys(name for name, _origin in self._secrets))
            self._translation.put(("run", "secrets"), names, self._secrets[0][1])
