"""Theme files: every mistake is found at load, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dttui import locations
from dttui.errors import UsageError
from dttui.tui.theme import load_themes

SOURCE = (locations.shipped("themes") / "dusk.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('master: "#f0a875"', 'master: "orangish"', "no colour"),
        ('  master: "#f0a875"\n', "", 'the key "master" is missing'),
        ('  master: "#f0a875"', '  mastr: "#f0a875"', "did you mean"),
        ("name: dusk", "name: ../dusk", "name"),
    ],
)
def test_a_theme_with_a_mistake_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, complaint: str
) -> None:
    assert old in SOURCE
    (tmp_path / "mine.yaml").write_text(SOURCE.replace(old, new), encoding="utf-8")
    monkeypatch.setattr(locations, "shipped", lambda _name: tmp_path)
    with pytest.raises(UsageError, match=r"mine\.yaml") as refusal:
        load_themes()
    assert complaint in str(refusal.value)
