"""Documents that are much alike, written as the first of each kind and what is different in the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

LONG = 100
"""Characters from which on a text is written once where it stands several times, or as what is different in it."""


def fold(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what `unfold` makes the documents of: it grows by what is different in each, and by nothing else.

    Documents are of one kind that have the same keys, and lists of the same lengths but for those of whole numbers. Of
    each kind there are the `first`, without its long texts, which are in `texts`, each once; and the paths at which any
    of the others is different. `rows` has for each document its kind, and what stands at those paths. Of a long text
    that may be `[BEGIN, MIDDLE, END]`: the middle, and how many characters of the first's go before and after it.

    Args:
        documents: plain JSON values; their keys are texts.
    """
    kinds: dict[tuple[Any, ...], list[list[Any]]] = {}
    places = []
    for document in documents:
        paths: list[Any] = []
        values: list[Any] = []
        _gather(document, (), paths, values)
        members = kinds.setdefault(tuple(paths), [])
        places.append((members, len(members)))
        members.append(values)
    texts: dict[str, int] = {}
    told = []
    rows: dict[int, list[list[Any]]] = {}
    for number, (where, members) in enumerate(kinds.items()):
        first, long = members[0], []
        for path, value in zip(where, first, strict=True):
            if _is_long(value):
                long.append([_keys_of(path), texts.setdefault(value, len(texts))])
        differing = [
            index for index, value in enumerate(first) if any(not _is_same(other[index], value) for other in members)
        ]
        told.append({"first": None, "long": long, "differing": [_keys_of(where[index]) for index in differing]})
        rows[id(members)] = [
            [number, *(_different(values[index], first[index]) for index in differing)] for values in members
        ]
    for document, (members, index) in zip(documents, places, strict=True):
        if index == 0:
            told[rows[id(members)][0][0]]["first"] = _without_long(document)
    return {"texts": list(texts), "kinds": told, "rows": [rows[id(members)][index] for members, index in places]}


def unfold(folded: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the documents in their order; a text that is the same in several is one object.

    Raises:
        ValueError: `fold` never gives that.
    """
    try:
        kinds = []
        for kind in folded["kinds"]:
            first = _copied(kind["first"])
            for path, index in kind["long"]:
                _put(first, path, folded["texts"][index])
            kinds.append((first, kind["differing"], [_at(first, path) for path in kind["differing"]]))
        return [_unfolded(row, *kinds[row[0]]) for row in folded["rows"]]
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no folded documents: {error!r}") from error


def _unfolded(row: Sequence[Any], first: Any, paths: Sequence[Any], before: Sequence[Any]) -> dict[str, Any]:
    if len(row) != len(paths) + 1:
        raise ValueError("a row is longer or shorter than its kind has it")
    document: dict[str, Any] = _copied(first)
    for path, value, told in zip(paths, before, row[1:], strict=True):
        is_part = isinstance(value, str) and isinstance(told, list)
        _put(document, path, value[: told[0]] + told[1] + value[len(value) - told[2] :] if is_part else told)
    return document


def _gather(value: Any, path: tuple[Any, ...], paths: list[Any], values: list[Any]) -> None:
    """Collect where what is in a document stands, and what that is: a value, a list of numbers, or an empty mapping."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _gather(item, (*path, key), paths, values)
    elif isinstance(value, list) and any(type(item) is not int for item in value):
        for index, item in enumerate(value):
            _gather(item, (*path, index), paths, values)
    else:
        # What is a text in one document and a list or mapping in another makes them two kinds.
        paths.append(path if not isinstance(value, (dict, list)) else (*path, type(value)))
        values.append(value)


def _keys_of(path: tuple[Any, ...]) -> list[Any]:
    return [key for key in path if not isinstance(key, type)]


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) >= LONG


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _without_long(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_long(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_long(item) for item in value]
    return None if _is_long(value) else value


def _different(value: Any, first: Any) -> Any:
    """Return what makes a value of the first's: for a long text its middle, where that is the shorter."""
    if not (_is_long(value) and _is_long(first)):
        return value
    begin = _most(min(len(value), len(first)), lambda count: value[:count] == first[:count])
    left = min(len(value), len(first)) - begin
    end = _most(left, lambda count: value[len(value) - count :] == first[len(first) - count :])
    return [begin, value[begin : len(value) - end], end] if begin + end >= LONG // 2 else value


def _most(limit: int, holds: Callable[[int], bool]) -> int:
    """Return the largest count up to a limit for which it holds, as it does for all that are smaller."""
    least, most = 0, limit
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if holds(middle) else (least, middle - 1)
    return least


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def _at(document: Any, path: Sequence[Any]) -> Any:
    for key in path:
        document = document[key]
    return document


def _put(document: Any, path: Sequence[Any], value: Any) -> None:
    _at(document, path[:-1])[path[-1]] = value
