"""Where the app's own log goes."""

from __future__ import annotations

import contextlib
import logging
import os

from dttui import locations
from dttui.files import make_private


def log_to_file() -> None:
    """Send logs to a file: what is written to the terminal would spoil the screen."""
    handler: logging.Handler = logging.NullHandler()
    path = locations.log_file()
    with contextlib.suppress(OSError):
        make_private(path.parent)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    for other in list(root.handlers):
        root.removeHandler(other)
    root.addHandler(handler)
