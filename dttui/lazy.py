"""Names of a package that are imported at their first use, so that who wants one of them pays for no others."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module

_IMPORT = re.compile(r"^    from (\S+) import (\w+) as \2$", re.MULTILINE)


def first_use(package: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a package (PEP 562): it has what the package imports `if TYPE_CHECKING`.

    Each of those imports is a line, `from home import name as name`, which is how type checkers take it for the
    package's own.
    """
    homes: dict[str, str] = {}

    def look_up(name: str) -> object:
        module = sys.modules[package]
        if not homes and (spec := module.__spec__) is not None and spec.loader is not None:
            homes.update((found[2], found[1]) for found in _IMPORT.finditer(spec.loader.get_source(package) or ""))  # type: ignore[attr-defined]
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        value = getattr(import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return look_up
