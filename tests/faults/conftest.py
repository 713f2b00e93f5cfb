"""Fixtures of the faults, from the modules that make them; and no controller of a test that failed goes on."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests.integration.deploy_fixtures import agent, newer, requirements, source, wheelhouse
from tests.integration.ssh_fixtures import ssh_config, sshd, transport
from tests.processes import processes_like

__all__ = ["agent", "newer", "requirements", "source", "ssh_config", "sshd", "transport", "wheelhouse"]


@pytest.fixture(autouse=True)
def ended_controllers(isolated_environment: None) -> Iterator[None]:
    """A test that fails must not leave a controller that waits for its hosts for ever."""
    state = os.environ["XDG_STATE_HOME"]
    yield
    for pid in processes_like("dttui.engine", state):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
