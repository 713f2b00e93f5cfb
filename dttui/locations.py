"""The one place that knows where dttui keeps its files on the login node."""

from __future__ import annotations

import functools
import os
import pwd
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_state_path

from dttui.errors import UsageError
from dttui.i18n import _

SLURM = "slurm:"
"""What `--inventory` says for the allocation that dttui runs in."""


def inventory_file() -> Path:
    """Where the inventory is when `--inventory` does not say: `$DTTUI_INVENTORY`, else the config directory."""
    named = os.environ.get("DTTUI_INVENTORY")
    return Path(named).expanduser() if named else user_config_path("dttui") / "inventory.yaml"


def ssh_config_file() -> Path:
    """The person's ssh configuration: `$DTTUI_SSH_CONFIG`, else `.ssh/config` in `$HOME`."""
    named = os.environ.get("DTTUI_SSH_CONFIG")
    return Path(named or "~/.ssh/config").expanduser()


def ssh_config_override() -> Path | None:
    """What `ssh` must be told to read, since it looks for the home in the user database and not in `$HOME`."""
    file = ssh_config_file()
    try:
        usual = Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh", "config")
    except KeyError:  # A container's uid without an entry.
        usual = None
    if os.environ.get("DTTUI_SSH_CONFIG") or (file != usual and file.is_file()):
        return file
    return None


def known_hosts_file() -> Path:
    """Where dttui adds the host keys that a person has confirmed; the user's own files are only read."""
    return user_config_path("dttui") / "known_hosts"


def gpu_types_file() -> Path:
    """The person's own types of GPUs, beside those that dttui knows."""
    return user_config_path("dttui") / "gpus.yaml"


def settings_file() -> Path:
    """What a person has set of the screen: theme, language, keys."""
    return user_config_path("dttui") / "settings.yaml"


def themes_directory() -> Path:
    """The person's own themes, beside those that ship with dttui; one of the same name takes its place."""
    return user_config_path("dttui") / "themes"


def links_file() -> Path:
    """What was measured between zones and hosts."""
    return user_state_path("dttui") / "links.json"


def measured_runs_file() -> Path:
    """What jobs have taken, beside what it was estimated from."""
    return user_state_path("dttui") / "runs.json"


def benches_directory() -> Path:
    """What benches have found, a file for each set of hosts."""
    return user_state_path("dttui") / "benches"


def last_known_file() -> Path:
    """What hosts said of themselves when they were reached last."""
    return user_state_path("dttui") / "hosts.json"


def recent_files() -> Path:
    """Which job files were opened and saved last."""
    return user_state_path("dttui") / "recent.json"


def screens_file() -> Path:
    """How a person has left the screens."""
    return user_state_path("dttui") / "screens.json"


def jobs_directory() -> Path:
    """Parent of the job directories, one a job."""
    return user_state_path("dttui") / "jobs"


def drafts_directory() -> Path:
    """Jobs that are being composed and are not saved, one a screen."""
    return user_state_path("dttui") / "drafts"


def log_file() -> Path:
    """Where the TUI's own log goes."""
    return user_state_path("dttui") / "dttui.log"


def wheel_cache(architecture: str) -> Path:
    """Where the agent's wheels for one machine architecture are kept between deployments."""
    return user_cache_path("dttui") / "wheels" / architecture


def demo_root() -> Path:
    """Parent of the state directories of the embedded cluster's agents; on local disk, of a short path."""
    named = os.environ.get("DTTUI_DEMO_ROOT")
    return Path(os.path.abspath(named)) if named else Path(f"/var/tmp/dttui-demo-{os.getuid()}")  # noqa: S108 - checked and made 0700 by the agent


def shipped(name: str) -> Path:
    """A directory that ships with dttui, `themes` or `examples`: in the installed package, else in the checkout."""
    packaged = Path(__file__).with_name(name)
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / name


def unwritable(path: Path, fault: OSError) -> UsageError:
    """Return what is said where nothing can be written below the directory for what dttui keeps of jobs and hosts."""
    return UsageError(
        _("cannot write to {path}: {reason}").format(path=path, reason=fault.strerror),
        _("Free some room, or set XDG_STATE_HOME to a directory you may write to."),
    )


def local_user() -> str:
    """The name that the user database has for whoever runs this."""
    return _user_name(os.getuid())


@functools.cache
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # A container's uid without a name.
        return str(uid)
