"""What is to be said alike of several nodes is said once, in every language, and nothing that differs is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol.events import EventKind

from dttui.i18n import Message, _, msg, ngettext, speaking
from dttui.jobs.event_log import EventLog, hint_of, message_of, read_events
from dttui.planning.merged_findings import Saying, merge, merged, without_node
from dttui.spec.findings import Finding, error, warning

HINT = "Install it, write its whole path, or set PATH below run.env."


@pytest.fixture(params=["en", "zh"])
def language(request: pytest.FixtureRequest) -> Iterator[str]:
    with speaking(request.param):
        yield request.param


def missing(node: str, path: str) -> Finding:
    return error("path-missing", node, _("{host}: there is no {path}").format(host=node, path=path), _(HINT))


def test_findings_that_differ_in_their_node_alone_become_one_in_every_language(language: str) -> None:
    others = [missing("gpu3", "/other"), missing("gpu4", "/data").model_copy(update={"code": "another"})]
    found = merged([missing("gpu1", "/data"), missing("gpu2", "/data"), *others])
    both = {"en": "on 2 nodes (gpu1, gpu2)", "zh": "2 个节点（gpu1、gpu2）"}[language]
    assert [item.message for item in found] == [missing(both, "/data").message, *(item.message for item in others)]
    assert {item.hint for item in found} == {_(HINT)}


def test_a_message_whose_beginning_is_one_itself_is_of_its_node_too() -> None:
    def busy(node: str, why: str) -> Finding:
        who = ngettext("{host}: GPU {numbers}", "{host}: GPUs {numbers}", 1).format(host=node, numbers=0)
        return warning("busy", node, _("{what}; {why}").format(what=who, why=why))

    apart = [busy("a", "a"), busy("b", "b")]
    assert merged(apart) == apart, "they differ elsewhere"
    (both,) = merged([busy("a", "held"), busy("b", "held")])
    assert both.message == "on 2 nodes (a, b): GPU 0; held"


def test_a_hint_names_all_nodes_that_it_is_for() -> None:
    for hint, told in (
        ("Set `address` of {hosts}.", "Set `address` of a-1, a-10."),
        ("Run: dttui agents deploy {hosts}", "Run: dttui agents deploy a-1 a-10"),
    ):
        hosts = ("a-1", "a-10")
        (found,) = merged(
            [warning("x", name, msg("{host}: {reason}", host=name, reason=0), msg(hint, hosts=name)) for name in hosts]
        )
        assert found.hint == told


def test_what_is_of_no_node_or_begins_otherwise_stays_as_it_is() -> None:
    others = [warning("x", "run", "two", ""), warning("x", "run", "two", ""), warning("x", "", "two", "")]
    others += [warning("x", name, msg("no word from {host}", host=name)) for name in ("a", "b")]
    assert merged(others) == others


def test_findings_that_were_told_in_one_language_are_alike_in_the_readers(tmp_path: Path, language: str) -> None:
    path = tmp_path / "events.jsonl"
    with speaking("en"):
        log = EventLog(path)
        for found in (missing("gpu1", "/data"), missing("gpu2", "/data")):
            log.add(EventKind.FINDING, found.message, data={"subject": found.subject, "hint": found.hint})
    told = [Saying(event.data["subject"], message_of(event), hint_of(event), "") for event in read_events(path)]
    ((index, message, hint),) = merge(told)
    assert (index, hint) == (0, _(HINT))
    assert message.endswith(missing("", "/data").message)


ODD: tuple[dict[str, object], ...] = (
    {"id": 3},
    {"id": "{host}: x", "values": []},
    {"id": "{host}: {x}", "values": {"host": "a"}},
)


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_what_a_spoilt_file_tells_is_of_no_node(odd: dict[str, object]) -> None:
    said = Saying("a", Message.of("a: odd", odd), "", "")
    assert merge([said, said]) == [(0, "a: odd", ""), (1, "a: odd", "")]
    assert without_node(said.message, "a") == "a: odd"


def test_a_name_that_stands_above_is_left_out_of_the_message_in_every_language(language: str) -> None:
    message = missing("gpu1", "/data").message
    silent = msg("no word from {host}", host="gpu1")
    assert without_node(message, "gpu1") == missing("", "/data").message.lstrip(":： ")
    assert [without_node(message, "gpu2"), without_node(silent, "gpu1")] == [message, silent]
