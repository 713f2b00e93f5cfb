"""The screen and the prompts in a real terminal: tmux types the keys and reads what is shown."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.headless import shell_job
from tests.integration.terminal import DEADLINE_S, Terminal, terminal
from tests.lab.hosts import Lab
from tests.waiting import wait_until

__all__ = ["terminal"]

ANSWER_S = 10.0
LOOKS = 10
ACTION_S = 240.0
UNDER_WAY = "◔"
"""Stands before what is being done on a host."""

STEPS = """
    echo world size $WORLD_SIZE; i=0
    while [ $i -lt 20 ]; do i=$((i+1)); echo "{\\"step\\": $i, \\"loss\\": 2.5}" >> $DTTUI_METRICS; sleep 0.05; done
    while [ ! -e %s ]; do sleep 0.1; done
"""


def test_boxes_are_ticked_a_job_is_launched_and_followed_to_its_end(terminal: Terminal, tmp_path: Path) -> None:
    job = shell_job(tmp_path, {}, STEPS % (tmp_path / "seen"))
    job.write_text(job.read_text() + "  resources: {gpu: {count: 1}}\n")
    terminal.start("tui", job, "--demo")
    terminal.wait_for("idle")
    assert "0 of 3 ticked" in terminal.screen()
    terminal.press("Space")
    terminal.wait_for("1 of 3 ticked")
    assert "Master" not in terminal.screen()
    terminal.press("Space")
    shown = terminal.wait_for("2 of 3 ticked")
    assert "★ pytorch-dev-env" in shown
    terminal.press("m")
    terminal.wait_for("★ nlp-research-lab")
    terminal.press("C-l")
    terminal.wait_for("RUNNING")
    terminal.wait_for("step 20")
    (tmp_path / "seen").touch()
    shown = terminal.wait_for("SUCCEEDED")
    assert "★ nlp-research-lab" in shown
    assert "step 20" in shown
    terminal.press("2")
    terminal.wait_for("world size 3")
    wait_until(lambda: leaves(terminal), "left", DEADLINE_S)
    assert "left with 0" in terminal.screen()


def leaves(terminal: Terminal) -> bool:
    """Press what comes next on the way out, once, and give it time: keys that wait for a busy machine undo each other.

    A dialog may be seen before it has its focus: it has what it will have once the screen rests.
    """
    before = stage(terminal)
    if before == "left with":
        return True
    if before:
        colours = rest(terminal)
        terminal.press("Right")
        answers(lambda: terminal.colours() != colours)
        terminal.press("Enter")
    else:
        terminal.press("C-q")
    answers(lambda: stage(terminal) != before)
    return False


def stage(terminal: Terminal) -> str:
    """Return how far on the way out it is; empty at the beginning."""
    shown = terminal.screen()
    return next((text for text in ("left with", "Leave without saving?") if text in shown), "")


def answers(condition: Callable[[], bool]) -> None:
    """Wait for what comes of a key, unless it is lost."""
    with contextlib.suppress(AssertionError):
        wait_until(condition, "an answer", ANSWER_S)


def rest(terminal: Terminal) -> str:
    """Wait until the screen has not changed for some looks; return it."""
    looks = [""]

    def rests() -> bool:
        looks.append(terminal.colours())
        return len(looks) > LOOKS and len({*looks[-LOOKS:]}) == 1

    wait_until(rests, "the screen to rest", DEADLINE_S)
    return looks[-1]


@pytest.mark.lab
def test_an_unknown_host_key_and_a_passphrase_are_asked_for_at_the_terminal(
    terminal: Terminal, lab3: Lab, tmp_path: Path
) -> None:
    key = tmp_path / "locked_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "open sesame", "-f", key], check=True)
    public = key.with_suffix(".pub").read_bytes()
    host = lab3["gpu1"]
    host.run(["sh", "-c", "cat >> /root/.ssh/authorized_keys"], input=public)
    known_hosts = tmp_path / "known_hosts"
    known_hosts.touch()
    overrides = {"known_hosts": str(known_hosts), "identity_file": str(key)}
    inventory = lab3.inventory(tmp_path / "inventory.yaml", **overrides)
    terminal.start("agents", "deploy", "gpu1", "--inventory", inventory)
    shown = terminal.wait_for("[yes/no]")
    assert host.fingerprint in "".join(shown.split("\n"))
    terminal.press("yes", "Enter")
    terminal.wait_for("root@gpu1: Passphrase")
    terminal.press("wrong", "Enter")
    terminal.wait_for("That was not it")
    terminal.press("open sesame", "Enter")
    terminal.wait_for("left with 0")
    assert known_hosts.read_text()
    terminal.close()
    terminal.start("--apply", shell_job(tmp_path, {"gpu1": 1}, "true"), "--inventory", inventory)
    terminal.wait_for("root@gpu1: Passphrase")  # not the word alone: a warning before it says "passphrase" too
    terminal.press("open sesame", "Enter")
    terminal.wait_for("SUCCEEDED")


@pytest.mark.lab
def test_a_host_gets_an_agent_is_checked_and_loses_the_agent_on_the_screen(
    terminal: Terminal, lab3: Lab, tmp_path: Path
) -> None:
    host, root = lab3["gpu1"], "/var/tmp/of-the-screen"  # Agents in the usual place are those of other tests.
    inventory = lab3.inventory(tmp_path / "inventory.yaml", agent_root=root)
    terminal.start("--inventory", inventory)
    terminal.wait_for("no agent")
    terminal.press("h")
    terminal.wait_for("3 without agent")
    shown = acts(terminal, "d", "Deploy the agent to 1 host?", ["Enter"], "✓ deploy: installed")
    assert "✗" not in shown
    host.run(["test", "-d", root])
    terminal.wait_for("2 without agent")
    acts(terminal, "c", "", [], "✓ doctor: ")
    acts(terminal, "x", "Remove the agent from 1 host?", ["Right", "Enter"], "✓ remove agent: removed")
    terminal.wait_for("3 without agent")
    assert root not in host.run(["ps", "-eo", "args"]).stdout.decode()


def acts(terminal: Terminal, key: str, question: str, answer: list[str], outcome: str) -> str:
    """Press a key and answer what is asked until an outcome is shown; again where a busy machine has lost a key."""

    def is_told() -> str:
        shown = terminal.screen()
        if outcome in shown:
            return shown
        if question and question in shown:
            for step in answer:
                colours = terminal.colours()
                terminal.press(step)
                answers(lambda: terminal.colours() != colours)  # noqa: B023 - asked at once
            answers(lambda: question not in terminal.screen())
        elif UNDER_WAY not in shown:
            terminal.press(key)
            answers(lambda: terminal.screen() != shown and any(text in terminal.screen() for text in comes))
        return ""

    comes = [text for text in (question, outcome, UNDER_WAY) if text]
    try:
        return wait_until(is_told, outcome, ACTION_S)
    except AssertionError as error:
        raise AssertionError(f"{outcome!r} did not come; the screen is\n{terminal.screen()}") from error
