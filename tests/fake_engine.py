"""A container engine for tests, with a daemon: what it runs are plain processes, but none below whoever asked for it.

`fake_engine.py daemon DIRECTORY` is the daemon; called as `docker` or `podman` from DIRECTORY it is the client.
Like the real client it forwards TERM and INT, and what it started goes on when it is killed.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S, wait_until

IMAGES = {
    "torch:2": "sha256:0123456789abcdef",
    "hidden:1": "sha256:fedcba9876543210",
    "lingering:1": "sha256:0011223344556677",
}
"""What the engine has; processes of `hidden:1` have no mark of the job, and containers of `lingering:1` go slowly."""
LINGERS_S = 0.5
MISSING = 125
SOCKET = "engine.sock"


class Engine:
    """A daemon that a test has started, and its clients' directory, to be put on the PATH."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def running(self) -> list[str]:
        """Return the names of the containers there are."""
        return [item["name"] for item in self._ask({"do": "list"})["containers"]]

    def runs(self) -> list[dict[str, Any]]:
        """Return what was asked to be run so far, with the arguments of the client."""
        found = self._ask({"do": "history"})["runs"]
        assert isinstance(found, list)
        return found

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        with _connected(self.directory) as connection:
            return _exchange(connection, body)


@contextlib.contextmanager
def engine(directory: Path) -> Iterator[Engine]:
    """Start a daemon, and have `docker` and `podman` in the directory; end all that it runs afterwards."""
    directory.mkdir(parents=True, exist_ok=True)
    root = Path(__file__).parents[1]
    for name in ("docker", "podman"):
        client = directory / name
        client.write_text(
            f"#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -c "
            f"'from tests.fake_engine import client; client()' {directory} {name} \"$@\"\n"
        )
        client.chmod(0o755)
    daemon = subprocess.Popen(
        [sys.executable, "-c", "from tests.fake_engine import daemon; daemon()", str(directory)],
        env={**os.environ, "PYTHONPATH": str(root)},
        start_new_session=True,
    )
    try:
        wait_until((directory / SOCKET).exists, "the engine to listen")
        yield Engine(directory)
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE_S)


def client() -> None:
    """Be `docker` or `podman`."""
    directory, name, verb, *arguments = sys.argv[1:]
    with _connected(Path(directory)) as connection:
        if verb == "run":
            sys.exit(_run(connection, name, arguments))
        words = [item for item in arguments if not item.startswith("-")]
        reply = _exchange(connection, {"do": verb, "engine": name, "name": words[-1]})
    sys.stdout.write(reply.get("said", ""))
    sys.stderr.write(reply.get("error", ""))
    sys.exit(reply["code"])


def daemon() -> None:
    """Serve clients until TERM, and then kill what runs."""
    _Daemon(Path(sys.argv[1])).run()


def _run(connection: socket.socket, name: str, arguments: list[str]) -> int:
    options: dict[str, list[str]] = {}
    words = list(arguments)
    while words and words[0].startswith("--"):
        option, _, value = words.pop(0).partition("=")
        options.setdefault(option, []).append(value)
    image, *argv = words
    env = {}
    for item in options.get("--env", []):
        key, is_given, value = item.partition("=")
        if is_given or key in os.environ:
            env[key] = value if is_given else os.environ[key]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: connection.sendall(json.dumps({"signal": received}).encode() + b"\n"))
    body = {
        "do": "run",
        "client": [name, *arguments],
        "name": options["--name"][0],
        "cwd": options.get("--workdir", ["/"])[0],
        "image": image,
        "argv": argv,
        "env": env,
    }
    descriptors = array.array("i", [1, 2])
    socket.send_fds(connection, [json.dumps(body).encode() + b"\n"], descriptors.tolist())
    reply = json.loads(connection.makefile("rb").readline())
    sys.stderr.write(reply.get("error", ""))
    return int(reply["code"])


class _Daemon:
    def __init__(self, directory: Path) -> None:
        self._containers: dict[str, subprocess.Popen[bytes]] = {}
        self._runs: list[dict[str, Any]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / f"{SOCKET}.new"))
        self._listener.listen(64)
        (directory / f"{SOCKET}.new").rename(directory / SOCKET)

    def run(self) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        finally:
            for child in list(self._containers.values()):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

    def _serve(self, connection: socket.socket) -> None:
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 2)
        while not data.endswith(b"\n"):
            data += connection.recv(1 << 20)
        body = json.loads(data)
        with connection, contextlib.suppress(BrokenPipeError):
            if body["do"] == "run":
                self._start(connection, body, descriptors)
            else:
                connection.sendall(json.dumps(self._answer(body)).encode() + b"\n")

    def _start(self, connection: socket.socket, body: dict[str, Any], descriptors: list[int]) -> None:
        self._runs.append(body)
        if body["image"] not in IMAGES:
            answer = {"code": MISSING, "error": f"Unable to find image '{body['image']}' locally\n"}
            connection.sendall(json.dumps(answer).encode() + b"\n")
            return
        of_image = {name: os.environ[name] for name in ("PATH", "LIGHT_IMPORTS") if name in os.environ}
        env = {**of_image, **body["env"]}
        if body["image"] == "hidden:1":
            env = {name: value for name, value in env.items() if not name.startswith("DTTUI_")}
        child = subprocess.Popen(
            body["argv"],
            cwd=body["cwd"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=descriptors[0],
            stderr=descriptors[1],
            start_new_session=True,
        )
        for descriptor in descriptors:
            os.close(descriptor)
        self._containers[body["name"]] = child
        threading.Thread(target=_forward, args=(connection, child), daemon=True).start()
        code = child.wait()
        if body["image"] == "lingering:1":
            time.sleep(LINGERS_S)
        self._containers.pop(body["name"], None)  # As --rm has it.
        connection.sendall(json.dumps({"code": code if code >= 0 else 128 - code}).encode() + b"\n")

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["do"] == "list":
            return {"containers": [{"name": name} for name in list(self._containers)]}
        if body["do"] == "history":
            return {"runs": self._runs}
        if body["do"] == "image":
            if body["name"] in IMAGES:
                return {"code": 0, "said": IMAGES[body["name"]] + "\n"}
            return {"code": 1, "error": f"Error response from daemon: No such image: {body['name']}\n"}
        child = self._containers.get(body["name"])
        if child is None:
            return {"code": 1, "error": f"Error response from daemon: No such container: {body['name']}\n"}
        if child.poll() is not None:
            said = f"Error response from daemon: removal of container {body['name']} is already in progress\n"
            return {"code": 1, "error": said}
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        wait_until(lambda: self._containers.get(body["name"]) is not child, "its removal")
        return {"code": 0, "said": body["name"] + "\n"}


def _forward(connection: socket.socket, child: subprocess.Popen[bytes]) -> None:
    """Give a container the signals that its client was given; nothing happens to it when the client goes."""
    with contextlib.suppress(OSError, ValueError):
        for line in connection.makefile("rb"):
            child.send_signal(json.loads(line)["signal"])


def _connected(directory: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(directory / SOCKET))
    return connection


def _exchange(connection: socket.socket, body: dict[str, Any]) -> dict[str, Any]:
    connection.sendall(json.dumps(body).encode() + b"\n")
    reply = json.loads(connection.makefile("rb").readline())
    assert isinstance(reply, dict)
    return reply
