"""The key of an elastic attempt on a host: in one file that its launcher alone gets, and in nothing that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.conversation import Conversation

KEY = "5eC2e7" * 11


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(tmp_path / "root") as conversation:
        yield conversation


def files_with(text: str, root: Path) -> list[str]:
    return [
        str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and text.encode() in path.read_bytes()
    ]


def test_the_greeting_says_that_a_rendezvous_is_sealed(agent: Conversation) -> None:
    assert agent.call("hello", {"versions": [1]})["seals_rendezvous"] is True


@pytest.mark.parametrize("is_read", [True, False], ids=["read by its launcher", "never read"])
def test_the_key_is_in_a_file_of_its_own_and_nowhere_else_and_in_none_afterwards(
    agent: Conversation, is_read: bool
) -> None:
    directory = Path(agent.prepare("job")["directory"])
    key = directory / "rendezvous.key"
    look = f"stat -c %a {key}; env; grep -rl -f {key} {agent.root}"
    agent.start("job", [["sh", "-c", f"{look}; {f'rm {key}' if is_read else 'true'}; exit 1"]], rendezvous_key=KEY)
    assert agent.end_of("job")["state"] == "ended"
    printed = agent.streams("job")["0.out"].decode()
    assert printed.startswith("600\n")
    assert KEY not in printed
    assert printed.splitlines()[-1] == str(key), "the only file"
    assert files_with(KEY, agent.root) == []


def test_a_job_that_has_no_key_gets_no_file(agent: Conversation) -> None:
    directory = Path(agent.prepare("job")["directory"])
    agent.start("job", [["true"]])
    agent.end_of("job")
    assert not (directory / "rendezvous.key").exists()


def test_what_a_launcher_found_altered_is_told_and_nonsense_is_not(agent: Conversation) -> None:
    directory = Path(agent.prepare("job")["directory"])
    told = '[{"what": "state", "how": "forged", "mended": true, "count": 3, "time": 1.5}, {"what": 7}, 8,'
    told += ' {"what": "state", "how": "eaten", "mended": true}, {"what": "place", "how": "deleted", "mended": 1}]'
    agent.start("job", [["sh", "-c", f"printf '%s' '{told}' >{directory}/failures/rendezvous.json"]])
    assert agent.end_of("job")["disturbances"] == [{"what": "state", "how": "forged", "mended": True, "count": 3}]
