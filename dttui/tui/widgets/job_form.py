"""The fields of a job: its name, what runs, where and by what, and the dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Input, Select, Static

from dttui.i18n import _
from dttui.inventory import Dataset
from dttui.planning import ProgramKind
from dttui.sanitize import clean
from dttui.spec import Container, DatasetRef
from dttui.tui.messages import FormEdited
from dttui.tui.widgets.choice_list import ChoiceList
from dttui.tui.widgets.field_label import FieldLabel
from dttui.tui.widgets.prose import Prose

NO_DATASET = ""
"""The value of the explicit none; an id is never empty."""


@dataclass(frozen=True)
class FormValues:
    """What the fields hold."""

    task_name: str
    program: str
    arguments: str
    workdir: str
    python: str
    prefix: str
    per: Literal["gpu", "node"]
    dataset: DatasetRef | str | None
    """A dataset, `none`, or nothing chosen yet."""


class JobForm(Vertical):
    """Tells its screen of every edit; the screen decides what it means."""

    def __init__(self, datasets: Sequence[Dataset], *, id: str) -> None:
        super().__init__(id=id)
        self.border_title = _("Job")
        self._datasets = datasets
        self._known = [dataset.id for dataset in datasets]
        self._shown: str | None = None
        """Id of the dataset that version and path are shown of."""

    def compose(self) -> ComposeResult:
        """Lay out a line a field."""
        example = _("e.g. {example}")
        yield from _field(_("Task name"), _input("task-name", example.format(example="gpt-small")))
        yield from _field(_("Script"), _input("program", example.format(example="train.py")), label_id="program-label")
        optional = _("optional, e.g. {example}")
        yield from _field(_("Arguments"), _input("arguments", optional.format(example="--epochs 3")))
        often: list[tuple[str, str]] = [(_("once a GPU"), "gpu"), (_("once a node"), "node")]
        select = Select(often, id="per", allow_blank=False, compact=True)
        yield from _field(_("Started"), select, row_id="per-field")
        yield Prose(id="per-note", markup=False)
        yield from _field(_("Work dir"), _input("workdir", _("optional; sent if relative")))
        yield from _field(_("Python"), _input("python", _("optional: the interpreter")))
        yield from _field(_("Prefix"), _input("prefix", optional.format(example="numactl --localalloc")))
        with Horizontal(classes="field"):
            yield FieldLabel(_("Container"), classes="field-label")
            yield Static(id="container-text")
            yield Button(_("Edit"), id="container", action="screen.container", compact=True)
        yield from _field(_("Dataset"), ChoiceList(id="dataset", prompt=_("choose a dataset, or none")))
        versions = Select[str]([], id="version", prompt=_("preferred version"), compact=True)
        yield from _field(_("Version"), versions, row_id="version-field")
        yield from _field(_("Path"), _input("dataset-path", _("the catalogue's")), row_id="path-field")

    def show_container(self, container: Container | None) -> None:
        """Show in which image everything runs."""
        text = Content.styled(_("none: on the host"), "italic $muted")
        if container is not None:
            text = Content(clean(f"{container.engine} · {container.image}"))
        self.query_one("#container-text", Static).update(text)

    def show(self, values: FormValues, kind: ProgramKind) -> None:
        """Fill the fields in."""
        label = {"script": _("Script"), "module": _("Module"), "command": _("Command")}[kind]
        self.query_one("#program-label", FieldLabel).update(Content(label))
        for selector in ("#per-field", "#per-note"):
            self.query_one(selector).display = kind == "command"
        self._explain(values.per)
        with self.prevent(Input.Changed, Select.Changed):
            for name, text in (
                ("#task-name", values.task_name),
                ("#program", values.program),
                ("#arguments", values.arguments),
                ("#workdir", values.workdir),
                ("#python", values.python),
                ("#prefix", values.prefix),
            ):
                field = self.query_one(name, Input)
                if field.value != text:
                    field.value = text
            self.query_one("#per", Select).value = values.per
            self._show_dataset(values.dataset)

    @property
    def values(self) -> FormValues:
        """What the fields hold now."""
        return FormValues(
            task_name=self.query_one("#task-name", Input).value,
            program=self.query_one("#program", Input).value,
            arguments=self.query_one("#arguments", Input).value,
            workdir=self.query_one("#workdir", Input).value,
            python=self.query_one("#python", Input).value,
            prefix=self.query_one("#prefix", Input).value,
            per="node" if self.query_one("#per", Select).value == "node" else "gpu",
            dataset=self._chosen_dataset(),
        )

    def _chosen_dataset(self) -> DatasetRef | str | None:
        identity = self.query_one("#dataset", Select).value
        if not isinstance(identity, str):
            return None
        if identity == NO_DATASET:
            return "none"
        if identity != self._shown:
            return DatasetRef(id=identity)  # What was said of another is not said of it.
        version, path = self.query_one("#version", Select).value, self.query_one("#dataset-path", Input).value.strip()
        said = {"version": version if isinstance(version, str) else "", "path": path}
        return DatasetRef(id=identity, **{name: text for name, text in said.items() if text})

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Have what is said of a field in view with it."""
        if event.widget.id == "per":
            self.call_after_refresh(self.query_one("#per-note").scroll_visible, animate=False)

    @on(Input.Changed)
    @on(Select.Changed)
    def _edited(self, event: Input.Changed | Select.Changed) -> None:
        event.stop()
        values = self.values
        self._explain(values.per)
        if event.control.id == "dataset":
            with self.prevent(Input.Changed, Select.Changed):
                self._show_dataset(values.dataset)
        self.post_message(FormEdited())

    def _explain(self, per: Literal["gpu", "node"]) -> None:
        """Say what it means how often a command is started."""
        text = _("Each GPU has a process of its own, which is told its rank.")
        if per == "node":
            text = _("It sees all GPUs of its node and starts its own ranks: bash run.sh, torchrun, llamafactory-cli.")
        self.query_one("#per-note", Prose).show(Content(text))

    def _show_dataset(self, dataset: DatasetRef | str | None) -> None:
        chosen = dataset if isinstance(dataset, DatasetRef) else None
        self._shown = chosen.id if chosen is not None else None
        if chosen is not None and chosen.id not in self._known:
            self._known.append(chosen.id)
        identity = chosen.id if chosen is not None else None if dataset is None else NO_DATASET
        self.query_one("#dataset", ChoiceList).offer(self._options(), identity)
        for row in ("#version-field", "#path-field"):
            self.query_one(row).display = chosen is not None
        if chosen is None:
            return
        found = next((item for item in self._datasets if item.id == chosen.id), None)
        versions = [item.id for item in found.versions] if found is not None else []
        if chosen.version and chosen.version not in versions:
            versions.append(chosen.version)
        self.query_one("#version", Select).set_options(_choices(versions))
        self.query_one("#version", Select).value = chosen.version or Select.NULL
        path = self.query_one("#dataset-path", Input)
        if path.value != (chosen.path or ""):
            path.value = chosen.path or ""

    def _options(self) -> list[tuple[str, str]]:
        """Return the catalogue, the dataset of the job where it has one of its own, and none."""
        return [*_choices(self._known), (_("none (script has its own)"), NO_DATASET)]


def _choices(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(Content(clean(name)), name) for name in names]  # type: ignore[misc]  # Content is rendered as it is


def _input(id: str, placeholder: str) -> Input:
    return Input(id=id, compact=True, placeholder=placeholder)


def _field(
    label: str, field: Input | Select[str], label_id: str | None = None, row_id: str | None = None
) -> ComposeResult:
    with Horizontal(classes="field", id=row_id):
        yield FieldLabel(label, classes="field-label", id=label_id, markup=False)
        yield field
