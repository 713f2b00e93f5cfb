"""Times SSH to many hosts against pdsh, clush, asyncssh and naive paramiko: `python bench/fanout.py`.

The hosts are real sshd on loopback addresses. Both sides of a comparison run the same remote command `true`, and take
turns; figures are medians, beside what issue 5 asks for. pdsh and clush come from Debian (`apt-get install pdsh
clustershell openssh-server`), asyncssh from PyPI into a temporary virtual environment (or name a Python that has it by
`--asyncssh-python`). CPU is that of the client with all its children. Parts by name, smaller sizes by options:
`python bench/fanout.py fan one --hosts 50 --rounds 3`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from loopback_hosts import LoopbackHosts, loopback_hosts

CLIENTS = Path(__file__).with_name("fanout_clients.py")
PARTS = ("fan", "one", "warm", "hello", "hold")
LINE_BYTES = 1500
AGENTS = 8
"""For all hosts: an agent serves no more than 128 clients."""
END_TIMEOUT_S = 20.0
PDSH_FANOUTS = (32, 64, 200)
Round = Callable[[], dict[str, float]]


class Client:
    """One of `fanout_clients.py`, started and waiting."""

    def __init__(self, python: str, kind: str, hosts: LoopbackHosts, command: str, count: int | None = None) -> None:
        settings = {
            "hosts": hosts.addresses[:count],
            "port": hosts.port,
            "user": hosts.user,
            "key": str(hosts.key),
            "known_hosts": str(hosts.known_hosts),
            "config": str(hosts.ssh_config("stock")),
            "command": command,
        }
        path = hosts.directory / f"{kind}-{time.monotonic_ns()}.json"
        path.write_text(json.dumps(settings))
        self._process = subprocess.Popen(
            [python, str(CLIENTS), kind, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "XDG_STATE_HOME": str(hosts.directory)},
        )  # fmt: skip
        self._answer()

    def round(self, *words: str) -> dict[str, float]:
        """Have it do something, and return what that cost."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{shlex.join(map(str, self._process.args))}: exit status {self._process.wait()}")
        return dict(json.loads(line))


@contextlib.contextmanager
def client(*arguments: object) -> Iterator[Client]:
    made = Client(*arguments)  # type: ignore[arg-type]  # passed on as they are
    try:
        yield made
    finally:
        made.close()


def command(argv: Sequence[str], environment: dict[str, str] | None = None) -> dict[str, float]:
    """Run a command and return what it and its children cost."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        argv, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode or done.stderr.strip():
        raise SystemExit(f"{shlex.join(argv[:6])} …: {done.stderr.decode()[-500:]}")
    return {"cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "wall_s": wall}


def pdsh(hosts: LoopbackHosts, fanout: int) -> dict[str, float]:
    options = {"PDSH_SSH_ARGS": f"-F {hosts.ssh_config('tuned')} -a -x %h"}
    return command(["pdsh", "-R", "ssh", "-f", str(fanout), "-w", ",".join(hosts.addresses), "true"], options)


def clush(hosts: LoopbackHosts, config: str, fanout: int | None = None) -> dict[str, float]:
    more = ["-f", str(fanout)] if fanout else []
    return command(["clush", *more, "-o", f"-F {hosts.ssh_config(config)}", "-w", ",".join(hosts.addresses), "true"])


def alternate(rounds: int, sides: dict[str, Round]) -> dict[str, dict[str, float]]:
    """Return the medians of each side's figures, after one round that does not count."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in sides.items():
            figures = side()
            if number:
                results[name].append(figures)
    return {
        name: {key: statistics.median(figures[key] for figures in several) for key in several[0]}
        for name, several in results.items()
    }


def row(what: str, value: str, target: str = "") -> None:
    print(f"  {what:<66} {value:>12}" + (f"   (at most {target})" if target else ""), flush=True)


def show(results: dict[str, dict[str, float]], count: int) -> None:
    for name, figures in results.items():
        text = f"{figures['cpu_s'] / count * 1e3:8.2f} ms CPU a host, wall {figures['wall_s'] * 1e3:8.0f} ms"
        if figures.get("server_s"):
            floor = figures["server_s"] / (os.cpu_count() or 1)
            text += f", {figures['wall_s'] / floor:5.2f} of what sshd alone takes"
        print(f"  {name:<40} {text}", flush=True)


def ratio(results: dict[str, dict[str, float]], ours: str, theirs: str, figure: str, target: float) -> None:
    what = {"cpu_s": "CPU", "wall_s": "wall"}[figure]
    row(f"{what}, ratio to {theirs}", f"{results[ours][figure] / results[theirs][figure]:.2f}", f"{target:g}")


def fan(hosts: LoopbackHosts, rounds: int, asyncssh: str) -> None:
    """Connect to all, run `true`, let go."""
    count = len(hosts.addresses)
    print(f"{count} hosts: connect, run `true`, close", flush=True)

    def served(side: Round) -> Round:
        def run() -> dict[str, float]:
            before = hosts.cpu_s()
            figures = side()
            return {**figures, "server_s": hosts.cpu_s() - before}

        return run

    trials = {fanout: pdsh(hosts, fanout)["wall_s"] for fanout in PDSH_FANOUTS}
    fanout = min(trials, key=lambda size: trials[size])
    tuned = f"pdsh -f {fanout}, tuned ssh"
    once = [sys.executable, str(CLIENTS), "dttui"]
    with client(sys.executable, "dttui", hosts, "true") as ours, client(asyncssh, "asyncssh", hosts, "true") as other:
        settings = str(max(hosts.directory.glob("dttui-*.json")))
        sides = {
            "dttui": lambda: ours.round("fan"),
            "asyncssh": lambda: other.round("fan"),
            tuned: lambda: pdsh(hosts, fanout),
            "dttui, with its start": lambda: command([*once, settings, "fan"]),
            "clush": lambda: clush(hosts, "stock"),
        }
        results = alternate(rounds, {name: served(side) for name, side in sides.items()})
    show(results, count)
    ratio(results, "dttui", tuned, "cpu_s", 0.3)
    ratio(results, "dttui", tuned, "wall_s", 0.7)
    ratio(results, "dttui", "clush", "cpu_s", 0.25)
    ratio(results, "dttui", "clush", "wall_s", 0.25)
    ratio(results, "dttui", "asyncssh", "cpu_s", 1.1)
    ratio(results, "dttui", "asyncssh", "wall_s", 1.1)


def one(hosts: LoopbackHosts, rounds: int) -> None:
    """The same for one host."""
    print("one host: connect, run `true`, close", flush=True)
    ssh = ["ssh", "-F", str(hosts.ssh_config("tuned")), hosts.addresses[0], "true"]
    with client(sys.executable, "dttui", hosts, "true") as ours, client(sys.executable, "dttui", hosts, "true") as anew:
        sides: dict[str, Round] = {
            "dttui": lambda: ours.round("one"),
            "dttui, nothing read yet": lambda: anew.round("one_anew"),
            "ssh, tuned": lambda: command(ssh),
        }
        results = alternate(rounds * 4, sides)
    show(results, 1)
    ratio(results, "dttui", "ssh, tuned", "wall_s", 0.25)


def warm(hosts: LoopbackHosts, rounds: int) -> None:
    """Run `true` on connections that stand."""
    count = len(hosts.addresses)
    print(f"{count} hosts, connections stand: run `true` on all", flush=True)
    clush(hosts, "persistent")
    try:
        with client(sys.executable, "dttui", hosts, "true") as ours:
            ours.round("stand")
            sides: dict[str, Round] = {
                "dttui": lambda: ours.round("warm"),
                "clush over ControlPersist": lambda: clush(hosts, "persistent", 64),
            }
            results = alternate(rounds, sides)
            ours.round("leave")
    finally:
        for address in hosts.addresses:
            stop = ["ssh", "-F", str(hosts.ssh_config("persistent")), "-O", "exit", address]
            subprocess.run(stop, capture_output=True, check=False)
    show(results, count)
    ratio(results, "dttui", "clush over ControlPersist", "wall_s", 0.2)
    ratio(results, "dttui", "clush over ControlPersist", "cpu_s", 0.2)


def hello(hosts: LoopbackHosts, rounds: int) -> None:
    """Connect, reach the agent through its bridge, `hello`, facts; then one request to all."""
    count = len(hosts.addresses)
    print(f"{count} hosts, {AGENTS} agents for all: connect, `hello` and facts, then a ping", flush=True)
    agent = [sys.executable, "-I", "-m", "dtagent"]
    roots = [hosts.directory / f"agent-{number}" for number in range(AGENTS)]
    daemons = [subprocess.Popen([*agent, "daemon", "--root", str(root)], stderr=subprocess.DEVNULL) for root in roots]
    try:
        while not all((root / "agent.sock").exists() for root in roots):
            time.sleep(0.05)
        # Which one is by the host's address, since the command is the same for all.
        choice = f"{hosts.directory}/agent-$((${{3##*.}} % {AGENTS}))"
        bridge = f"exec sh -c 'set -- $SSH_CONNECTION; exec {shlex.join(agent)} connect --root {choice}'"
        with client(sys.executable, "dttui", hosts, bridge) as ours:
            greeted, pinged = [], []
            for _ in range(rounds):
                greeted.append(ours.round("greet"))
                pinged += [ours.round("ping") for _ in range(5)]
                ours.round("leave")
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait()
    for name, several in (("connect, hello, facts", greeted), ("ping", pinged)):
        show({name: {key: statistics.median(item[key] for item in several) for key in several[0]}}, count)


def describe(kind: str, figures: dict[str, float]) -> None:
    name = {"dttui": "dttui", "paramiko": "paramiko, a reader thread a channel"}[kind]
    print(
        f"  {name:<40} {figures['cores']:.1%} of a core, {figures['rss_mib']:.0f} MiB, {figures['threads']:.0f} "
        f"threads, {figures['lines_per_s']:.0f} lines a second",
        flush=True,
    )


def hold(hosts: LoopbackHosts, rounds: int, seconds: float) -> None:
    """Hold connections whose commands print a line a second."""
    count = len(hosts.addresses)
    print(f"{count} connections, a line of {LINE_BYTES} bytes a second from each", flush=True)
    pipe = hosts.directory / "never"
    os.mkfifo(pipe)
    line = "x" * (LINE_BYTES - 1)
    # Waits by bash's own `read` on a pipe that nobody writes to, so that a host costs no process a second.
    started = hosts.directory / "started"
    loop = (
        f"exec 3<>{shlex.quote(str(pipe))}; until [ -e {shlex.quote(str(started))} ]; do read -t 1 -u 3; done; "
        f"while echo {line}; do read -t 1 -u 3; done"
    )
    command = shlex.join(["exec", "bash", "--norc", "-c", loop])
    results: dict[str, list[dict[str, float]]] = {"dttui": [], "paramiko": []}
    for _ in range(rounds):
        for kind, several in results.items():
            with client(sys.executable, kind, hosts, command) as side:
                side.round("stand")
                side.round("hold")
                started.touch()
                side.round("watch", "5")
                several.append(side.round("watch", str(seconds)))
                started.unlink()
                describe(kind, several[-1])
                side.round("leave")
    medians = {
        kind: {key: statistics.median(item[key] for item in several) for key in several[0]}
        for kind, several in results.items()
    }
    row("CPU, ratio to paramiko", f"{medians['dttui']['cores'] / medians['paramiko']['cores']:.2f}", "0.35")
    row("memory (RSS)", f"{medians['dttui']['rss_mib']:.0f} MiB", "110 MiB")


@contextlib.contextmanager
def asyncssh_python(named: str | None) -> Iterator[str]:
    """The path of a Python that has asyncssh."""
    if named:
        yield named
        return
    with tempfile.TemporaryDirectory(prefix="dttui-asyncssh-") as directory:
        venv.create(directory, with_pip=True)
        python = f"{directory}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "asyncssh"], check=True)
        yield python


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that the servers end with it.
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all unless named")
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--connections", type=int, default=1000, help="how many `hold` holds")
    parser.add_argument("--rounds", type=int, default=5, help="of each side; `hold` does two at most")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long `hold` watches")
    parser.add_argument("--asyncssh-python", metavar="PYTHON", help="a Python with asyncssh, instead of fetching it")
    options = parser.parse_args()
    parts = options.parts or PARTS
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    needed = {"pdsh": "fan", "clush": "fan warm", "ssh": "one warm"}
    if missing := [
        tool for tool, users in needed.items() if not shutil.which(tool) and set(users.split()) & set(parts)
    ]:
        raise SystemExit(f"{', '.join(missing)} missing: apt-get install pdsh clustershell openssh-client")
    with tempfile.TemporaryDirectory(prefix="dttui-fanout-") as name:
        with contextlib.ExitStack() as stack:
            if set(parts) - {"hold"}:
                (Path(name) / "few").mkdir()
                hosts = stack.enter_context(loopback_hosts(Path(name) / "few", options.hosts))
                if "fan" in parts:
                    fan(hosts, options.rounds, stack.enter_context(asyncssh_python(options.asyncssh_python)))
                if "one" in parts:
                    one(hosts, options.rounds)
                if "warm" in parts:
                    warm(hosts, options.rounds)
                if "hello" in parts:
                    hello(hosts, min(options.rounds, 3))
        if "hold" in parts:
            (Path(name) / "many").mkdir()
            with loopback_hosts(Path(name) / "many", options.connections) as hosts:
                hold(hosts, min(options.rounds, 2), options.seconds)


if __name__ == "__main__":
    main()
