"""What a script imports, looked for by real agents in a real interpreter before anything is started."""

from __future__ import annotations

from pathlib import Path

from dttui.errors import ExitCode
from tests.integration.headless import dttui_here, write_job
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents

ONE, TWO = "pytorch-dev-env", "llm-training-env"


def test_a_job_whose_script_imports_what_no_host_has_is_refused_with_the_line_that_installs_it(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "helper.py").write_text("import module_of_nobody\nraise SystemExit('imported too early')\n")
    (tmp_path / "w" / "train.py").write_text("import helper, json\ndef f():\n    import another_of_nobody\n")
    run = {"script": "train.py", "workdir": "w"}
    file = write_job(tmp_path, {ONE: 1, TWO: 1}, framework="pytorch-ddp", run=run)
    refused = dttui_here("--demo", "--apply", file)
    assert refused.returncode == ExitCode.PREFLIGHT, refused.stderr
    assert "has no module_of_nobody, which the script imports, first at helper.py:1" in refused.stderr
    assert "-m pip install module-of-nobody" in refused.stderr
    assert "has no another_of_nobody, imported in a function" in refused.stderr
    ignored = dttui_here("--demo", "--apply", file, "--ignore", "module-missing")
    assert ignored.returncode == ExitCode.JOB_FAILED, ignored.stderr
    assert "has no module module_of_nobody." in ignored.stderr
