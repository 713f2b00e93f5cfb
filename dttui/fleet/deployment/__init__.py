"""Bringing the agent to hosts, and looking after it there: deploy, status, upgrade, remove."""
