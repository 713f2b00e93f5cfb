"""A section of a job as a form: a field for each value, nested sections by dotted names, a text in each field. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from dttui.frameworks.base import Framework
from dttui.frameworks.parts.options import read_options
from dttui.i18n import _
from dttui.spec.document import describe_error
from dttui.spec.field_docs import field_docs, paragraphs
from dttui.spec.models import Job
from dttui.spec.problems import DocumentError, PathKey, PlacedValueError, format_path, with_hint
from dttui.spec.schema_walk import annotations_at, keys_of, models_at
from dttui.spec.yaml_composer import TOO_LONG, plain_scalar
from dttui.spec.yaml_reader import parse_yaml
from dttui.spec.yaml_source import YamlSource
from dttui.spec.yaml_writer import flow

Faults = list[tuple[PathKey, str]]
"""What is wrong, by the place in the section."""
Check = Callable[[Mapping[str, Any]], Faults]


class FieldKind(Enum):
    """What a field takes, and so how its text is read."""

    CHOICE = "choice"
    """One of a few values, true and false among them."""
    WHOLE = "whole"
    NUMBER = "number"
    TEXT = "text"
    LIST = "list"
    """As between the brackets of YAML: `a, b`."""
    MAPPING = "mapping"
    """As between the braces of YAML: `lr: 0.1, betas: [0.9, 0.95]`."""
    TEXTS = "texts"
    """The same of values that are texts, also those that look like numbers: `OMP_NUM_THREADS: 8`."""
    ITEMS = "items"
    """A list of sections: each is a form of its own."""
    VALUE = "value"
    """Any value of YAML."""


@dataclass(frozen=True)
class FormField:
    """One field."""

    path: tuple[str, ...]
    """Keys, from the section's top."""
    kind: FieldKind
    choices: tuple[Any, ...] = ()
    """Values that it may have, where only these are known."""
    default: str = ""
    """Text of what is taken where it is left empty; empty where that is nothing."""
    is_needed: bool = False
    """Whether the section that it is in cannot do without."""
    about: tuple[str, ...] = ()
    """What the models say of the sections around it, and of it: paragraphs, in English as catalogues have them."""
    item: type[BaseModel] | None = None
    """What each item of a list of sections is."""

    @property
    def name(self) -> str:
        """Its dotted name."""
        return ".".join(self.path)

    def written(self, value: Any) -> str:
        """Return the text that stands for a value."""
        if self.kind is FieldKind.TEXT and isinstance(value, str):
            return value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        text = flow(value)
        is_bare = (self.kind is FieldKind.LIST and isinstance(value, (list, tuple))) or (
            self.kind in (FieldKind.MAPPING, FieldKind.TEXTS) and isinstance(value, dict)
        )
        return text[1:-1] if is_bare else text

    def read(self, text: str) -> Any:
        """Return the value that a text stands for; what does not fit comes back as it is. Raises DocumentError."""
        if self.kind is FieldKind.TEXT:
            return text
        if self.kind in (FieldKind.WHOLE, FieldKind.NUMBER):
            value = plain_scalar(text)
            return parse_yaml(text, self.name).data if value is TOO_LONG else value  # A reader of YAML says so.
        if self.kind is FieldKind.CHOICE:
            return next((item for item in self.choices if self.written(item) == text), text)
        if self.kind in (FieldKind.MAPPING, FieldKind.TEXTS) and not text.startswith("{"):
            text = f"{{{text}}}"
        if self.kind is FieldKind.TEXTS:
            return _as_written(parse_yaml(text, self.name))
        if self.kind is FieldKind.LIST:
            source = parse_yaml(text if text.startswith("[") else f"[{text}]", self.name)
            items = source.data if isinstance(source.data, tuple) else (source.data,)
            is_scalar = [isinstance(item, (int, float)) for item in items]
            # Items of a list are texts, also those that look like numbers.
            return tuple(
                source.written((index,)) or item if is_scalar[index] else item for index, item in enumerate(items)
            )
        return parse_yaml(text, self.name).data


class SectionForm:
    """The fields of a section and their texts. What the model does not know is a field too, so that nothing is lost."""

    def __init__(
        self, model: type[BaseModel], values: Mapping[str, Any], check: Check, elsewhere: Collection[str] = ()
    ) -> None:
        """Make the form of a section.

        Args:
            model: what it may hold.
            values: what it holds, as a document has it; `check` may find it wrong.
            check: what is wrong with values.
            elsewhere: its keys that are not asked for.
        """
        known = tuple(field for field in _fields(model, (), (model,)) if field.path[0] not in elsewhere)
        strange = _strange(values, {field.path for field in known}, ())
        self.fields = (*known, *(FormField(path, FieldKind.VALUE) for path in strange))
        self._check = check
        self._values = {field.name: value for field in self.fields if (value := _at(values, field.path)) is not None}
        self.texts = {
            field.name: field.written(self._values[field.name]) if field.name in self._values else ""
            for field in self.fields
        }
        """Text of each field, by its name, as the form begins."""

    def read(self, texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the section that texts stand for, and what is wrong by name of the field.

        What is empty is left out, and what was not changed stays as it was.
        """
        values: dict[str, Any] = {}
        faults: dict[str, str] = {}
        for field in self.fields:
            text = texts[field.name].strip()
            if not text:
                continue
            try:
                is_same = field.name in self._values and text == self.texts[field.name].strip()
                _put(values, field.path, self._values[field.name] if is_same else field.read(text))
            except DocumentError as error:
                faults[field.name] = error.problems[0].message
        for path, message in self._check(values) if not faults else ():
            field, told = self._place(path, message)
            faults.setdefault(field.name, told)
        return values, faults

    def nearest(self, name: str) -> int:
        """Return which field has a dotted name, or is within what has it, or holds it; the first where none does."""
        keys = tuple(name.split("."))
        for index, field in enumerate(self.fields):
            if field.path[: len(keys)] == keys or keys[: len(field.path)] == field.path:
                return index
        return 0

    def _place(self, path: PathKey, message: str) -> tuple[FormField, str]:
        """Return the field that a fault is of, and what to say there."""
        keys = tuple(map(str, path))
        for end in range(len(keys), 0, -1):
            found = next((field for field in self.fields if field.path == keys[:end]), None)
            if found is not None:
                return found, f"{format_path(path[end:])}: {message}" if path[end:] else message
        within = (field for field in self.fields if field.path[: len(keys)] == keys)
        return next(within, self.fields[0]), message


def options_form(job: Job, framework: Framework) -> SectionForm:
    """Return the form of a job's framework_options."""

    def check(values: Mapping[str, Any]) -> Faults:
        found = read_options(job.model_copy(update={"framework_options": values}), framework)[1]
        return [(finding.path[1:], with_hint(finding.message, finding.hint)) for finding in found]

    return SectionForm(framework.options, job.framework_options, check)


def section_form(
    model: type[BaseModel],
    section: BaseModel | Mapping[str, Any] | None,
    elsewhere: Mapping[str, Any] | None = None,
) -> SectionForm:
    """Return the form of a section that may be left out: where all its fields are empty, it is.

    Args:
        model: what it may hold.
        section: what it holds.
        elsewhere: fields that are not asked for, with values that the others have to go with; `None` for none.
    """
    apart = elsewhere or {}

    def check(values: Mapping[str, Any]) -> Faults:
        try:
            others = {name: value for name, value in apart.items() if value is not None}
            model.model_validate({**others, **values}, strict=True)
        except ValidationError as error:
            return list(_faults(error)) if values else []
        return []

    values = (
        _as_read(section.model_dump(mode="json", exclude_unset=True))
        if isinstance(section, BaseModel)
        else section or {}
    )
    return SectionForm(model, {name: value for name, value in values.items() if name not in apart}, check, apart)


def _as_read(value: Any) -> Any:
    """Return plain data as a reader of documents gives it: lists are tuples."""
    if isinstance(value, dict):
        return {key: _as_read(item) for key, item in value.items()}
    return tuple(map(_as_read, value)) if isinstance(value, list) else value


def items_of(field: FormField, text: str) -> list[dict[str, Any]]:
    """Return the items that the text of a list of sections stands for; none where it cannot be read."""
    try:
        values = field.read(text) if text.strip() else ()
    except DocumentError:
        return []
    return [item for item in values if isinstance(item, dict)] if isinstance(values, tuple) else []


def _faults(error: ValidationError) -> Iterator[tuple[PathKey, str]]:
    for detail in error.errors(include_url=False):
        path: PathKey = tuple(detail["loc"])
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, PlacedValueError):
            yield from (((*path, *below), message) for below, message in cause.faults)
        elif detail["type"] == "missing":
            yield path, _('the key "{key}" is missing').format(key=path[-1])
        else:
            yield path, describe_error(detail)


def _fields(
    model: type[BaseModel], path: tuple[str, ...], above: tuple[type[BaseModel], ...], about: tuple[str, ...] = ()
) -> Iterator[FormField]:
    """Yield the fields of a model at a path; `about` is what is said of it as a whole."""
    docs = {name: (*about, *paragraphs(text)) for name, text in field_docs(model).items()}
    for key, (name, field) in zip(keys_of(model), model.model_fields.items(), strict=True):
        kinds, sections = annotations_at(model, (key,)), models_at(model, (key,))
        if len(kinds) == len(sections) == 1 and sections[0] not in above:
            yield from _fields(sections[0], (*path, key), (*above, sections[0]), docs.get(name, ()))
            continue
        items = annotations_at(model, (key, 0))
        kind, choices = _kind(kinds, items)
        item = items[0] if kind is FieldKind.ITEMS else None
        made = FormField((*path, key), kind, choices, "", field.is_required(), docs.get(name, ()), item)
        default = None if made.is_needed else _default(model, name)
        is_nothing = default in (None, [], {}, "") or isinstance(default, BaseModel)
        yield made if is_nothing else replace(made, default=made.written(default))


def _default(model: type[BaseModel], name: str) -> Any:
    """Return the default of a field, as a document has it: `2GiB`."""
    return model.model_construct().model_dump(mode="json", include={name}).get(name)


def _kind(kinds: Sequence[Any], items: Sequence[Any]) -> tuple[FieldKind, tuple[Any, ...]]:
    """Return what values of these annotations are, and which there may be; `items` are those of what a list holds."""
    origins = {get_origin(item) for item in kinds}
    if origins == {Literal}:
        return FieldKind.CHOICE, tuple(choice for item in kinds for choice in get_args(item))
    if list(kinds) == [bool]:
        return FieldKind.CHOICE, (True, False)
    if origins == {dict}:
        is_of_texts = all(_is_text(get_args(item)[1]) for item in kinds)
        return FieldKind.TEXTS if is_of_texts else FieldKind.MAPPING, ()
    if origins == {tuple} and all(map(_is_word, items)):
        return FieldKind.LIST, ()
    if origins == {tuple} and len(items) == 1 and isinstance(items[0], type) and issubclass(items[0], BaseModel):
        return FieldKind.ITEMS, ()
    if set(kinds) == {int}:
        return FieldKind.WHOLE, ()
    if kinds and set(kinds) <= {int, float}:
        return FieldKind.NUMBER, ()
    return FieldKind.TEXT if set(kinds) == {str} else FieldKind.VALUE, ()


def _as_written(source: YamlSource) -> Any:
    """Return a mapping whose plain values are the texts that stand there; what is no mapping, as it is."""
    if not isinstance(source.data, dict):
        return source.data
    return {
        key: source.written((key,)) or value if isinstance(value, (int, float)) else value
        for key, value in source.data.items()
    }


def _is_text(annotation: Any) -> bool:
    return annotation is str or (get_origin(annotation) is Annotated and get_args(annotation)[0] is str)


def _is_word(item: Any) -> bool:
    """Whether an item of a list is a text, any or one of a few."""
    return item is str or (get_origin(item) is Literal and all(isinstance(choice, str) for choice in get_args(item)))


def _strange(
    values: Mapping[str, Any], known: Set[tuple[str, ...]], path: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """Yield where something stands that has no field."""
    for key, value in values.items():
        here = (*path, str(key))
        if here in known:
            continue
        if isinstance(value, dict) and any(other[: len(here)] == here for other in known):
            yield from _strange(value, known, here)
        else:
            yield here


def _at(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = values
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    inner = values
    for key in path[:-1]:
        below = inner.get(key)
        inner[key] = inner = dict(below) if isinstance(below, dict) else {}
    inner[path[-1]] = value
