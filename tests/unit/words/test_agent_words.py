"""What agents say is said in the reader's language by its code, and as it came where none is known."""

from __future__ import annotations

import ast
import json
import time
from pathlib import Path
from typing import Any

import pytest
from dtagent.facts.interpreters import examine_all
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.events import EventKind
from dtagent.protocol.jobs import EndReason, NodeState, NodeStatus
from dtagent.protocol.notices import Notice
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.said import Said, Sentence
from dtagent.protocol.sentences import SENTENCES
from dtagent.telemetry import nvml
from pydantic import TypeAdapter

import dttui
from dttui import agent_words, jobs
from dttui.agent_words import MOST_CHARACTERS, agent_term, agent_text, agent_texts, notice_in
from dttui.engine.failures import ending
from dttui.i18n import Message, msg, retell, set_language
from dttui.jobs.event_log import EventLog

pytestmark = pytest.mark.usefixtures("english")

DEADLINE_S = 10.0


def notice_of(said: Said) -> Notice:
    """Return the notice of a text as it comes over the wire."""
    return Notice(**json.loads(json.dumps(said.notice)))


def filled(sentence: Sentence) -> Said:
    names = [name for name in sentence.english.replace("{", "}").split("}")[1::2]]
    return sentence(**{name: f"<{name}>" for name in names})


@pytest.mark.parametrize("code", SENTENCES)
def test_every_sentence_of_agents_is_said_in_the_language_of_the_person(code: str) -> None:
    english = filled(SENTENCES[code])
    assert agent_text("an older wording", notice_of(english)) == english
    set_language("zh")
    chinese = agent_text(english, notice_of(english))
    assert [f"<{name}>" in chinese for name in english.values] == [True] * len(english.values)
    assert chinese != english or code in ("gpus-unusable", "stack-unread")
    assert isinstance(chinese, Message)
    set_language("en")
    assert retell(chinese.recipe) == english


def test_no_sentence_of_an_agent_is_known_by_its_words() -> None:
    tree = ast.parse(Path(agent_words.__file__).read_text(encoding="utf-8"))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert [text for text in texts if any(item.english == text for item in SENTENCES.values())] == []
    assert "re" not in {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}


def test_nothing_is_decided_by_the_words_of_an_agents_reason() -> None:
    compared = []
    for path in sorted(Path(dttui.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.Compare)):
            sides = [node.left, *node.comparators]
            named = [item for item in sides if isinstance(item, ast.Attribute) and item.attr in ("reason", "unseen")]
            literal = [item for item in sides if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if named and literal:
                compared.append(f"{path.name}:{node.lineno}")
    assert compared == []


def test_a_text_without_a_code_or_with_an_unknown_one_is_shown_as_it_came() -> None:
    set_language("zh")
    assert agent_text("the host was restarted", None) == "the host was restarted"
    assert agent_text("it said \x1b[31mso", Notice("of-next-year", {"what": "so"})) == "it said so"
    assert agent_text("the host was restarted", Notice("host-restarted")) == "主机重新启动了"
    assert agent_text(None, None) == ""


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"other": "x"},
        {"reason": {"code": "of-next-year", "values": {}}},
        {"reason": {"code": "paths-missing", "values": {}}},
        {"reason": {"code": "paths-missing"}},
        {"reason": {"code": ["paths-missing"], "values": {}}},
        {"reason": {"code": "paths-missing", "values": []}},
        {"reason": {"values": {}}},
        {"reason": ["x"] * 100_000},
        {"reason": "x" * (MOST_CHARACTERS + 1)},
    ],
    ids=str,
)
def test_a_code_that_lacks_what_fills_it_or_has_too_much_leaves_the_text_as_it_came(values: dict[str, Any]) -> None:
    set_language("zh")
    began = time.monotonic()
    assert agent_text("as it came", Notice("no-warm-start", values)) == "as it came"
    assert time.monotonic() - began < DEADLINE_S


def test_sentences_in_sentences_have_an_end() -> None:
    deep: dict[str, Any] = {"code": "no-warm-start", "values": {"reason": "x"}}
    for _level in range(30):
        deep = {"code": "no-warm-start", "values": {"reason": deep}}
    wide: Any = "x"
    for _level in range(6):
        wide = [{"code": "gpus-unusable", "values": {"gpus": wide}}] * 40
    nested: Any = "x"
    for _level in range(5000):
        nested = [nested]
    began = time.monotonic()
    for values in (deep["values"], {"reason": wide}, {"reason": nested}):
        assert agent_text("as it came", Notice("no-warm-start", values)) == "as it came"
    assert time.monotonic() - began < DEADLINE_S


def test_what_fills_a_sentence_is_only_text_and_harmless() -> None:
    set_language("zh")
    paths = "{paths.__class__:>999999999}\x1b[2J/data\u202e"
    assert agent_text("", Notice("paths-missing", {"paths": paths})) == "这里没有 {paths.__class__:>999999999}/data"
    ports = agent_text("", Notice("ports-taken", {"first": 10**19, "last": True}))
    assert ports.startswith("从 10000000000000000000 到")
    again = agent_text("", Notice("paths-missing", {"paths": "{0}", "self": 1, "message": "{x}"}))
    assert isinstance(again, Message)
    assert retell(json.loads(json.dumps(again.recipe))) == "这里没有 {0}"


def test_a_sentence_in_a_sentence_is_told_again_in_another_language() -> None:
    gpus = [
        sentences.GPU_UNUSABLE(index=0, error=nvml.silence(3.2, "nvmlInit")),
        sentences.GPU_UNUSABLE(index=12, error="GPU is lost"),
    ]
    note = sentences.GPUS_UNUSABLE(gpus=gpus)
    assert note == "GPU 0: the driver has not answered for 3 s: nvmlInit hangs; GPU 12: GPU is lost"
    directory = jobs.create("job")
    log = EventLog(directory.events)
    log.add(EventKind.PROGRESS, msg("{host}: {reason}", host="gpu1", reason=agent_text(note, notice_of(note))))
    set_language("zh")
    (event,) = directory.read_events()
    assert event.message == "gpu1：GPU 0：驱动已 3 秒没有响应：nvmlInit 卡住; GPU 12：GPU is lost"


def test_texts_are_told_one_by_one_whatever_notices_come_with_them() -> None:
    set_language("zh")
    texts = ["the host was restarted", "as it came"]
    known = Notice("host-restarted")
    assert agent_texts(texts, [known, None]) == ["主机重新启动了", "as it came"]
    assert agent_texts(texts, [None, known, known]) == ["the host was restarted", "主机重新启动了"]
    assert agent_texts(texts, [known]) == ["主机重新启动了", "as it came"]
    assert agent_texts(texts, None) == texts


def test_terms_of_the_driver_are_their_own_codes() -> None:
    set_language("zh")
    assert [agent_term(term) for term in ("power brake", "GPU reset", "solar flare")] == [
        "供电制动",
        "重置 GPU",
        "solar flare",
    ]
    assert agent_term("action 9", Notice("other-action", {"number": 9})) == "操作 9"
    assert agent_term("host-restarted") == "host-restarted", "a code is no term"


@pytest.mark.parametrize(
    "data", [None, 3, {}, {"notice": 3}, {"notice": {"code": 1, "values": {}}}, {"notice": {"code": "x", "values": 1}}]
)
def test_an_error_without_a_sound_notice_has_none(data: object) -> None:
    assert notice_in(data) is None


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        ({"reason": "stopped"}, EndReason.STOPPED),
        ({"reason": "a process failed"}, EndReason.PROCESS_FAILED),
        ({"reason": "host died"}, None),
        ({"reason": "halted", "reason_notice": {"code": "stopped", "values": {}}}, EndReason.STOPPED),
        ({"reason": "it broke", "reason_notice": {"code": "process-failed", "values": {}}}, EndReason.PROCESS_FAILED),
        ({"reason": "stopped", "reason_notice": {"code": "of-next-year", "values": {}}}, None),
        ({}, None),
    ],
)
def test_why_a_node_ended_is_decided_by_the_code_and_of_an_older_agent_by_its_word(
    wire: dict[str, Any], expected: EndReason | None
) -> None:
    body = {"key": {"job_id": "job", "attempt": 0}, "node_rank": 0, "state": "ended", **wire}
    assert TypeAdapter(NodeStatus).validate_python(body).end_reason is expected


def test_an_end_is_told_by_its_code_in_the_language_of_the_person() -> None:
    why = sentences.SUPERVISOR_DIED()
    wire = to_wire(NodeStatus(AttemptKey("job", 0), 0, NodeState.LOST, why))
    set_language("zh")
    assert ending(TypeAdapter(NodeStatus).validate_python(wire)) == "这台主机上的监管进程已死亡"
    del wire["reason_notice"]
    assert ending(TypeAdapter(NodeStatus).validate_python(wire)) == "the supervisor on this host died"


def test_what_interpreters_and_drivers_are_said_to_lack_is_told_in_the_language_of_the_person(tmp_path: Path) -> None:
    fails = tmp_path / "python"
    fails.write_text("#!/bin/sh\necho oh >&2\nexit 3\n")
    fails.chmod(0o700)
    pythons = ["", "no-such", "a/b", "/nowhere", str(tmp_path), "/etc/hosts", "/bin/true", str(fails)]
    errors = [facts.error for facts in examine_all(pythons)]
    said = [error for error in errors if isinstance(error, Said)]
    assert len(said) == len(pythons)
    set_language("zh")
    told = [agent_text("as it came", notice_of(item)) for item in (*said, *nvml.DRIVER_NOTES.values())]
    assert "as it came" not in told
    assert told[len(pythons) - 1] == f"{fails} 以 3 退出：oh"
