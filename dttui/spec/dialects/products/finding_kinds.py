"""Which kind of file something is, and what follows: asked in one order, from what is surest to what is least so.

1. `.torchxconfig`, scripts for batch systems, then the kinds of `text_kinds`: by name or first lines.
2. Shell scripts and hostfiles, which the caller asks for.
3. Objects of Kubernetes, by `apiVersion` and `kind`.
4. The rows of `yaml_kinds`, in their order.
5. Configurations of accelerate and of DeepSpeed, which have modules of their own.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dttui.i18n import N_, _
from dttui.spec.deepspeed_keys import KNOWN_KEYS
from dttui.spec.dialects.hostfile import is_hostfile
from dttui.spec.dialects.products.batch_scripts import batch_scheduler, translate_batch_script
from dttui.spec.dialects.products.kubernetes_kinds import KUBERNETES_KINDS, is_kubernetes
from dttui.spec.dialects.products.masking import masked
from dttui.spec.dialects.products.product_kind import Outside, ProductKind, ReadFile, names_import
from dttui.spec.dialects.products.text_kinds import text_kind
from dttui.spec.dialects.products.torchx_config import is_torchx_config, translate_torchx_config
from dttui.spec.dialects.products.yaml_documents import Documents, read_documents, seen_keys
from dttui.spec.dialects.products.yaml_kinds import YAML_KINDS, is_accelerate, is_deepspeed
from dttui.spec.dialects.script_recognition import is_script
from dttui.spec.dialects.translation import Translated, in_order, make_note, table_source
from dttui.spec.findings import Finding
from dttui.spec.problems import DocumentError, Problem
from dttui.spec.text import ENV_NAME
from dttui.spec.yaml_source import Mark, YamlSource

_DEEPSPEED_KEYS = frozenset(KNOWN_KEYS)
_OWN_FORMS = (
    ProductKind(N_("a configuration of accelerate"), is_accelerate, "accelerate"),
    ProductKind(N_("a configuration of DeepSpeed"), lambda data: is_deepspeed(data, _DEEPSPEED_KEYS), "deepspeed"),
)
"""Taken by dialects of their own, and here only told of where a job file is wanted."""


@dataclass(frozen=True)
class Product:
    """A file of a kind that is known."""

    kind: ProductKind
    source: YamlSource
    """The document that it is."""
    others: tuple[YamlSource, ...] = ()
    """Further documents of the file."""

    def translate(self, outside: Outside) -> Translated:
        """Carry it over. Raises DocumentError with every problem of it, and where its kind is refused."""
        if self.kind.module and self.source.problems:
            raise DocumentError(self.source.problems)
        source = replace(self.source, lines=masked(self.source.lines))
        translated = self.kind.translate(source, outside)
        others = [other for other in self.others if not _is_head(other.data)]
        return replace(translated, notes=in_order((*translated.notes, *map(_left_out, others))))


def _is_head(data: object) -> bool:
    """Whether a document only names what the others are, as the first of a SkyPilot pipeline does."""
    return isinstance(data, Mapping) and set(data) <= {"name", "execution"}


def _left_out(other: YamlSource) -> Finding:
    kind = kind_of(other.data)
    message = _("not carried over: the document that begins in line {line}, {kind}")
    told = _(kind.title) if kind is not None else _("of a kind that is not known")
    return make_note(other, (), message.format(line=other.mark(()).line, kind=told))


def translate_by_text(text: str, name: str, arguments: Sequence[str], read: ReadFile) -> Translated | None:
    """Carry a file over that its text tells, before it may be a script or YAML; `None` where it is of no such kind.

    Args:
        text: of the file.
        name: what problems call it.
        arguments: that a script is started with.
        read: the text of a file beside it that it names.

    Raises:
        DocumentError: with every problem of it, and where its kind is refused.
    """
    if is_torchx_config(text, name):
        return translate_torchx_config(text, name)
    scheduler = batch_scheduler(text, name)
    if scheduler is not None:
        return translate_batch_script(text, name, arguments, read, scheduler)
    refused = text_kind(text, name)
    if refused is not None:
        raise refused.refuse(text, name)
    return None


def is_for_arguments(text: str, name: str, words: Sequence[str]) -> bool:
    """Whether words after `--` are for this file: a script's arguments, or variables that a document leaves open."""
    if is_script(text, name) or batch_scheduler(text, name) is not None:
        return True
    if is_hostfile(text) or not all(re.match(ENV_NAME.removesuffix("$") + "=", word) for word in words):
        return False
    product = find_product(text, name)
    return product is not None and bool(product.kind.module)


def find_product(text: str, name: str) -> Product | None:
    """Return the file of another product that YAML or JSON is; `None` where it is none that is known."""
    documents = read_documents(text, name)
    if documents.error is not None:
        return _seen(text, name)
    return _chosen(documents)


def kind_of(data: object) -> ProductKind | None:
    """Return the kind of a document; `None` where it is of none that is known."""
    if isinstance(data, tuple):
        kinds = [kind_of(item) for item in data[:1] if isinstance(item, Mapping)]
        return next((kind for kind in kinds if kind is not None and not kind.module), None)
    if not isinstance(data, Mapping):
        return None
    if is_kubernetes(data):
        return next(kind for kind in KUBERNETES_KINDS if kind.tells(data))
    return next((kind for kind in YAML_KINDS if kind.tells(data)), None)


def told_instead(text: str, name: str) -> Problem | None:
    """Return what a file is that is no job file; `None` where that is not known."""
    if is_torchx_config(text, name):
        return names_import(_told(name, text, _("a configuration of torchx")))
    scheduler = batch_scheduler(text, name)
    if scheduler is not None:
        return names_import(_told(name, text, _("a script for {scheduler}").format(scheduler=scheduler.title)))
    refused = text_kind(text, name)
    if refused is not None:
        return refused.refusal(text, name)
    if is_script(text, name):
        return names_import(_told(name, text, _("a shell script")))
    if is_hostfile(text) and ("slots=" in text or "hostfile" in posixpath.basename(name).casefold()):
        return names_import(_told(name, text, _("a hostfile")))
    product = find_product(text, name) or _own_form(text, name)
    if product is None:
        return None
    problem = product.kind.refusal(product.source)
    return names_import(problem) if product.kind.module else problem


def _told(name: str, text: str, kind: str) -> Problem:
    lines: Sequence[str] = text.splitlines() or ("",)
    message = _("this is {kind}").format(kind=kind)
    return Problem(name, message, line=1, column=1, source_line=lines[0])


def _chosen(documents: Documents) -> Product | None:
    found = [(kind, source) for source in documents.sources if (kind := kind_of(source.data)) is not None]
    best = next((item for item in found if item[0].module), found[0] if found else None)
    if best is None:
        return None
    others = tuple(source for source in documents.sources if source is not best[1])
    return Product(best[0], best[1], others)


def _seen(text: str, name: str) -> Product | None:
    """Return what a file is that cannot be read as YAML, by the keys that are seen; only what is refused anyway."""
    data = seen_keys(text)
    kind = kind_of(data)
    if kind is None or kind.module:
        return None
    return Product(kind, _sketch(text, name, data))


def _sketch(text: str, name: str, data: Mapping[str, Any]) -> YamlSource:
    lines = text.splitlines()
    marks: dict[str, Mark] = {}
    for number, line in enumerate(lines, 1):
        for key in seen_keys(line):
            marks.setdefault(key, Mark(number, 1))
    entries = [(key, marks.get(key, Mark(1, 1)), value, marks.get(key, Mark(1, 1))) for key, value in data.items()]
    return table_source(name, tuple(lines), entries)


def _own_form(text: str, name: str) -> Product | None:
    sources: Iterable[YamlSource] = read_documents(text, name).sources
    for source in sources:
        if isinstance(source.data, dict):
            kind = next((kind for kind in _OWN_FORMS if kind.tells(source.data)), None)
            if kind is not None:
                return Product(kind, source)
    return None
