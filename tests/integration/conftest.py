"""Fixtures of the integration tests, from the modules that make them."""

from __future__ import annotations

from tests.integration.deploy_fixtures import agent, host, installed, newer, requirements, source, wheelhouse
from tests.integration.ssh_fixtures import ssh_config, sshd, transport
from tests.integration.trained import trained

__all__ = [
    "agent",
    "host",
    "installed",
    "newer",
    "requirements",
    "source",
    "ssh_config",
    "sshd",
    "trained",
    "transport",
    "wheelhouse",
]
