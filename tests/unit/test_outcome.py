"""Which failure came first: causes before consequences, then by time on one clock."""

from __future__ import annotations

import pytest

from dttui.services.outcome import is_consequence


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [/x/pair.cc:553] Connection closed by peer [10.0.0.1]:4",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
        "RuntimeError: Read error [10.0.0.1]:4: Connection reset by peer",
    ],
)
def test_an_error_about_a_peer_is_a_consequence(error: str) -> None:
    assert is_consequence({"exit_code": 1, "error": error})


@pytest.mark.parametrize(
    "data",
    [
        {"exit_code": 3, "error": None, "tail": ["x: Connection reset by peer"]},
        {"exit_code": 1, "error": "torch.OutOfMemoryError: CUDA out of memory"},
        {"exit_code": None, "signal": 9, "error": None, "tail": []},
        {"exit_code": 1, "error": "ModuleNotFoundError: No module named 'x'"},
    ],
)
def test_an_error_of_its_own_is_a_cause(data: dict[str, object]) -> None:
    assert not is_consequence(data)


def test_a_rank_that_our_own_stop_ended_is_a_consequence() -> None:
    assert is_consequence({"exit_code": None, "signal": 15, "error": None})
