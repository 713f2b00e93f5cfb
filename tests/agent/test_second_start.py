"""Nothing is ever started twice, whatever has become of the records of the first start."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from dtagent.attempts import adoption
from dtagent.attempts.attempts import Attempts
from dtagent.errors import RpcError
from dtagent.locations import AttemptFiles
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import NodeStatus, ProcessSpec, StartRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.supervision import supervisor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.conversation import Conversation

KEY = AttemptKey("once", 0)
RECORDS = ("start.json", "prepared.json", "journal.jsonl", "supervisor.json")
REQUEST = StartRequest(KEY, 0, [ProcessSpec("0", [sys.executable, "-c", "pass"], "/", rank=0)], [0])


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of an agent where one attempt has run to its end."""
    root = tmp_path_factory.mktemp("ran") / "root"
    with Conversation(root) as agent:
        agent.prepare("once")
        agent.start("once", [["sh", "-c", "exit 4"]])
        agent.end_of("once")
    return root


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was started, instead of starting it."""
    found: list[str] = []
    monkeypatch.setattr(adoption, "spawn", lambda *_args, **_more: found.append("supervisor"))
    monkeypatch.setattr(supervisor.Supervisor, "run", lambda _self: found.append("processes"))
    return found


def start(root: Path) -> NodeStatus | RpcError:
    try:
        return Attempts(root, list).start(REQUEST)
    except RpcError as error:
        return error


DAMAGE = st.tuples(
    st.sampled_from(RECORDS),
    st.sampled_from(["cut", "flip", "replace", "remove"]),
    st.integers(0, 1 << 20),
    st.binary(),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(DAMAGE, min_size=1, max_size=2, unique_by=lambda damage: damage[0]))
def test_no_damage_to_the_records_leads_to_a_second_start(
    ran: Path, started: list[str], tmp_path: Path, damages: list[tuple[str, str, int, bytes]]
) -> None:
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(ran / "jobs", root / "jobs")
    files = AttemptFiles.of(root, "once", 0)
    for name, how, where, junk in damages:
        path = files.directory / name
        content = path.read_bytes()
        if how == "remove":
            path.unlink()
        elif how == "cut":
            path.write_bytes(content[: where % len(content)])
        elif how == "flip":
            place = where % len(content)
            path.write_bytes(content[:place] + bytes([content[place] ^ (1 << where % 8)]) + content[place + 1 :])
        else:
            path.write_bytes(junk)
    outcome = start(root)
    assert isinstance(outcome, (NodeStatus, RpcError))
    if isinstance(outcome, RpcError):
        assert outcome.code in (ErrorCode.DAMAGED, ErrorCode.WRONG_STATE)
    elif not outcome.exits:
        assert outcome.state.value in ("lost", "unkillable")  # A failure that is not told is never taken for success.
    assert supervisor.supervise(files.directory) == 1
    assert started == []


def test_a_start_whose_record_is_gone_is_told_as_damage(ran: Path, started: list[str], tmp_path: Path) -> None:
    shutil.copytree(ran / "jobs", tmp_path / "jobs")
    (tmp_path / "jobs/once/0/start.json").unlink()
    outcome = start(tmp_path)
    assert isinstance(outcome, RpcError)
    assert outcome.code is ErrorCode.DAMAGED
    assert started == []


def test_an_end_is_not_believed_where_an_exit_may_be_missing(ran: Path, tmp_path: Path) -> None:
    shutil.copytree(ran / "jobs", tmp_path / "jobs")
    journal = tmp_path / "jobs/once/0/journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"exit_code":4', b'"exit_code":0'))
    status = Attempts(tmp_path, list).status(KEY)
    assert status.state.value == "lost"
    assert "damaged" in status.reason
    assert status.warnings == [f"damaged records of the journal were left out; they are kept in {journal}.damaged"]
    assert b'"exit_code":0' in Path(f"{journal}.damaged").read_bytes()
