"""The file of settings: each mistake is told with its place and costs its own key; a change keeps the comments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from dttui import locations
from dttui.cli import main
from dttui.compose import documents
from dttui.spec import DocumentError
from dttui.spec.yaml_reader import parse_yaml
from dttui.tui.bindings import all_bindings
from dttui.tui.settings import Settings, read_settings, with_setting
from tests.tui.fake_fleet import make_app

THEMES = ("dusk", "paper")


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_there_are_the_defaults(tmp_path: Path) -> None:
    found = read_settings(tmp_path / "settings.yaml", THEMES)
    assert found.settings == Settings()
    assert found.problems == ()


def test_every_mistake_is_told_with_its_place_and_remedy_and_costs_only_its_key(tmp_path: Path) -> None:
    path = write(
        tmp_path / "settings.yaml",
        "theme: papre\nlanguag: zh\nplain: true\nnotifications:\n  bell: yes\n  desktop: osc9\n"
        "keymap:\n  run.logs: 7\n",
    )
    found = read_settings(path, THEMES)
    told = "\n".join(map(str, found.problems))
    for words in (
        f'{path}:1:8: theme: there is no theme papre; did you mean "paper"?',
        f'{path}:2:1: languag: unknown key; did you mean "language"?',
        f'{path}:5:9: notifications.bell: expected true or false, found "yes"; write bell: true',
    ):
        assert words in told
    assert len(found.problems) == 3
    settings = found.settings
    assert (settings.theme, settings.language, settings.plain) == ("dusk", "auto", True)
    assert (settings.notifications.bell, settings.notifications.desktop) == (True, "osc9")
    assert settings.keymap == {"run.logs": "7"}


@pytest.mark.parametrize("text", ["theme: [", "- one\n", "\x00", "just words\n", "theme: dusk\ntheme: paper\n"])
def test_what_is_no_file_of_settings_is_told_and_stops_nothing(tmp_path: Path, text: str) -> None:
    found = read_settings(write(tmp_path / "settings.yaml", text), THEMES)
    assert found.settings == Settings()
    assert found.problems


def test_a_file_of_comments_sets_nothing(tmp_path: Path) -> None:
    found = read_settings(write(tmp_path / "settings.yaml", "# theme: paper\n"), THEMES)
    assert (found.settings, found.problems) == (Settings(), ())


def test_a_changed_key_leaves_the_rest_of_the_file_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "settings.yaml", "# mine\ntheme: dusk   # at night\nkeymap:\n  # by habit\n  run.logs: l\n")
    documents.set_keys(path, {("theme",): "paper", ("notifications", "bell"): False, ("keymap", "run.stop"): "ctrl+x"})
    assert path.read_text() == (
        "# mine\ntheme: paper   # at night\nkeymap:\n  # by habit\n  run.logs: l\n  run.stop: ctrl+x\n"
        "notifications:\n  bell: false\n"
    )
    documents.set_keys(path, {("notifications", "bell"): None, ("keymap", "run.stop"): None})
    assert path.read_text() == "# mine\ntheme: paper   # at night\nkeymap:\n  # by habit\n  run.logs: l\n"


@pytest.mark.parametrize("before", [None, "", "# nothing yet\n", "# nothing yet", "{}\n", "{plain: true}\n"])
def test_a_key_is_added_to_a_file_with_little_in_it(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "settings.yaml"
    if before is not None:
        write(path, before)
    documents.set_keys(path, {("theme",): "paper"})
    assert read_settings(path, THEMES).settings.theme == "paper"
    assert ("# nothing yet" in path.read_text()) == (before is not None and "#" in before)


def test_a_file_that_is_no_mapping_is_not_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "settings.yaml", "- one\n")
    with pytest.raises(DocumentError, match="expected a mapping of keys to values"):
        documents.set_keys(path, {("theme",): "paper"})
    assert path.read_text() == "- one\n"


def test_one_setting_is_changed_and_taken_back() -> None:
    settings = with_setting(Settings(theme="paper"), ("notifications", "bell"), value=False)
    assert (settings.theme, settings.notifications.bell) == ("paper", False)
    assert with_setting(settings, ("notifications", "bell"), None) == Settings(theme="paper")


def test_a_theme_that_cannot_be_used_gives_way_to_the_default_one() -> None:
    themes = locations.themes_directory()
    themes.mkdir(parents=True)
    write(themes / "mine.yaml", "name: mine\ndark: true\n")
    path = write(locations.settings_file(), "theme: mine\n")
    app = make_app()
    assert app.theme == "dusk"
    (problem,) = app.preferences.problems
    assert str(problem).startswith(f"{path}:1:8: theme: ")
    assert 'the key "colours" is missing' in str(problem)


SET = """
theme: paper
language: zh
notifications: {bell: false, desktop: osc9}
keymap: {compose.launch: ctrl+g, run.logs: 7}
"""


def test_the_schema_takes_what_is_read_and_refuses_what_is_misspelt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", "settings"]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)

    def faults(text: str) -> list[tuple[str, str]]:
        data = parse_yaml(text, "settings.yaml").data
        return [(error.json_path, error.validator) for error in validator.iter_errors(data)]

    assert read_settings(write(tmp_path / "settings.yaml", SET), THEMES).problems == ()
    assert faults(SET) == []
    for right, wrong, place in (
        ("theme", "thme", "$"),
        ("bell", "bel", "$.notifications"),
        ("osc9", "osc8", "$.notifications.desktop"),
        ("run.logs", "run.lgs", "$.keymap"),
    ):
        assert [path for path, _kind in faults(SET.replace(right, wrong))] == [place], wrong


def test_the_schema_describes_each_setting_with_its_default_and_each_command_with_its_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["schema", "settings"])
    schema = json.loads(capsys.readouterr().out)
    told = {**schema["properties"], **schema["$defs"]["Notifications"]["properties"]}
    assert told.keys() == {*Settings.model_fields, *type(Settings().notifications).model_fields}
    assert all(item.get("description") for item in told.values())
    assert (told["jobs"]["default"], told["confirm_quit"]["default"]) == ("ended", True)
    keys = told["keymap"]["properties"]
    assert keys.keys() == all_bindings().keys()
    assert (keys["compose.launch"]["default"], keys["run.logs"]["description"]) == ("ctrl+l", "Show the logs")
