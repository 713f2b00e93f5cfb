"""Two callers in one process, at once: each in a language of its own, with secrets of its own, on real controllers."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from dttui import locations
from dttui.app import App, Caller
from dttui.diagnosis import Diagnosis
from dttui.errors import UsageError
from dttui.inventory import demo_inventory
from dttui.planning import Plan, Submission
from dttui.spec import load_job
from tests.integration.headless import DEADLINE_S, shell_job
from tests.tui.catalogue import compile_catalogues
from tests.waiting import until

COMMAND = 'printf %s "$TOKEN" | sha256sum; echo "$TOKEN"; exit 3'


@dataclass
class Told:
    """All that one caller was told."""

    plan: Plan
    refusal: UsageError
    diagnosis: Diagnosis
    words: str
    logs: str


@pytest.fixture(autouse=True)
def of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_catalogues()
    monkeypatch.setenv("TOKEN", "token-of-the-process")
    monkeypatch.setenv("TOKEN_OF_NOBODY", "another-of-the-process")


async def call(environment: str, directory: Path, caller: Caller) -> Told:
    """Plan, launch and diagnose a job that fails, as a server would for one of its callers."""
    inventory = demo_inventory(locations.demo_root(), locations.shipped("examples"), sys.executable)
    job = load_job(shell_job(directory, {environment: 1}, COMMAND, secrets=["TOKEN"]))
    submission = Submission(job, inventory, directory)
    app = App(caller)
    plan = await asyncio.to_thread(app.plan, submission)
    lacking = job.model_copy(update={"run": job.run.model_copy(update={"secrets": ("TOKEN_OF_NOBODY",)})})  # type: ignore[union-attr]  # shell_job gives it one
    refused = Submission(lacking, inventory, directory)
    with pytest.raises(UsageError) as refusal:
        app.submit(refused, await asyncio.to_thread(app.plan, refused))
    found = await asyncio.to_thread(app.submit, submission, plan)
    follower = app.follow(found.directory)
    await until(lambda: [follower.poll(), follower.is_over][1], f"{environment} ends", DEADLINE_S)
    diagnosis = await asyncio.to_thread(app.diagnose, found.directory, follower.view)
    await app.close()
    events = found.directory.events.read_text(encoding="utf-8")
    files = sorted(found.directory.logs(0, environment).glob("*.out"))
    redaction = follower.view.redaction()
    logs = "".join(redaction.text(path.read_text()) for path in files)
    return Told(plan, refusal.value, diagnosis, events, logs)


async def test_two_requests_at_once_mix_neither_languages_nor_secrets(tmp_path: Path) -> None:
    callers = {
        "pytorch-dev-env": Caller("en", {"TOKEN": "first-callers-token", "PATH": os.environ["PATH"]}),
        "llm-training-env": Caller("zh", {"TOKEN": "second-callers-token", "PATH": os.environ["PATH"]}),
    }
    directories = {name: Path(tempfile.mkdtemp(dir=tmp_path)) for name in callers}
    english, chinese = await asyncio.gather(*(call(name, directories[name], who) for name, who in callers.items()))
    assert english.refusal.message == "the environment variable TOKEN_OF_NOBODY is not set"
    assert chinese.refusal.message == "没有设置环境变量 TOKEN_OF_NOBODY"
    for told, name in ((english, "pytorch-dev-env"), (chinese, "llm-training-env")):
        own = str((callers[name].variables or {})["TOKEN"])
        assert hashlib.sha256(own.encode()).hexdigest() in told.logs
        assert "•••" in told.logs
        assert not [word for word in ("callers-token", "of-the-process") if word in told.logs + told.words]
        assert "TOKEN_OF_NOBODY" not in str(told.plan)
    assert english.diagnosis.evidence.reason.isascii()
    assert not chinese.diagnosis.evidence.reason.isascii()
