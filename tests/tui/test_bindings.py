"""Every key of every screen, wherever it is declared: it has an id and says what it does in both languages."""

from __future__ import annotations

from dttui.i18n import in_all_languages
from dttui.tui.bindings import GROUPS, all_bindings, checked_keymap, declared, keys_of
from tests.tui.catalogue import compile_catalogues


def test_every_binding_has_an_id_and_says_what_it_does() -> None:
    for owner, binding in declared():
        where = f"{owner.__name__}: {binding.key}"
        assert binding.id, where
        assert binding.description, where
        assert "." in binding.id, where
        assert binding.tooltip or not binding.show, where


def test_an_id_is_of_one_command_alone() -> None:
    owners: dict[str, set[tuple[str, str]]] = {}
    for owner, binding in declared():
        owners.setdefault(binding.id or "", set()).add((owner.__name__, binding.action))
    assert {name: found for name, found in owners.items() if len(found) > 1} == {}


def test_every_group_of_commands_has_a_name() -> None:
    assert {known.group for known in all_bindings().values()} - set(GROUPS) == set(), "add it to GROUPS"


def test_every_command_is_told_in_both_languages() -> None:
    compile_catalogues()
    same = {
        text
        for known in all_bindings().values()
        for text in (known.binding.description, known.binding.tooltip, GROUPS[known.group])
        if text and len({*in_all_languages(text)}) == 1
    }
    assert same == set()


def test_a_keymap_is_told_what_it_cannot_have_and_the_rest_of_it_counts() -> None:
    known = all_bindings()
    wanted = {
        "compose.launch": "ctrl+g",
        "compose.lunch": "x",
        "run.stop": "k",
        "run.logs": "ctrl+nothing",
        "app.help": "?, f2",
        "jobs.filter": "q",
    }
    good, faults = checked_keymap(wanted, known)
    assert good == {"compose.launch": "ctrl+g", "app.help": "question_mark,f2"}
    told = {fault.id: f"{fault.message}. {fault.hint}" for fault in faults}
    assert told["compose.lunch"] == 'there is no command of this id. did you mean "compose.launch"?'
    assert "k already does: stacks (run.stacks)" in told["run.stop"]
    assert "ctrl+nothing is no key" in told["run.logs"]
    assert "q already does: quit (app.quit-too)" in told["jobs.filter"]


def test_two_commands_may_change_their_keys() -> None:
    good, faults = checked_keymap({"list.tick": "m", "list.master": "space"}, all_bindings())
    assert faults == []
    assert keys_of(all_bindings()["list.tick"], good) == ("m",)


def test_of_two_that_want_the_same_key_one_gets_it() -> None:
    good, faults = checked_keymap({"run.stop": "f5", "run.stacks": "f5"}, all_bindings())
    assert good == {"run.stop": "f5"}
    assert [fault.id for fault in faults] == ["run.stacks"]


def test_the_keys_that_commands_have_by_themselves_are_a_keymap_without_faults() -> None:
    known = all_bindings()
    wanted = {name: ",".join(item.keys) for name, item in known.items()}
    assert checked_keymap(wanted, known) == (wanted, [])
