"""All that the agent's sources say to people is in the catalogue that both sides share, with what fills it."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import re
import resource
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dtagent
import pytest
from dtagent.daemon.server import LEAST_HANDLES
from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import EndReason, NodeState, NodeStatus
from dtagent.protocol.rpc import ErrorCode, to_wire
from dtagent.protocol.said import NOTICE, Said, Sentence, notice_line, recalled, said_at_end
from dtagent.protocol.sentences import SENTENCES, say
from dtagent.protocol.telemetry import GpuSample

from tests.agent.notices import said

SOURCES = Path(dtagent.__file__).parent
CATALOGUE = SOURCES / "protocol" / "sentences.py"
OWN_TERMINAL = {"terminal", "cli.py"}
"""What is said there goes to a person logged in on the host, and never to dttui; what `connect` says is raised."""
ERRORS = {
    "DtagentError": 0,
    "RootError": 0,
    "StuckError": 0,
    "WarmError": 0,
    "GpuGoneError": 0,
    "NoAnswerError": 0,
    "RpcError": 1,
}
"""Error → which of its arguments is said."""
TEXTS = {
    name: [item.name for item in dataclasses.fields(kind)]
    for module in (
        importlib.import_module(f"dtagent.protocol.{path.stem}") for path in CATALOGUE.parent.glob("[a-z]*.py")
    )
    for name, kind in inspect.getmembers(module, dataclasses.is_dataclass)
    if any(item.name.endswith(NOTICE) for item in dataclasses.fields(kind))
}
"""What goes over the wire with texts in it → its fields, in order."""


def trees() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted(SOURCES.rglob("*.py")):
        if path != CATALOGUE:
            yield path.relative_to(SOURCES), ast.parse(path.read_text(encoding="utf-8"))


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield f"{path}:{node.lineno}", node


def name_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def placeholders(english: str) -> set[str]:
    return {name for _text, name, _spec, _as in string.Formatter().parse(english) if name is not None}


def is_prose(node: ast.AST | None) -> bool:
    """Whether a value is text that is made on the spot, or a part of it is; what a call returns is looked at there."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and bool(node.value)
    if node is None or isinstance(node, (ast.Call, ast.Subscript, ast.Compare)):
        return False
    return isinstance(node, ast.JoinedStr) or any(is_prose(item) for item in ast.iter_child_nodes(node))


def test_each_sentence_has_a_code_of_its_own_and_places_by_name() -> None:
    declared = [value for value in vars(sentences).values() if isinstance(value, Sentence)]
    assert len({item.code for item in declared}) == len(declared) == len(SENTENCES)
    for item in declared:
        assert item.code == item.english or re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", item.code), item.code
        assert all(re.fullmatch(r"[a-z][a-z0-9]*", name) for name in placeholders(item.english)), item.english
        assert "{" not in re.sub(r"\{[a-z0-9]+\}", "", item.english), f"{item.english}: a value is text by then"


def test_each_sentence_is_said_somewhere_with_all_that_fills_it() -> None:
    used: dict[str, list[set[str] | None]] = {}
    of_names = {name: item.code for name, item in vars(sentences).items() if isinstance(item, Sentence)}
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in of_names:
                used.setdefault(of_names[node.attr], [])
            if not isinstance(node, ast.Call):
                continue
            names = {str(item.arg) for item in node.keywords}
            code = None
            if isinstance(node.func, ast.Attribute) and node.func.attr in of_names:
                code = of_names[node.func.attr]
            elif name_of(node) == "notice" and path.parts[0] == "payload":
                assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}"
                code = str(node.args[0].value)
            if code is not None:
                assert names == placeholders(SENTENCES[code].english), f"{path}:{node.lineno}: {code}"
                used.setdefault(code, []).append(names)
    for reason in EndReason:
        used.setdefault(reason.value, [])
    assert sorted(SENTENCES.keys() - used.keys()) == []


def test_what_is_raised_to_be_told_is_a_sentence() -> None:
    made_up = [
        place
        for place, call in calls()
        if name_of(call) in ERRORS
        and not OWN_TERMINAL.intersection(Path(place.partition(":")[0]).parts)
        and is_prose(next(iter(call.args[ERRORS[name_of(call)] :]), None))
    ]
    assert made_up == []


def test_what_goes_out_as_text_in_an_answer_is_a_sentence_or_the_words_of_others() -> None:
    found, made_up = set(), []
    for place, call in calls():
        fields = TEXTS.get(name_of(call), [])
        texts = {name[: -len(NOTICE)] for name in fields if name.endswith(NOTICE)}
        given = dict(zip(fields, call.args, strict=False)) | {str(item.arg): item.value for item in call.keywords}
        for name in texts & given.keys():
            found.add(name)
            if is_prose(given[name]):
                made_up.append(f"{place}: {name}")
    assert made_up == []
    assert {"reason", "warnings", "detail", "error", "unseen", "gpu_note"} <= found


def test_only_the_words_of_others_go_without_a_code() -> None:
    """Words of others are in no source: what is written there is the agent's own, and in the catalogue."""
    for place, call in calls():
        if name_of(call) in ("Said", "recalled"):
            assert not is_prose(call.args[0]), place
    for path, tree in trees():
        for node in ast.walk(tree) if path.parts[0] == "payload" else ():
            for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
                if isinstance(key, ast.Constant) and key.value in ("refusal", "unseen", "refused", "note", "error"):
                    assert not is_prose(value), f"{path}:{value.lineno}"


def test_what_an_attempt_records_to_be_told_is_recorded_with_its_code() -> None:
    found = 0
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict) and any(
                isinstance(key, ast.Constant) and key.value == "event" for key in node.keys
            ):
                keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
                if keys & {"text", "reason"}:
                    found += 1
                    assert "notice" in keys, f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and name_of(node) in ("_note", "_record"):
                told = {item.arg for item in node.keywords}
                found += bool(told & {"text", "reason"})
                assert "notice" in told or not told & {"text", "reason"}, f"{path}:{node.lineno}"
    assert found >= 4


def test_a_text_goes_out_in_english_with_its_code_beside_it() -> None:
    why, warning = sentences.HOST_RESTARTED(), sentences.CANNOT_WRITE(path="/a", reason="no room")
    status = NodeStatus(AttemptKey("job", 0), 0, NodeState.LOST, why, warnings=[warning, Said("it was so")])
    wire = to_wire(status)
    assert (wire["reason"], wire["reason_notice"]) == (
        "the host was restarted",
        {"code": "host-restarted", "values": {}},
    )
    values = {"path": "/a", "reason": "no room"}
    assert wire["warnings"] == ["cannot write /a: no room", "it was so"]
    assert wire["warnings_notice"] == [{"code": "cannot-write", "values": values}, None]
    assert "reason_notice" not in to_wire(NodeStatus(AttemptKey("job", 0), 0, NodeState.LOST, "as ever"))
    reset = to_wire(GpuSample(0, error=Said("GPU is lost"), recovery_action=sentences.OTHER_ACTION(number=9)))
    assert (reset["recovery_action"], "error_notice" in reset) == ("action 9", False)
    assert reset["recovery_action_notice"] == {"code": "other-action", "values": {"number": 9}}


def test_a_refusal_carries_its_code_beside_what_else_it_says() -> None:
    who = [sentences.JOB_HAS_GPUS(job="a", gpus="0, 1"), sentences.JOB_HAS_GPUS(job="b", gpus="2")]
    refusal = RpcError(ErrorCode.REFUSED, sentences.GPUS_HELD(wanted=2, free=0, who=who), {"more": 1})
    assert str(refusal) == "2 GPUs are wanted and 0 are free here; job a has GPU 0, 1; job b has GPU 2"
    assert refusal.data is not None
    held = [{"code": "job-has-gpus", "values": {"job": job, "gpus": gpus}} for job, gpus in (("a", "0, 1"), ("b", "2"))]
    assert refusal.data == {
        "more": 1,
        "notice": {"code": "gpus-held", "values": {"wanted": 2, "free": 0, "who": held}},
    }


DEEP: Any = "x"
for _level in range(400):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "notice",
    [
        None,
        3,
        [],
        {"code": 3, "values": {}},
        {"code": "x"},
        {"code": "x", "values": []},
        {"values": {}},
        {"code": "x", "values": {"a": DEEP}},
        {"code": "x", "values": {"a": 10**30}},
        {"code": "x", "values": {"a": 1.5}},
        {"code": "x", "values": {"a": None}},
        {"code": "x", "values": {"a": ["b"] * 1000}},
        {"code": "x", "values": {str(number): "b" for number in range(1000)}},
        {"code": "x", "values": {"a": {"code": "x"}}},
    ],
    ids=range(14),
)
def test_a_record_with_a_spoilt_notice_keeps_its_text(notice: object) -> None:
    text = recalled("it was so", notice)
    assert (text, text.notice) == ("it was so", None)


def test_a_notice_that_an_agent_makes_is_recalled_as_it_was() -> None:
    gpus = [sentences.GPU_UNUSABLE(index=0, error=sentences.GPU_HANGS(seconds="3", call="nvmlInit")), "GPU 1: lost"]
    for made in (sentences.GPUS_UNUSABLE(gpus=gpus), sentences.NO_WARM_START(reason=sentences.WARM_ENDED())):
        assert recalled("as before", json.loads(json.dumps(made.notice))).notice == made.notice


def test_braces_in_what_fills_a_sentence_are_only_text() -> None:
    inner = sentences.CANNOT_WRITE(path="{reason.__class__}", reason="{0}")
    outer = sentences.NO_WARM_START(reason=inner)
    assert outer == "no warm start: cannot write {reason.__class__}: {0}"
    assert outer.notice == {"code": "no-warm-start", "values": {"reason": inner.notice}}


def test_what_a_process_without_the_catalogue_says_is_said_in_its_words() -> None:
    assert say({"code": "warm-threads", "values": {"count": 3}}).startswith("3 threads run")
    assert say({"code": "warm-threads", "values": {"count": 3}}).code == "warm-threads"
    for odd in (
        {"code": "warm-threads", "values": {}},
        {"code": "warm-threads"},
        {"code": "warm-threads", "values": 3},
    ):
        assert (say(odd), say(odd).code) == ("warm-threads", "")
    assert (say("No such file"), say("No such file").code) == ("No such file", "")


def test_a_program_finds_the_code_on_stdout_of_what_a_person_is_told_on_stderr() -> None:
    stuck = sentences.DAEMON_STUCK(seconds="20")
    lines = ("Welcome to gpu1\n" + notice_line(stuck)).splitlines()
    read = said_at_end(f"dtagent: {stuck}", lines)
    assert (read, read.notice) == (stuck, stuck.notice)
    assert notice_line(Said("Permission denied")) == ""
    for spoilt in ("{", "[" * 100_000, '{"code": 3}'):
        read = said_at_end("dtagent: it was so", [f"dtagent-notice {spoilt}"])
        assert (read, read.notice) == ("it was so", None)


def test_the_bridge_says_by_code_why_there_is_no_daemon(tmp_path: Path) -> None:
    (tmp_path / "root").touch()
    for root, code in ((tmp_path / "root", "root-not-made"), (tmp_path, "root-readable")):
        tmp_path.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(root)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        (line,) = done.stderr.splitlines()
        assert said(said_at_end(line, done.stdout.splitlines()).notice) == line.removeprefix("dtagent: ")
        assert said_at_end(line, done.stdout.splitlines()).code == code


def test_the_bridge_passes_on_by_code_why_the_daemon_did_not_start(tmp_path: Path) -> None:
    limit = sentences.TOO_FEW_HANDLES(count=12, needed=LEAST_HANDLES)
    done = subprocess.run(
        [sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(tmp_path / "root")],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)),
    )  # fmt: skip
    told = said_at_end(done.stderr.splitlines()[-1], done.stdout.splitlines())
    assert (told.code, told.values["reason"]) == ("daemon-did-not-start", limit.notice)
