"""Two deployments to one root at once, by the program that runs on the host."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from dttui.fleet.deployment.deploy_program import sole_deployment_to
from tests.waiting import wait_until


def test_a_deployment_that_waited_for_one_which_failed_makes_the_root_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, waits, found = tmp_path / "root", threading.Event(), list[tuple[list[Path], bool]]()
    lock = fcntl.flock

    def noted(descriptor: int, how: int) -> None:
        try:
            lock(descriptor, how)
        except BlockingIOError:
            waits.set()
            raise

    def deploy() -> None:
        with sole_deployment_to(root) as (place, made):
            found.append((made, (place / "agents").is_dir()))

    with sole_deployment_to(root) as (_place, made):
        assert made == [root / "agents", root]
        monkeypatch.setattr(fcntl, "flock", noted)
        second = threading.Thread(target=deploy)
        second.start()
        wait_until(waits.is_set, "the second to wait for the first", 30)
        for path in made:  # As one that failed leaves it.
            os.rmdir(path)
    second.join(30)
    assert found == [([root / "agents", root], True)]
