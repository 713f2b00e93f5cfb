"""A section as a form: what its fields are, what their texts stand for, and where it says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field, create_model

from dttui.frameworks import frameworks, get_framework
from dttui.planning.section_form import FieldKind, SectionForm, options_form, section_form
from dttui.spec.models import Container, Job
from dttui.spec.section import Section

TOLD = {
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.003, "betas": (0.9, 0.95)}},
    "config": {"checkpoint": {"use_node_local_storage": True}},
}


class Inner(Section):
    """Of a made-up section."""

    depth: int
    """How deep."""


class Made(Section):
    """A section with a field of each kind."""

    flag: bool = False
    whole: int = Field(default=3, alias="a-whole")
    """How many.

    And more.
    """
    number: float | None = None
    names: tuple[str, ...] = ("a", "b")
    sizes: tuple[int, ...] = ()
    free: dict[str, Any] = Field(default_factory=dict)
    either: int | str = "auto"
    inner: Inner | None = None
    """What is inside."""


def deepspeed(**told: object) -> SectionForm:
    job = Job(name="made-up", framework_options={**TOLD, **told})
    return options_form(job, get_framework("deepspeed"))


def test_each_field_says_what_it_takes_what_is_usual_and_what_the_model_says_of_it() -> None:
    fields = {field.name: field for field in section_form(Made, None).fields}
    assert {name: field.kind for name, field in fields.items()} == {
        "flag": FieldKind.CHOICE,
        "a-whole": FieldKind.WHOLE,
        "number": FieldKind.NUMBER,
        "names": FieldKind.LIST,
        "sizes": FieldKind.VALUE,
        "free": FieldKind.MAPPING,
        "either": FieldKind.VALUE,
        "inner.depth": FieldKind.WHOLE,
    }
    assert [fields[name].default for name in ("flag", "a-whole", "number", "names", "either")] == [
        "false",
        "3",
        "",
        "a, b",
        "auto",
    ]
    assert fields["a-whole"].about == ("How many.", "And more.")
    assert fields["inner.depth"].about == ("What is inside.", "How deep.")
    assert fields["inner.depth"].is_needed


def test_texts_are_read_as_a_job_file_would_be() -> None:
    form = section_form(Made, None)
    told = {
        "flag": "true",
        "a-whole": "7",
        "number": "1e-4",
        "names": "x, 2, 'y, z'",
        "sizes": "[1, 2]",
        "free": "lr: 0.1, deep: {a: [true]}",
        "either": "auto",
        "inner.depth": " 4 ",
    }
    values, faults = form.read({**form.texts, **told})
    assert faults == {}
    assert values == {
        "flag": True,
        "a-whole": 7,
        "number": 1e-4,
        "names": ("x", "2", "y, z"),
        "sizes": (1, 2),
        "free": {"lr": 0.1, "deep": {"a": (True,)}},
        "either": "auto",
        "inner": {"depth": 4},
    }


def test_what_was_not_touched_stays_as_it_was_and_what_was_emptied_goes() -> None:
    form = deepspeed()
    assert form.texts["optimizer.params"] == "lr: 0.003, betas: [0.9, 0.95]"
    assert form.read(form.texts) == (TOLD, {})
    emptied = {**form.texts, "optimizer.type": "", "optimizer.params": "", "gradient_clipping": ""}
    values, faults = form.read(emptied)
    assert faults == {}
    assert values == {name: TOLD[name] for name in ("gradient_accumulation_steps", "config")}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("gradient_clipping", "much", "expected a number"),
        ("gradient_accumulation_steps", "0", "a number above 0"),
        ("gradient_accumulation_steps", "9" * 6000, "a number of 6000 digits is too long"),
        ("optimizer.type", "", 'the key "type" is missing'),
        ("optimizer.params", "lr: [1", ""),
        ("config", "zero: {}", 'zero: DeepSpeed has no key "zero"'),
        ("offload_optimizer", "nvme", "nvme needs nvme_path"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(name: str, text: str, told: str) -> None:
    form = deepspeed()
    _values, faults = form.read({**form.texts, name: text})
    assert list(faults) == [name]
    assert told in faults[name]


def test_a_key_that_the_framework_does_not_have_is_a_field_of_its_own_until_it_is_emptied() -> None:
    form = deepspeed(zero=3, optimizer={"type": "AdamW", "lr": 1})
    assert [field.name for field in form.fields[-2:]] == ["optimizer.lr", "zero"]
    assert set(form.read(form.texts)[1]) == {"optimizer.lr", "zero"}
    values, faults = form.read({**form.texts, "optimizer.lr": "", "zero": ""})
    assert faults == {}
    assert values["optimizer"] == {"type": "AdamW"}


def test_a_section_that_is_left_empty_is_none_and_one_that_is_begun_has_to_be_whole() -> None:
    form = section_form(Container, None)
    assert form.read(form.texts) == ({}, {})
    values, faults = form.read({**form.texts, "mounts": "/data:/data:ro, /x:/y"})
    assert set(faults) == {"engine", "image"}
    values, faults = form.read({**form.texts, "engine": "podman", "image": "torch:2", "mounts": "/data:/data:ro"})
    assert faults == {}
    container = Container.model_validate(values)
    assert section_form(Container, container).read(section_form(Container, container).texts) == (values, {})


@pytest.mark.parametrize("framework", [item for item in frameworks() if item.available], ids=lambda item: item.name)
def test_every_option_of_every_framework_is_explained(framework: Any) -> None:
    form = options_form(Job(name="made-up"), framework)
    assert [field.name for field in form.fields if not field.about] == []
    assert form.read(form.texts) == ({}, {})


def test_a_model_whose_source_nobody_has_is_a_form_without_explanations() -> None:
    made = create_model("Made", __base__=Section, level=(int, 1))
    (field,) = section_form(made, None).fields
    assert (field.name, field.default, field.about) == ("level", "1", ())
