"""How long a rank waits in a collective for the others, and who is told: `communication.collective_timeout`. Pure."""

from __future__ import annotations

from dttui.frameworks.base import Framework, JobLayout
from dttui.frameworks.traits import TORCH_CALL as TORCH_CALL
from dttui.i18n import _
from dttui.spec.findings import Finding, info


def check_passed_on(layout: JobLayout, framework: Framework) -> list[Finding]:
    """Say what a script has to pass the time-out on to, where its framework has no other way to be told."""
    seconds = layout.job.communication.collective_timeout_s
    call = framework.timeout_call
    if seconds is None or call is None:
        return []
    if any(node.role == "parameter_server" for node in layout.nodes):
        return [timeout_note(_("with parameter servers nobody waits in a collective: nothing comes of it"))]
    message = _(
        "the file of DTTUI_CONFIG says {seconds:g} s, as distributed.timeout_s, and the script has to pass them on, "
        "as {call}"
    )
    return [timeout_note(message.format(seconds=seconds, call=call))]


def timeout_note(message: str, hint: str = "") -> Finding:
    """Return what is to be known of the time-out."""
    return info("collective-timeout", "communication.collective_timeout", message, hint)
