"""The dialog that asks for the model: by name, by its number of parameters, and its shape where a person knows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.suggester import SuggestFromList
from textual.widgets import Button, Input, Select

from dttui.i18n import _
from dttui.planning import CLAIMED, ModelClaim, Precision, UnknownAssumptionError, assume_shape
from dttui.planning.cost_text import known_models
from dttui.sanitize import clean
from dttui.spec import MOST_COUNT, MOST_LAYERS, MOST_PARAMETERS, Model
from dttui.tui.screens.dialogs import Dialog
from dttui.tui.widgets.field_label import FieldLabel
from dttui.tui.widgets.prose import Prose
from dttui.words import parameters

_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?(?:[eE]\+?\d{1,2})?)\s*([kmbgt]?)", re.IGNORECASE)
_WHOLE = ("layers", "hidden_size", "heads", "kv_heads", "ffn_size", "seq_length", "vocab_size")
_CHOICES = ("attention", "precision")


class ModelDialog(Dialog[Model]):
    """Asks; escape changes nothing. What is left empty is taken from a published model of that size."""

    def __init__(self, model: Model | None) -> None:
        """Ask; `model` is there to begin with."""
        super().__init__()
        self._model = model or Model()

    def compose(self) -> ComposeResult:
        """Lay out a line a field."""
        with self.box(_("Model")):
            text = _("For the estimate. The number of parameters is enough; what you leave empty is taken as shown.")
            yield Prose(Content(text), classes="dialog-text")
            presets = [(name, name) for name in _presets()]
            with Horizontal(classes="field"):
                yield FieldLabel(_("Preset"), classes="field-label")
                yield Select(presets, id="model-preset", prompt=_("none: by name or numbers"), compact=True)
            with Horizontal(classes="field"):
                yield FieldLabel(_("Name"), classes="field-label")
                suggester = SuggestFromList(_presets(), case_sensitive=False)
                hint = _("optional: of a known model, or an id of yours")
                yield Input(clean(self._model.name or ""), hint, id="model-name", compact=True, suggester=suggester)
            for name, label in _labels().items():
                with Horizontal(classes="field"):
                    yield FieldLabel(label, classes="field-label", markup=False)
                    yield Input(self._text_of(name), id=_id(name), compact=True)
            yield self._choice("attention", _("Attention"), ("flash", "plain"), "flash")
            yield self._choice("precision", _("Precision"), get_args(Precision), "bf16")
            yield Prose(id="model-problem", classes="dialog-note")
            yield from self.ok_or_cancel(_("OK"))

    def on_mount(self) -> None:
        """Begin at the number of parameters."""
        self._show_defaults()
        self.query_one("#model-parameters", Input).focus()

    @on(Select.Changed, "#model-preset")
    def _preset(self, event: Select.Changed) -> None:
        """Take a known model: its name says all of its sizes."""
        if isinstance(event.value, str):
            self.query_one("#model-name", Input).value = event.value
            for name in _labels():
                self.query_one(f"#{_id(name)}", Input).value = ""

    @on(Input.Changed)
    def _edited(self) -> None:
        self._show_defaults()

    @on(Button.Pressed, "#ok")
    @on(Input.Submitted)
    def _done(self) -> None:
        values, problems = self._values()
        if not problems and values.keys() - {"name"} and self._model.config is None:
            try:
                assume_shape(self._claim(values))
            except UnknownAssumptionError as fault:
                problems = {"parameters": str(fault)}
        if problems:
            self._tell(*next(iter(problems.items())))
            return
        self.dismiss(Model(**self._kept(), **values))

    def _kept(self) -> dict[str, Any]:
        """Return what is chosen, and what is not asked for."""
        asked = {*_labels(), *_CHOICES, "name"}
        kept = {name: value for name, value in self._model if value is not None and name not in asked}
        chosen = {name: self.query_one(f"#{_id(name)}", Select).value for name in _CHOICES}
        return kept | {name: value for name, value in chosen.items() if isinstance(value, str)}

    def _claim(self, values: dict[str, Any]) -> ModelClaim:
        said = {**self._kept(), **values}
        return ModelClaim(**{name: said.get(name) for name in CLAIMED}, name=said.get("name"))

    def _choice(self, name: str, label: str, values: Sequence[str], usual: str) -> Horizontal:
        value = getattr(self._model, name) or Select.NULL
        choices = Select[str]([(item, item) for item in values], id=_id(name), value=value, prompt=usual, compact=True)
        return Horizontal(FieldLabel(label, classes="field-label"), choices, classes="field")

    def _tell(self, name: str, problem: str) -> None:
        self.query_one("#model-problem", Prose).show(Content.styled(f"✗ {clean(problem)}", "$error"))
        self.query_one(f"#{_id(name)}", Input).focus()

    def _values(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return what the fields hold, and what is wrong, by name of the field."""
        name = self.query_one("#model-name", Input).value.strip()
        values: dict[str, Any] = {"name": name} if name else {}
        problems = {}
        for name, label in _labels().items():
            text = self.query_one(f"#{_id(name)}", Input).value.strip()
            count = _count(text)
            if not text:
                continue
            if count is None or count > _most(name) or (name in _WHOLE and count != int(count)):
                example = "7B" if name == "parameters" else "32"
                told = _("{field}: {text} is no number such as {example}")
                problems[name] = told.format(field=label, text=text, example=example)
            else:
                values[name] = int(count) if name in _WHOLE else count
        return values, problems

    def _show_defaults(self) -> None:
        """Show in the empty fields what is taken for them."""
        values, _problems = self._values()
        usual: dict[str, str] = {}
        try:
            shape, _inputs = assume_shape(self._claim(values))
        except UnknownAssumptionError:
            usual["parameters"] = _("e.g. {example}").format(example="7B")
        else:
            usual = {name: str(getattr(shape, name)) for name in _WHOLE}
            usual |= {"kv_heads": str(shape.kv_heads or shape.heads), "ffn_size": str(shape.feed_forward_size)}
            if shape.convolutions is not None:
                usual = {}  # It has no such sizes.
            usual["parameters"] = parameters(shape.parameters)
        for name in _labels():
            self.query_one(f"#{_id(name)}", Input).placeholder = usual.get(name, "")
        self.query_one("#model-problem", Prose).show(Content(""))

    def _text_of(self, name: str) -> str:
        value = getattr(self._model, name)
        if value is None:
            return ""
        exact = name == "parameters" and _count(parameters(value)) == value
        return parameters(value) if exact else f"{value:.15g}"


def _presets() -> list[str]:
    return [row[0] for row in known_models().rows]


def _labels() -> dict[str, str]:
    return {
        "parameters": _("Parameters"),
        "layers": _("Layers"),
        "hidden_size": _("Hidden size"),
        "heads": _("Heads"),
        "kv_heads": _("KV heads"),
        "ffn_size": _("FFN size"),
        "seq_length": _("Sequence"),
        "vocab_size": _("Vocabulary"),
    }


def _id(name: str) -> str:
    return f"model-{name.replace('_', '-')}"


def _most(name: str) -> float:
    return {"parameters": MOST_PARAMETERS, "layers": MOST_LAYERS}.get(name, MOST_COUNT)


def _count(text: str) -> float | None:
    """Return the number that `7B`, `1.3e9` or `51200` stands for; `None` where it is none of at least 1."""
    match = _COUNT.fullmatch(text)
    value = float(match[1]) * _SCALES[match[2].lower()] if match else 0.0
    return value if value >= 1 else None
