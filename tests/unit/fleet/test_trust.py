"""Trusting a host's key by a fingerprint that a person was told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dttui.errors import HostKeyError, UsageError
from dttui.fleet.trust import trust_host
from dttui.inventory.models import Environment
from dttui.transport.base import Nobody, Prompt, Prompter
from dttui.transport.routes import Transports

SHOWN = "SHA256:" + "a" * 43
HOST = Environment(name="gpu1", host="192.0.2.1")


class Host:
    """Shows one key, and notes whether it was trusted."""

    def __init__(self, known: bool | HostKeyError = False) -> None:
        self.known = known
        self.was_trusted = False

    async def fetch_host_key(self, *_arguments: object) -> Any:
        return SimpleNamespace(fingerprint=SHOWN)

    async def user_on(self, *_arguments: object) -> str:
        return "li"

    async def vouched_for(self, *_arguments: object) -> bool:
        if isinstance(self.known, HostKeyError):
            raise self.known
        return self.known

    async def trust(self, *_arguments: object) -> None:
        self.was_trusted = True


class Person:
    """Says yes to everything, and notes that it was asked."""

    was_asked = False

    async def ask(self, prompt: Prompt) -> str | None:
        self.was_asked = True
        return "yes"


async def trust(host: Host, fingerprint: str | None, prompter: Prompter | None = None) -> str:
    return await trust_host(HOST, cast(Transports, host), prompter or Nobody(), fingerprint)


@pytest.mark.parametrize("written", [SHOWN, SHOWN.removeprefix("SHA256:"), f"{SHOWN}="])
async def test_the_right_fingerprint_is_taken_however_it_is_written(written: str) -> None:
    host = Host()
    assert await trust(host, written) == SHOWN
    assert host.was_trusted


async def test_of_another_fingerprint_it_is_said_that_the_host_shows_another_and_nothing_is_trusted() -> None:
    host = Host()
    with pytest.raises(HostKeyError) as refused:
        await trust(host, "SHA256:" + "b" * 43)
    assert refused.value.message == (
        f"gpu1: the host shows the key {SHOWN}, which is not the one given; nothing was trusted"
    )
    assert "another machine answers" in refused.value.hint
    assert not host.was_trusted


@pytest.mark.parametrize("given", ["", "abc", "MD5:aa:bb", "SHA256:" + "a" * 42, "SHA256:" + "a" * 45])
async def test_what_is_no_fingerprint_is_refused_before_the_host_is_asked(given: str) -> None:
    with pytest.raises(UsageError, match="is no fingerprint of a key"):
        await trust(Host(), given)


async def test_a_key_that_nobody_confirms_is_not_trusted() -> None:
    with pytest.raises(HostKeyError, match="which was not confirmed"):
        await trust(Host(), None)


@pytest.mark.parametrize("fingerprint", [None, SHOWN, "SHA256:" + "b" * 43])
async def test_of_a_key_that_has_changed_nobody_is_asked_as_if_it_were_new(fingerprint: str | None) -> None:
    host, person = Host(known=HostKeyError("gpu1", "the key of gpu1 has changed")), Person()
    with pytest.raises(HostKeyError, match="has changed"):
        await trust(host, fingerprint, person)
    assert not person.was_asked
    assert not host.was_trusted


async def test_a_key_that_is_known_already_is_not_asked_about() -> None:
    person = Person()
    assert await trust(Host(known=True), None, person) == SHOWN
    assert not person.was_asked
