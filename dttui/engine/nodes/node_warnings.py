"""What a watch has to say of a node beside its state: alarming reports, trouble with records, output that was cut."""

from __future__ import annotations

from itertools import zip_longest

from dtagent.protocol.sentences import DISK_WAS_FULL, FILES_MADE_ANEW

from dttui.agent_words import agent_texts
from dttui.engine.alerts.metric_watch import anomaly_message
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.nodes.node_run import NodeRun, disk_words
from dttui.i18n import msg, nmsg
from dttui.jobs.left_to_do import LOG_REST
from dttui.planning.models import Severity
from dttui.spec.findings import Finding, info, warning

CODES = {FILES_MADE_ANEW.code: "agent-files-removed", DISK_WAS_FULL.code: "agent-disk-full"}
"""Of findings, for what an agent says of its records that may be why something failed."""
MOST_WARNINGS = 20
"""Of one node's agent that are passed on."""
MOST_WARNING_CHARACTERS = 500


class NodeWarnings:
    """Tells of each node what is new."""

    def __init__(self, log: AttemptLog) -> None:
        self._log = log
        self._warned: dict[str, set[str]] = {}
        """Node → what its agent warned of."""

    def tell(self, node: NodeRun) -> None:
        """Tell what is new of a node."""
        self._tell_metrics(node)
        self._tell_warnings(node)
        self._tell_cuts(node)

    def _tell_metrics(self, node: NodeRun) -> None:
        """Tell of alarming reports, and of those that nobody can plot: at the first, and all of them at the end."""
        alerts, node.record.alerts = node.record.alerts, []
        for alert in alerts:
            data = {**alert.data, "severity": Severity.WARNING.value}
            message = anomaly_message(node.name, alert)
            self._log.alert(node.name, alert.rank, message, **data)
        metrics = node.record.metrics
        found = {}
        if node.record.trainer.skipped_bytes:
            found["metrics-skipped"] = msg(
                "{host} printed more than could be searched for metrics; some may be missing", host=node.name
            )
        if metrics.unreadable and (node.is_over or not self._log.has_told("metrics-unreadable", node.name)):
            found["metrics-unreadable"] = nmsg(
                "{count} line of metrics of {host} could not be read: {line}",
                "{count} lines of metrics of {host} could not be read; the first: {line}",
                metrics.unreadable,
                host=node.name,
                line=metrics.first_unreadable,
            )
        if node.record.trainer.dropped_patterns:
            found["metrics-dropped"] = msg(
                "{host}: the expressions in monitoring.metrics for {names} take too long there and find nothing more",
                host=node.name,
                names=", ".join(node.record.trainer.dropped_patterns),
            )
        for code, message in found.items():
            self._log.tell(warning(code, node.name, message))
        if node.record.trainer.unread_lines and node.is_over:
            message = nmsg(
                "of what {host} printed, {count} line was not read for metrics: where many come, an even choice is",
                "of what {host} printed, {count} lines were not read for metrics: where many come, an even choice is",
                node.record.trainer.unread_lines,
                host=node.name,
            )
            self._log.tell(info("metrics-sampled", node.name, message))

    def _tell_warnings(self, node: NodeRun) -> None:
        """Pass on what the agent says of its own records, once each, and as much as a sound one can have to say."""
        warned = self._warned.setdefault(node.name, set())
        if node.status is None:
            return
        whole = [text[:MOST_WARNING_CHARACTERS] for text in node.status.warnings]
        notices = node.status.warnings_notice
        for text, notice in zip_longest(agent_texts(whole, notices), (notices or ())[: len(whole)]):
            if text not in warned and len(warned) < MOST_WARNINGS:
                warned.add(text)
                code = CODES.get(notice.code if notice is not None else "", "agent-records")
                self._log.tell(warning(code, node.name, msg("{host}: {message}", host=node.name, message=text)))

    def _tell_cuts(self, node: NodeRun) -> None:
        """Tell of each rank whose output has passed the cap."""
        streams = node.status.cut_logs if node.status is not None else ()
        for rank in node.ranks:
            if f"{rank}.out" in streams or f"{rank}.err" in streams:
                message = msg("the output of rank {rank} on {host} passed its cap", rank=rank, host=node.name)
                hint = msg("The host keeps its beginning and its end; monitoring.log_cap sets how much.")
                self._log.tell(warning("log-cut", f"{node.name}, {rank}", message, hint))


def log_rest(job_id: str, node: NodeRun, message: str = "") -> Finding:
    """Return what tells that the rest of a node's logs was left on the host; unless another message is given, why."""
    why = msg("the stop was forced: the rest of the logs of {host} was not fetched", host=node.name)
    hint = msg("`dttui attach {job}` fetches it, as long as the host keeps it.", job=job_id)
    if node.silent_since is not None:
        why = msg("{host} could not be reached any more after it had ended: the rest of its logs was not fetched",
                   host=node.name)  # fmt: skip
        hint = msg("The host is asked for it until some twenty minutes after the end, then by `dttui attach {job}`.",
                   job=job_id)  # fmt: skip
    if node.disk_trouble is not None:
        why = msg("the rest of the logs of {host} is still there, and not here: {reason}",
                   host=node.name, reason=disk_words(node.disk_trouble))  # fmt: skip
        hint = msg("It is fetched once there is room, as long as the host keeps it.")
    return warning(LOG_REST, node.name, message or why, hint)
