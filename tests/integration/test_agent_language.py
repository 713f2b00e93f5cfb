"""What a real agent refuses, lacks and warns of reaches a person in their language, through its codes alone."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.facts import FactsRequest, HostFacts
from dtagent.protocol.jobs import NodeStatus
from dtagent.protocol.preparation import PrepareReply, PrepareRequest
from dtagent.protocol.probes import ListenReply, ListenRequest, PathsReply, PathsRequest
from dtagent.protocol.rpc import ErrorCode

from dttui.agent_words import agent_text
from dttui.errors import AgentError, AgentGoneError
from dttui.i18n import Message, retell, set_language
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.transport.base import Nobody
from dttui.transport.local import LocalTransport
from tests.tui.catalogue import compile_catalogues
from tests.waiting import PATIENCE_S

HERE = Environment(name="gpu1", host="localhost")
KEY = AttemptKey("job", 0)


@pytest.fixture(autouse=True)
def chinese() -> Iterator[None]:
    compile_catalogues()
    set_language("zh")
    yield
    set_language("en")


async def connect(root: Path) -> AgentClient:
    command = [sys.executable, "-I", "-m", "dtagent", "connect", "--root", str(root), "--idle-exit", "60"]
    return await AgentClient.connect(HERE, LocalTransport(command), Nobody(), PATIENCE_S)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AgentClient]:
    connected = await connect(tmp_path / "root")
    yield connected
    await connected.call("shutdown", None, dict)
    await connected.close()


def wish(**more: object) -> PrepareRequest:
    return PrepareRequest(KEY, 0, sys.executable, "127.0.0.1", True, (29500, 29999), 0, **more)  # type: ignore[arg-type]  # fields of it


async def test_a_refusal_is_told_in_the_language_of_the_person_and_again_in_another(client: AgentClient) -> None:
    with pytest.raises(AgentError) as refused:
        await client.call("prepare", wish(required_paths=["/nowhere"]), PrepareReply)
    assert (refused.value.code, refused.value.message) == (ErrorCode.REFUSED, "gpu1：这里没有 /nowhere")
    assert isinstance(refused.value.message, Message)
    set_language("en")
    assert retell(refused.value.message.recipe) == "gpu1: there is no /nowhere here"


async def test_what_the_agent_says_of_calls_themselves_is_told_in_that_language_too(client: AgentClient) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        questions = {
            "不是端口范围：9 到 9": ("listen", ListenRequest("ab" * 32, 1.0, (9, 9)), ListenReply),
            f"从 {port} 到 {port} 的端口都被占用": ("listen", ListenRequest("ab" * 32, 1.0, (port, port)), ListenReply),
            "不是绝对路径：'a/b'": ("paths", PathsRequest(["a/b"]), PathsReply),
            "这里没有任务 job 的第 0 次尝试": ("status", KEY, NodeStatus),
            "中没有方法 'sing'": ("sing", None, dict),
        }
        for words, (method, request, reply) in questions.items():
            with pytest.raises(AgentError) as refused:
                await client.call(method, request, reply)
            assert refused.value.message.endswith(words)


async def test_what_a_host_lacks_is_told_in_that_language(client: AgentClient) -> None:
    facts = await client.call("facts", FactsRequest(["no-such-python"]), HostFacts)
    (python,) = facts.pythons
    assert python.error == "no-such-python is not on this host's PATH"
    assert agent_text(python.error, python.error_notice) == "no-such-python 不在此主机的 PATH 上"
    if facts.gpu_note:
        assert isinstance(agent_text(facts.gpu_note, facts.gpu_note_notice), Message)


async def test_why_there_is_no_agent_to_talk_to_is_told_in_that_language(tmp_path: Path) -> None:
    (tmp_path / "root").touch()
    with pytest.raises(AgentGoneError) as refused:
        await connect(tmp_path / "root")
    assert f"无法建立 {tmp_path / 'root'}：File exists" in refused.value.message
    assert "dtagent" not in refused.value.message.replace(str(tmp_path), "")
