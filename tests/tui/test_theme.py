"""Themes: every mistake is found, with its place; text can be read on its ground, and states are told apart."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dttui import locations
from dttui.errors import UsageError
from dttui.tui.theme import load_theme, theme_files
from tests.tui.colours import SIGHTS, apart, contrast
from tests.tui.fake_fleet import make_app
from tests.tui.looking import settle, toasts

SOURCE = (locations.shipped("themes") / "dusk.yaml").read_text(encoding="utf-8")
SHIPPED = sorted(path.stem for path in locations.shipped("themes").glob("*.yaml"))
GROUNDS = ("surface", "panel", "row-cursor", "row-ticked")
STATES = ("state-running", "state-succeeded", "state-failed", "state-unknown", "state-cancelled")
TEXTS = ("foreground", "muted", "primary", "ticked", "master", "simulated", "finding-info", *STATES)
LEAST = {"dusk": 3.0, "paper": 3.0, "okabe-dark": 4.0, "okabe-light": 4.5, "contrast": 7.0, "contrast-light": 7.0}
"""WCAG asks for 4.5, of large text and symbols for 3, and of high contrast for 7."""


def colours(name: str) -> dict[str, str]:
    theme = load_theme(theme_files()[name])
    return {"surface": theme.surface or "", "panel": theme.panel or "", "foreground": theme.foreground or ""} | {
        "primary": theme.primary,
        **theme.variables,
    }


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('master: "#f0a875"', 'master: "orangish"', "no colour"),
        ('  master: "#f0a875"\n', "", 'the key "master" is missing'),
        ('  master: "#f0a875"', '  mastr: "#f0a875"', "did you mean"),
        ("name: dusk", "name: ../dusk", "name"),
        ("name: dusk", "name: dawn", "the theme is called dawn"),
    ],
)
def test_a_theme_with_a_mistake_is_refused_with_its_place(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in SOURCE
    path = tmp_path / "dusk.yaml"
    path.write_text(SOURCE.replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError, match=r"dusk\.yaml") as refusal:
        load_theme(path)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize("name", SHIPPED)
def test_text_can_be_read_on_each_ground(name: str) -> None:
    shown = colours(name)
    worst = min((contrast(shown[text], shown[ground]), text, ground) for text in TEXTS for ground in GROUNDS)
    assert worst[0] >= LEAST[name], worst


@pytest.mark.parametrize("name", ["okabe-dark", "okabe-light"])
def test_eyes_that_tell_few_colours_apart_tell_states(name: str) -> None:
    shown = colours(name)
    pairs = itertools.product(itertools.combinations(STATES, 2), SIGHTS)
    worst = min((apart(shown[one], shown[other], sight), one, other, sight) for (one, other), sight in pairs)
    assert worst[0] > 20, worst


def test_there_are_dark_and_light_ones_and_one_of_a_persons_own_takes_their_place() -> None:
    assert {load_theme(path).dark for path in theme_files().values()} == {True, False}
    own = locations.themes_directory()
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(SOURCE.replace("name: dusk", "name: mine"), encoding="utf-8")
    (own / "paper.yaml").write_text(SOURCE.replace("name: dusk", "name: paper"), encoding="utf-8")
    files = theme_files()
    assert next(iter(files)) == "dusk"
    assert files["mine"].parent == files["paper"].parent == own
    assert load_theme(files["paper"]).dark


async def test_all_themes_can_be_chosen_live_and_a_broken_one_of_a_persons_own_is_named() -> None:
    own = locations.themes_directory()
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text(SOURCE.replace("name: dusk", "name: mine"), encoding="utf-8")
    (own / "torn.yaml").write_text("name: torn\n", encoding="utf-8")
    app = make_app(theme="paper")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await settle(app, pilot)
        assert set(app.available_themes) == {*SHIPPED, "mine"}
        assert any("torn.yaml" in toast for toast in toasts(app))
        for name in sorted(app.available_themes):
            app.theme = name
            await settle(app, pilot)
    with pytest.raises(UsageError, match=r"torn\.yaml"):
        make_app(theme="torn")
