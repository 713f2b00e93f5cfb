"""Real engines that have an image, each as whoever a test is for; what cannot run here is skipped with what it said."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.engines.image import NAME, limits, write_image
from tests.engines.people import CDI, MADE, USER_ID, Person, ordinary, root
from tests.engines.requirement import missing, refused
from tests.processes import end_daemons
from tests.waiting import wait_until

UNPACKED = Path(__file__).parents[2] / ".apptainer/usr/bin/apptainer"
PODMAN = """\
#!/bin/sh
[ $(id -u) = 0 ] || exec {podman} --storage-driver vfs "$@"
# Without the second hierarchy of cgroups, which crun does not take beside the first.
exec unshare --mount sh -c '
  umount /sys/fs/cgroup/unified 2>/dev/null
  mkdir -p {at} && mount --bind {cdi} {at}
  exec "$0" --storage-driver vfs "$@"
' {podman} "$@"
"""
GPUS = """\
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
"""
GPU = """\
- name: "{name}"
  containerEdits: {{env: ["GIVEN_{name}=yes"]}}
"""
"""One that podman can give to a container, whose variable says that it did."""
GPU_HOOK = "nvidia-container-runtime-hook"
"""By this name docker knows that it can give GPUs to a container."""
DEADLINE_S = 120.0


@dataclass(frozen=True)
class Engine:
    """An engine that a person can use, and an image that it has."""

    name: str
    image: str
    options: tuple[str, ...]
    person: Person

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the engine to its end as the person."""
        argv = [*self.person.enter, self.name, *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    def tries(self, *arguments: str) -> None:
        """Skip the tests where the engine cannot do this here, with what it said."""
        try:
            tried = self.call(*arguments)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{self.name} {arguments[0]} does not end here")
        if tried.returncode:
            pytest.skip(f"{self.name} {arguments[0]} fails here: {tried.stderr[-300:]}")

    def containers(self) -> list[str]:
        """Return the names of all there are; apptainer's are processes like any."""
        if self.name == "apptainer":
            return []
        listed = self.call("ps", "--all", "--format={{.Names}}")
        assert listed.returncode == 0, listed.stderr
        return listed.stdout.split()


@pytest.fixture(scope="session")
def shared() -> Iterator[Path]:
    """A directory that every user can read, with the files of an image and the programs of the engines."""
    missing = [path for path in MADE if not path.exists()]
    with tempfile.TemporaryDirectory(prefix="dttui-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "bin").mkdir()
        (directory / "cdi").mkdir()
        (directory / "cdi/gpus.yaml").write_text(GPUS + "".join(GPU.format(name=name) for name in (1, 2, 3, "all")))
        write_image(directory / "image.tar")
        yield directory
    for path in missing:
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()


@pytest.fixture(scope="session")
def docker(shared: Path) -> Iterator[Path]:
    """A docker daemon of the tests alone, which everybody may use, and its client in `bin`."""
    client, daemon = _program("docker", "docker.io"), _program("dockerd", "docker.io")
    with tempfile.TemporaryDirectory(prefix="dttui-", dir="/var/tmp") as name, _daemon(daemon, Path(name)) as socket:
        _write_program(shared / "bin/docker", f'#!/bin/sh\nexec {client} --host=unix://{socket} "$@"\n')
        yield socket


@pytest.fixture(scope="session")
def podman(shared: Path) -> None:
    """Have podman in `bin`."""
    program = _program("podman", "podman uidmap")
    _write_program(shared / "bin/podman", PODMAN.format(podman=program, at=CDI, cdi=shared / "cdi"))


@pytest.fixture(scope="session")
def apptainer(shared: Path) -> None:
    """Have apptainer in `bin`, with its image as a directory and as a file."""
    found = shutil.which("apptainer") or (str(UNPACKED) if UNPACKED.exists() else None)
    if found is None:
        missing("there is no apptainer: make apptainer")
    _write_program(shared / "bin/apptainer", f'#!/bin/sh\nexec {found} "$@"\n')
    (shared / "image").mkdir()
    subprocess.run(["tar", "-xf", shared / "image.tar", "-C", shared / "image"], check=True)
    call = [str(shared / "bin/apptainer"), "build", str(shared / "image.sif"), str(shared / "image")]
    built = subprocess.run(call, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if built.returncode:
        pytest.skip(f"apptainer builds no image here: {built.stderr[-300:]}")


@pytest.fixture(scope="module", params=["root", "user"])
def person(request: pytest.FixtureRequest, shared: Path) -> Iterator[Person]:
    """Whoever runs dttui, its agents and its engines."""
    if os.getuid() != 0:
        missing("needs root, to be it and to be another user")
    with tempfile.TemporaryDirectory(prefix="dttui-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        if request.param == "root":
            yield root(directory)
            return
        yield ordinary(directory, shared / "cdi")
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if path.stat().st_uid == USER_ID:
                    os.kill(int(path.name), signal.SIGKILL)
        shutil.rmtree(f"/tmp/podman-run-{USER_ID}", ignore_errors=True)  # Podman's own choice.


@pytest.fixture(scope="module")
def demo_root(person: Person) -> Iterator[Path]:
    """The root of an embedded cluster whose agents are the person's."""
    with tempfile.TemporaryDirectory(prefix="dttui-", ignore_cleanup_errors=True) as name:
        person.owns(Path(name))
        yield Path(name)
        end_daemons(name)


@pytest.fixture(scope="module", params=["docker", "podman", "apptainer"])
def engine(request: pytest.FixtureRequest, shared: Path, person: Person) -> Iterator[Engine]:
    """An engine that runs containers here."""
    request.getfixturevalue(request.param)
    image = NAME if request.param != "apptainer" else str(shared / ("image.sif" if person.user_id == 0 else "image"))
    found = Engine(request.param, image, limits() if request.param == "podman" else (), person)
    with pytest.MonkeyPatch.context() as patch:
        _become(person, shared, patch)
        if request.param == "apptainer":
            found.tries("exec", image, "id")
        else:
            found.tries("import", str(shared / "image.tar"), NAME)
            hosts = ("--network=host", "--ipc=host", "--pid=host")
            found.tries("run", "--rm", "--pull=never", *found.options, *hosts, NAME, "id")
        yield found
        if request.param != "apptainer":
            found.call("rmi", "--force", NAME)


@pytest.fixture
def place(
    engine: Engine, demo_root: Path, shared: Path, isolated_environment: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A directory of the person, with the engine in the PATH and dttui run by the person."""
    _become(engine.person, shared, monkeypatch)
    monkeypatch.setenv("DTTUI_DEMO_ROOT", str(demo_root))
    monkeypatch.setattr(sys, "executable", str(engine.person.python))
    directory = Path(tempfile.mkdtemp(dir=engine.person.home))
    engine.person.owns(directory)
    yield directory
    shutil.rmtree(directory)


def _become(person: Person, shared: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("PATH", f"{shared / 'bin'}:{os.environ['PATH']}")
    patch.setenv("HOME", str(person.home))
    for kind in ("CONFIG", "STATE", "CACHE", "DATA"):
        patch.setenv(f"XDG_{kind}_HOME", str(person.home / kind.lower()))


@contextlib.contextmanager
def _daemon(program: str, directory: Path) -> Iterator[Path]:
    """Run a docker daemon without a network of its own; yield its socket."""
    directory.chmod(0o711)
    socket, told = directory / "socket", directory / "log"
    (directory / "daemon.json").write_text("{}")  # Not the host's.
    (directory / "bin").mkdir()
    _write_program(directory / "bin" / GPU_HOOK, "#!/bin/sh\n")
    # What it mounts goes with it then.
    argv = ["unshare", "--mount", program, f"--host=unix://{socket}", f"--config-file={directory / 'daemon.json'}"]
    argv += [f"--data-root={directory / 'data'}", f"--exec-root={directory / 'run'}", f"--pidfile={directory / 'pid'}"]
    argv += ["--storage-driver=vfs", "--exec-opt=native.cgroupdriver=cgroupfs"]
    argv += ["--bridge=none", "--iptables=false", "--ip6tables=false"]
    env = {**os.environ, "PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}
    with told.open("w") as log:
        daemon = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)
    try:
        wait_until(lambda: daemon.poll() is not None or "API listen on" in told.read_text(), "dockerd to listen", 60)
        if daemon.returncode is not None:
            refused(f"dockerd does not start here: {told.read_text()[-300:]}")
        socket.chmod(0o666)
        yield socket
    finally:
        daemon.terminate()
        daemon.wait(60)


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _program(name: str, packages: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        missing(f"there is no {name}: apt-get install {packages}")
    return str(found)
