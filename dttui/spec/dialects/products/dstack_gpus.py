"""GPUs as dstack writes them: `A100:80GB:8`, `24GB..`, `2..4`, or keys of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dttui.spec.dialects.products.gpus import GpuWish, number, size

_VENDORS = frozenset({"nvidia", "amd", "intel", "google", "tpu", "tenstorrent"})
_RANGE = re.compile(r"([0-9]{0,6})(\.\.)?([0-9]{0,6})")


def gpu_wish(said: object) -> GpuWish | None:
    """Return the GPUs that `resources.gpu` asks of a node, of a range the least; `None` where dstack has no such."""
    if said is None:
        return GpuWish(0)
    if isinstance(said, Mapping):
        return _of_keys(said)
    if isinstance(said, int) and not isinstance(said, bool):
        return _counted(str(said), "", "")
    return _of_text(said) if isinstance(said, str) else None


def _of_keys(said: Mapping[str, object]) -> GpuWish | None:
    names = said.get("name")
    name = names if isinstance(names, str) else str(names[0]) if isinstance(names, tuple) and names else ""
    count = said.get("count", 1)
    if isinstance(count, Mapping):
        count = f"{count.get('min') or ''}..{count.get('max') or ''}"
    memory = said.get("memory")
    if isinstance(memory, Mapping):
        memory = memory.get("min")
    return _counted(str(count), _first(name), size(memory))


def _of_text(text: str) -> GpuWish | None:
    name, memory, count = "", "", ""
    for token in text.replace(" ", "").split(":"):
        if token.casefold() in _VENDORS or not token:
            continue
        if token[0].isalpha():
            name = _first(token)
        elif any(character.isalpha() for character in token):
            memory = size(token) or size(token.removeprefix(".."))
        else:
            count = token
    return _counted(count or "1", name, memory)


def _counted(count: str, name: str, memory: str) -> GpuWish | None:
    match = _RANGE.fullmatch(count)
    if match is None or not (match[1] or match[3]):
        return None
    least = number(match[1]) if match[1] else 1
    if least is None:
        return None
    return GpuWish(least, name, memory, is_least=bool(match[2]) and match[1] != match[3])


def _first(names: str) -> str:
    return names.split(",")[0]
