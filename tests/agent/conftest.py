"""Fixtures of the agent's tests."""

from tests.agent.nvml_stub import nvml_library, nvml_stub

__all__ = ["nvml_library", "nvml_stub"]
