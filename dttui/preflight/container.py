"""What hosts say of the engine and the image of a job that runs in a container. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dtagent.protocol.probes import ImageReply

from dttui.agent_words import agent_text
from dttui.i18n import _
from dttui.jobs.board import Drift, Judgement, drift_of
from dttui.jobs.checks import CheckStatus
from dttui.sanitize import clean
from dttui.spec.container import Container
from dttui.spec.findings import Finding, error, warning

SHORT_ID = 12
"""Digits of an image's id, as engines show it."""
_FORBIDDEN = ("permission denied", "password", "not permitted", "not allowed")
_NOT_RUNNING = ("daemon running", "daemon is running", "cannot connect to the docker daemon")


def judge_image(name: str, container: Container, reply: ImageReply) -> Judgement:
    """Say whether a host can start the container: what its own Python has does not matter then."""
    found: tuple[Finding, ...] = ()
    engine, image = container.engine, container.image
    if not reply.has_engine:
        message = _("{host}: there is no {engine}, which run.container names").format(host=name, engine=engine)
        hint = _("Install it there, or choose another engine: docker, podman or apptainer.")
        found = (error("container-engine", name, message, hint),)
    elif reply.has_image is False:
        message = _("{host}: {engine} has no image {image}").format(host=name, engine=engine, image=image)
        make = warning if _fetches(container) else error
        if engine == "apptainer":
            hint = _("Put the file there, or correct run.container.image.")
        else:
            hint = _("Run there once: {command}").format(command=f"{engine} pull {image}")
        found = (make("container-image", name, message, hint),)
    elif reply.has_image is None and reply.detail:
        message = _("{host}: {engine} cannot be used: {reason}")
        message = message.format(host=name, engine=engine, reason=agent_text(reply.detail, reply.detail_notice))
        found = (error("container-engine", name, message, _hint(engine, reply.detail)),)
    elif reply.has_image is None and "://" not in image:
        message = _("{host}: whether {image} is there shows when the job starts").format(host=name, image=image)
        found = (warning("container-image", name, message, _("Write the whole path of the file.")),)
    short = _short(reply)
    told = f"{engine} · {image}" + (f" · {short}" if short else "")
    return Judgement(told, found, CheckStatus.OK)


def _hint(engine: str, said: str) -> str:
    """Return what to do about an engine that refused: engines say why in English, and alike over their versions."""
    if any(word in said.lower() for word in _FORBIDDEN):
        hint = _("The agent's user has to be allowed to use it without a password; try there: {command}")
    elif any(word in said.lower() for word in _NOT_RUNNING):
        hint = _("Have its daemon started there, or choose another engine: podman and apptainer need none.")
    else:
        hint = _("Try there: {command}")
    return hint.format(command=f"{engine} ps")


def image_drift(images: Mapping[str, ImageReply]) -> tuple[Drift, ...]:
    """Return who has another image of the same name; nothing where all have one."""
    values = {name: short for name, reply in images.items() if (short := _short(reply))}
    return (drift_of(_("image"), values),) if len(set(values.values())) > 1 else ()


def _fetches(container: Container) -> bool:
    """Whether the job's own options let the engine fetch an image at the start, which by itself it never does."""
    return any(item.startswith("--pull") and item not in ("--pull", "--pull=never") for item in container.options)


def _short(reply: ImageReply) -> str:
    return clean(reply.image_id or "").removeprefix("sha256:")[:SHORT_ID]
