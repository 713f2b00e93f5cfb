"""What a host says it is, and what interpreters say of themselves when really run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from dtagent.facts import collection
from dtagent.facts.interpreters import MOST_AT_ONCE, Behind, ModuleQuestion, examine, examine_all
from dtagent.system import processes
from dtagent.telemetry.nvml import Nvml

from tests.agent.nvml_stub import run_child
from tests.waiting import wait_until

X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)  Platinum 8480C\n"
GRACE = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n"
NEW_ARM = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xfff\n"
AMPERE = "processor\t: 0\nCPU implementer\t: 0xc0\nCPU part\t: 0xac3\n"
BOARD = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd08\n\nModel\t\t: Raspberry Pi 4 Model B\n"
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    monkeypatch.setattr("dtagent.telemetry.nvml.LIBRARY", "libnvidia-ml-that-is-absent.so.1")
    return Nvml()


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "python"
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    return write


def install(directory: Path, name: str, version: str) -> None:
    """Lay down a distribution whose import would fail."""
    metadata = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    package = directory / name.replace("-", "_")
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")


def test_the_facts_of_this_host_are_those_of_this_host(no_driver: Nvml) -> None:
    found = collection.collect([sys.executable], no_driver)
    system = os.uname()
    assert (found.hostname, found.kernel, found.architecture) == (socket.gethostname(), system.release, system.machine)
    assert found.boot_id == processes.boot_id()
    assert found.booted_at == psutil.boot_time()
    assert found.cpu_count == len(os.sched_getaffinity(0))
    assert found.memory_total_mib == psutil.virtual_memory().total // 2**20
    assert found.cpu_model
    assert found.os
    assert found.user
    assert (found.gpus, found.driver_version) == ([], None)
    assert found.gpu_note == "no NVIDIA driver: libnvidia-ml.so.1 is not installed"
    assert [python.path for python in found.pythons] == [sys.executable]


def test_cpus_this_process_may_not_use_are_not_counted(no_driver: Nvml) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert collection.collect([], no_driver).cpu_count == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("cpuinfo", "architecture", "model"),
    [
        (X86, "x86_64", "Intel(R) Xeon(R) Platinum 8480C"),
        (GRACE, "aarch64", "Arm Neoverse V2"),
        (NEW_ARM, "aarch64", "Arm part 0xfff"),
        (AMPERE, "aarch64", "aarch64, implementer 0xc0 part 0xac3"),
        (BOARD, "aarch64", "Raspberry Pi 4 Model B"),
        (POWER, "ppc64le", "POWER9, altivec supported"),
        ("", "riscv64", "riscv64"),
    ],
)
def test_the_processor_is_named_on_every_architecture(cpuinfo: str, architecture: str, model: str) -> None:
    assert collection.cpu_model(cpuinfo, architecture) == model


def test_addresses_are_those_other_hosts_can_reach(monkeypatch: pytest.MonkeyPatch, no_driver: Nvml) -> None:
    def entry(family: int, address: str) -> SimpleNamespace:
        return SimpleNamespace(family=family, address=address)

    interfaces = {
        "lo": [entry(socket.AF_INET, "127.0.0.1"), entry(socket.AF_INET6, "::1"), entry(socket.AF_INET, "10.9.9.9")],
        "eth0": [
            entry(socket.AF_INET, "10.0.0.11"),
            entry(socket.AF_INET6, "2001:db8::11"),
            entry(socket.AF_INET6, "fe80::1%eth0"),
            entry(socket.AF_PACKET, "02:00:00:00:00:01"),
        ],
        "ib0": [entry(socket.AF_INET6, "fd00::5%ib0")],
        "usb0": [entry(socket.AF_INET, "169.254.3.1")],
        "eth1": [entry(socket.AF_PACKET, "02:00:00:00:00:02")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces)
    assert collection.collect([], no_driver).addresses == {
        "lo": ["10.9.9.9"],
        "eth0": ["10.0.0.11", "2001:db8::11"],
        "ib0": ["fd00::5"],
    }


def test_facts_name_the_gpus_of_the_driver(nvml_stub: Callable[..., dict[str, str]]) -> None:
    seen = run_child(nvml_stub(gpus=8, settings={"name": "NVIDIA H200"}), "host_facts", "10")["facts"]
    assert [(gpu["index"], gpu["name"], gpu["memory_total_mib"]) for gpu in seen["gpus"]] == [
        (index, "NVIDIA H200", 81920) for index in range(8)
    ]
    assert seen["driver_version"] == "550.54.15"
    assert "gpu_note" not in seen


def test_facts_come_without_gpus_when_the_driver_hangs(nvml_stub: Callable[..., dict[str, str]]) -> None:
    seen = run_child(nvml_stub(settings={"hang": "nvmlInitWithFlags"}), "host_facts", "0.3")
    assert seen["facts"]["gpu_note"] == "the NVIDIA driver has not answered for 0.3 s"
    assert seen["facts"]["gpus"] == []
    assert seen["facts"]["hostname"] == socket.gethostname()
    assert seen["took_s"] < 30


def test_an_interpreter_tells_its_version_and_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.13.0+cu130")
    install(tmp_path, "nvidia-nccl-cu13", "2.29.7")
    install(tmp_path, "unrelated", "1.0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = examine(sys.executable)
    assert found.error is None
    assert (found.path, found.executable) == (sys.executable, sys.executable)
    assert found.version == ".".join(str(part) for part in sys.version_info[:3])
    assert found.packages["torch"] == "2.13.0+cu130"
    assert found.packages["nvidia-nccl-cu13"] == "2.29.7"
    assert "unrelated" not in found.packages


def test_further_distributions_are_looked_for_where_they_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    info = tmp_path / "before_launcher-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: before-launcher\nVersion: 1.2\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = ["before-launcher", "gone", "torch", "../x", "-c", "a" * 200]
    (found,) = examine_all([sys.executable], packages=asked)
    assert (found.packages["before-launcher"], found.looked_for) == ("1.2", ["before-launcher", "gone"])
    assert "gone" not in found.packages
    (usual,) = examine_all([sys.executable])
    assert usual.looked_for is None
    assert "before-launcher" not in usual.packages


def test_modules_of_the_current_directory_do_not_get_in_the_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')\n")
    monkeypatch.chdir(tmp_path)
    # The empty entry stands for the current directory.
    monkeypatch.setenv("PYTHONPATH", "")
    assert examine(sys.executable).error is None


def test_user_site_packages_count_since_jobs_see_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    base = Path(sys.base_prefix) / "bin" / "python3"
    if not base.exists():
        pytest.skip("this interpreter has no base installation to look at")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path))
    install(tmp_path / "lib" / version / "site-packages", "deepspeed", "0.19.8")
    assert examine(str(base)).packages["deepspeed"] == "0.19.8"


def test_a_bare_name_is_looked_up_on_the_path(
    monkeypatch: pytest.MonkeyPatch, script: Callable[[str], str], tmp_path: Path
) -> None:
    script(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = examine("python")
    assert (found.path, found.executable, found.error) == ("python", sys.executable, None)


def test_a_path_in_the_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert examine("~/python").version is not None


def test_what_a_wrapper_prints_is_no_part_of_the_answer(script: Callable[[str], str]) -> None:
    path = script(f'#!/bin/sh\necho "module load: {{}}"\n{sys.executable} "$@"\necho bye\n')
    assert examine(path).version is not None


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no-such-python-here", "no-such-python-here is not on this host's PATH"),
        ("/opt/nowhere/bin/python", "/opt/nowhere/bin/python is not there"),
        ("/etc", "/etc is a directory"),
        ("/etc/passwd", "/etc/passwd is not executable"),
        ("venv/bin/python", "venv/bin/python is a relative path; give an absolute one, or a name on PATH"),
        ("", "an empty name is not a path"),
        ("/bin/true", "/bin/true does not answer as Python does"),
        ("/bin/false", "/bin/false exits with 1"),
    ],
)
def test_what_cannot_be_used_is_said_in_plain_words(path: str, reason: str) -> None:
    found = examine(path)
    assert (found.path, found.executable, found.version, found.packages) == (path, None, None, {})
    assert found.error == reason


def test_an_interpreter_that_fails_is_quoted(script: Callable[[str], str]) -> None:
    path = script("#!/bin/sh\necho 'first' >&2\necho 'libpython3.11.so: cannot open' >&2\nexit 127\n")
    assert examine(path).error == f"{path} exits with 127: libpython3.11.so: cannot open"


def test_an_interpreter_that_dies_of_a_signal_names_it(script: Callable[[str], str]) -> None:
    path = script("#!/bin/sh\nkill -SEGV $$\n")
    assert examine(path).error == f"{path} was ended by SIGSEGV"


def test_a_file_that_is_no_program_is_told(script: Callable[[str], str]) -> None:
    path = script("\x7fELF is all it has of a program")
    assert examine(path).error == f"{path} cannot be run: Exec format error"


def test_a_python_too_old_is_named_with_its_version(script: Callable[[str], str]) -> None:
    body = '{"version": [3, 6, 9], "executable": "/usr/bin/python3.6", "packages": {}}'
    path = script(f"#!/bin/sh\necho \"$3\"'{body}'\n")
    found = examine(path)
    assert (found.version, found.executable) == ("3.6.9", "/usr/bin/python3.6")
    assert found.error == f"{path} is Python 3.6.9; 3.8 is the oldest that can be used"


def test_an_interpreter_that_hangs_is_ended_with_all_it_started(script: Callable[[str], str], tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    path = script(f"#!/bin/sh\nsleep 600 &\necho $! > {pid_file}.new\nmv {pid_file}.new {pid_file}\nwait\n")
    for timeout_s in (1.0, 5.0, 25.0):  # On a busy machine it may not have come to start anything.
        began = time.monotonic()
        found = examine(path, timeout_s=timeout_s)
        assert found.error == f"{path} gave no answer within {timeout_s:g} s"
        assert time.monotonic() - began < timeout_s + 20
        if pid_file.exists():
            break
    sleeper = int(pid_file.read_text())
    wait_until(lambda: processes.identify(sleeper) is None, "the interpreter's child to end")


@pytest.mark.parametrize("stream", [1, 2])
def test_an_interpreter_that_prints_without_end_is_ended_and_costs_little_memory(
    script: Callable[[str], str], stream: int
) -> None:
    path = script(f"#!/bin/sh\nexec yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa >&{stream}\n")
    tracemalloc.start()
    try:
        found = examine(path, timeout_s=60.0)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.error == f"{path} does not answer as Python does: it prints without end"
    assert peak < 8 << 20


def test_several_interpreters_are_asked_side_by_side_and_answer_in_order(script: Callable[[str], str]) -> None:
    slow = script(f'#!/bin/sh\nsleep 0.3\nexec {sys.executable} "$@"\n')
    found = examine_all([slow, "no-such-python-here", sys.executable, slow])
    assert [python.path for python in found] == [slow, "no-such-python-here", sys.executable, slow]
    assert [python.error is None for python in found] == [True, False, True, True]
    assert examine_all([]) == []


def test_more_interpreters_than_can_be_asked_at_once_are_refused_by_name() -> None:
    names = [f"no-such-python-{index}" for index in range(MOST_AT_ONCE + 1)]
    *examined, refused = examine_all(names)
    assert all(python.error and python.error.endswith("PATH") for python in examined)
    assert refused.error == f"{names[-1]} was not examined: at most 16 interpreters can be asked about at once"


def test_a_signal_without_a_name_is_a_number(script: Callable[[str], str]) -> None:
    unnamed = signal.SIGRTMIN + 5
    path = script(f"#!/bin/sh\nkill -{unnamed} $$\n")
    assert examine(path).error == f"{path} was ended by signal {unnamed}"


def settle(directory: Path) -> None:
    """Make the last change to a directory long ago, as that of an installation is."""
    for path in (directory, *directory.rglob("*")):
        os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)


def test_what_torch_was_built_for_is_read_without_importing_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.13.0+cu130")
    install(tmp_path, "nvidia-nccl-cu13", "2.29.7")
    (tmp_path / "torch" / "version.py").write_text(
        "__version__ = '2.13.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\ngit_version = 'cf30153'\n"
        "hip: Optional[str] = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = examine(sys.executable)
    assert (found.torch_cuda, found.torch_rocm, found.torch_git, found.nccl) == ("13.0", None, "cf30153", "2.29.7")
    assert found.packages["torch"] == "2.13.0+cu130"
    assert (found.environment, found.error) == ("venv" if sys.prefix != sys.base_prefix else None, None)


def test_a_torch_without_metadata_is_found_by_its_own_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "version.py").write_text('__version__ = "2.9.0a0+git1234"\nhip = "6.4.1"\n')
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    found = examine(str(python))
    assert (found.packages, found.torch_rocm, found.torch_cuda) == ({"torch": "2.9.0a0+git1234"}, "6.4.1", None)


def test_tensorflow_is_found_under_each_name_that_it_is_published_by(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(tmp_path, "tensorflow-cpu", "2.21.0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert examine(sys.executable).packages["tensorflow"] == "2.21.0"
    install(tmp_path, "tensorflow", "2.22.0")
    assert examine(sys.executable).packages["tensorflow"] == "2.22.0"


def test_an_editable_installation_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path, "megatron-core", "0.16.1")
    (metadata,) = tmp_path.glob("*.dist-info")
    (metadata / "direct_url.json").write_text('{"url": "file:///src", "dir_info": {"editable": true}}')
    install(tmp_path, "deepspeed", "0.19.8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert examine(sys.executable).editable == ["megatron-core"]


def test_a_conda_environment_tells_its_own_nccl(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True, timeout=60)
    (tmp_path / "env" / "conda-meta").mkdir()
    (tmp_path / "env" / "conda-meta" / "nccl-2.27.3.1-h4d09622_0.json").write_text("{}")
    found = examine(str(tmp_path / "env" / "bin" / "python"))
    assert (found.environment, found.nccl) == ("conda", "2.27.3.1")


def test_metadata_that_cannot_be_read_hides_that_package_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path, "accelerate", "1.15.0")
    install(tmp_path, "horovod", "0.28.1")
    (next(tmp_path.glob("horovod-*")) / "METADATA").write_bytes(b"\xff\xfe no version here")
    (next(tmp_path.glob("accelerate-*")) / "direct_url.json").write_text("{ half a")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = examine(sys.executable)
    assert found.error is None
    assert found.packages["accelerate"] == "1.15.0"
    assert "horovod" not in found.packages


def test_an_answer_is_remembered_until_something_is_installed(
    script: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count, site = tmp_path / "count", tmp_path / "site"
    site.mkdir()
    path = script(f'#!/bin/sh\necho >> {count}\nexec {sys.executable} -S "$@"\n')
    settle(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert [examine(path).packages for _again in range(3)] == [{}] * 3
    assert count.read_text().count("\n") == 1
    install(site, "deepspeed", "0.19.8")
    assert examine(path).packages == {"deepspeed": "0.19.8"}


def test_a_refusal_is_not_remembered(script: Callable[[str], str], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    path = script(f'#!/bin/sh\n[ -e {gate} ] || exit 3\nexec {sys.executable} "$@"\n')
    assert examine(path).error == f"{path} exits with 3"
    gate.touch()
    assert examine(path).error is None


def test_an_interpreter_is_asked_behind_what_the_job_puts_before_it(
    script: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "environments" / "train").mkdir(parents=True)
    inside = tmp_path / "environments" / "train" / "python3"
    inside.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    inside.chmod(0o755)
    install(tmp_path / "site", "deepspeed", "0.19.8")
    # As `conda run -n train`, which takes no argument of several lines.
    runner = script(
        "#!/bin/sh\n"
        'case "$*" in *"\n"*) echo "newlines are not supported" >&2; exit 1;; esac\n'
        f'[ "$1" = run ] || exit 2; PATH="{tmp_path}/environments/$3:$PATH"; shift 3; exec "$@"\n'
    )
    behind = Behind([runner, "run", "-n", "train"], {"PYTHONPATH": str(tmp_path / "site")}, str(tmp_path))
    assert sys.executable != "python3"
    found, missing = examine_all(["python3", "python9"], behind=behind)
    assert (found.error, found.prefix) == (None, behind.prefix)
    assert found.packages["deepspeed"] == "0.19.8"
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert missing.prefix == behind.prefix
    assert "python9" in (missing.error or "")
    (absent,) = examine_all(["python3"], behind=Behind(["/no/runner"], {}, "/no/dir"))
    assert absent.error == "python3 cannot be run: No such file or directory"


def test_modules_are_looked_for_where_the_job_has_them_and_none_is_imported(tmp_path: Path) -> None:
    install(tmp_path / "lib", "of-nobody", "1.2")
    (tmp_path / "lib" / "random.py").write_text("raise SystemExit('imported')\n")  # What is looked up by its name.
    asked = {"of_nobody": ["of-nobody"], "json": [], "psutil": ["nothing", "psutil"], "cv9": ["opencv-9"], "a b": ["c"]}
    (without,) = examine_all([sys.executable], modules=ModuleQuestion(asked))
    assert without.missing_modules == ["cv9", "of_nobody"]
    assert without.modules == {"json": "", "psutil": psutil.__version__}
    (found,) = examine_all([sys.executable], modules=ModuleQuestion(asked, [str(tmp_path / "lib"), "not/absolute"]))
    assert (found.error, found.missing_modules) == (None, ["cv9"])
    assert found.modules == {"json": "", "psutil": psutil.__version__, "of_nobody": ""}
    (behind,) = examine_all([sys.executable], behind=Behind(["env"], {}, "/"), modules=ModuleQuestion(asked))
    assert behind.missing_modules == ["cv9", "of_nobody"]
    (nothing,) = examine_all([sys.executable])
    assert (nothing.modules, nothing.missing_modules) == (None, None)
