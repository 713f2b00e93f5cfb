"""Parts of a checkpoint of torch.distributed.checkpoint: how a search tells them, and what becomes of them together."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dtagent.checkpoints.joining import join
from dtagent.checkpoints.search import newest_complete
from dtagent.protocol.checkpoints import JOINED, PART
from dtagent.protocol.replication import STORE
from dtagent.protocol.rpc import ErrorCode

from tests.agent.conversation import Conversation

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]"
    ),
]
SAVE = """
import sys, warnings
import torch
import torch.distributed.checkpoint as dcp
warnings.simplefilter("ignore")
dcp.save({"weight": torch.arange(1000.0)}, checkpoint_id=sys.argv[1], no_dist=True)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("saved") / "step-10"
    subprocess.run([sys.executable, "-c", SAVE, str(place)], check=True, timeout=120)
    return place


@pytest.fixture
def parts(saved: Path, tmp_path: Path) -> list[Path]:
    """Return what two hosts would have: the file that names all, and the shards."""
    places = [tmp_path / host / "step-10" for host in ("a", "b")]
    for place, is_named in zip(places, (True, False), strict=True):
        place.mkdir(parents=True)
        for file in saved.iterdir():
            if (file.name == ".metadata") == is_named:
                (place / file.name).write_bytes(file.read_bytes())
    return places


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "a" / STORE / "job"


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    with Conversation(tmp_path_factory.mktemp("agent") / "root") as begun:
        yield begun


def test_a_part_is_told_apart_from_what_is_whole(parts: list[Path], saved: Path) -> None:
    named, shards = (newest_complete(part.parent) for part in parts)
    assert [(item.form, item.step) for item in named.parts] == [("torch-dcp", 10)]
    assert [(item.form, item.step) for item in shards.parts] == [(PART, 10)]
    assert named.complete == shards.complete == []
    assert newest_complete(saved.parent).parts == []
    assert newest_complete(parts[0].parent, unwanted=[str(parts[0])]).parts == []


def test_all_parts_are_the_whole_and_take_no_more_room(parts: list[Path], store: Path) -> None:
    reply = join(store, parts)
    assert (reply.path, reply.detail) == (str(store / JOINED / "step-10"), "")
    (found,) = newest_complete(store / JOINED).complete
    assert (found.path, found.step) == (reply.path, 10)
    assert os.path.samefile(Path(reply.path) / ".metadata", parts[0] / ".metadata")


def test_where_a_shard_is_short_or_missing_there_is_no_whole(parts: list[Path], store: Path) -> None:
    assert join(store, parts[:1]).path == ""
    (shard,) = parts[1].iterdir()
    os.truncate(shard, shard.stat().st_size // 2)
    reply = join(store, parts)
    assert reply.path == ""
    assert "ends after" in str(reply.detail)
    assert newest_complete(store / JOINED).complete == []
    assert list((store / JOINED).iterdir()) == []


def test_what_is_joined_takes_the_place_of_what_was(parts: list[Path], store: Path) -> None:
    first = join(store, parts)
    for part in parts:
        part.rename(part.with_name("step-20"))
    second = join(store, [part.with_name("step-20") for part in parts])
    assert not Path(first.path).exists()
    assert Path(second.path).name == "step-20"


def test_an_agent_joins_in_a_directory_of_copies_alone(
    conversation: Conversation, parts: list[Path], store: Path
) -> None:
    asked = {"store": str(store), "parts": list(map(str, parts))}
    assert conversation.call("join_checkpoint", asked)["path"] == str(store / JOINED / "step-10")
    wrongs: list[dict[str, Any]] = [{"store": str(parts[0].parent)}, {"parts": []}, {"parts": ["relative"]}]
    for wrong in wrongs:
        assert conversation.ask("join_checkpoint", asked | wrong)["error"]["code"] == ErrorCode.INVALID_PARAMS
    reply = conversation.call("checkpoints", {"directories": [str(parts[0].parent)], "parts": True})
    assert [item["step"] for item in reply["directories"][0]["parts"]] == [10]
    reply = conversation.call("checkpoints", {"directories": [str(parts[0].parent)]})
    assert reply["directories"][0].get("parts", []) == []
