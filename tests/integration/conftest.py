"""Fixtures of the integration tests, from the modules that make them."""

from __future__ import annotations

from tests.integration.ssh_fixtures import ssh_config, sshd, transport

__all__ = ["ssh_config", "sshd", "transport"]
