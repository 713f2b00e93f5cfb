"""The section `monitoring`: metrics, alerts, what runs on an event, and the script's own logging and dashboards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from dttui.i18n import _
from dttui.spec.conditions import parse_metric, parse_metric_pattern, parse_pattern, parse_state
from dttui.spec.durations import DURATION, parse_duration
from dttui.spec.effects import FOR_SCRIPT, LAUNCHED, ON_EVENTS_ONLY
from dttui.spec.free_values import FreeValues
from dttui.spec.problems import check_exactly_one
from dttui.spec.quantities import Bytes
from dttui.spec.section import Section
from dttui.spec.text import Label, Text

MOST_METRIC_PATTERNS = 16
"""That one job may have; an agent looks for no more."""
MOST_HEALTH_S = 24 * 3600.0
LEAST_LOG_CAP = 1 << 20
MOST_LOG_CAP = 1 << 40


class Logging(Section):
    """The script's logging; passed to it."""

    level: Literal["INFO", "DEBUG", "WARN"] = Field(default="INFO", json_schema_extra=FOR_SCRIPT)
    """Least level."""
    format: Literal["json", "text"] = Field(default="text", json_schema_extra=FOR_SCRIPT)
    """Line format."""


class Visualization(Section):
    """Dashboards of the script's own: it finds this in the file that DTTUI_CONFIG names."""

    enabled: bool = Field(default=False, json_schema_extra=FOR_SCRIPT)
    """Whether it is on."""
    dashboard: FreeValues | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Its settings: type, name, url, port, panels, …; a plan names what no dashboard knows."""


def _condition(parse: Callable[[str], object]) -> AfterValidator:
    """Return the check that text can be parsed; it stays as it was written."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


class Alert(Section):
    """What raises an alert: exactly one of `log`, `metric` and `state`."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
                for name in ("log", "metric", "state")
            ]
        }
    )

    name: Annotated[Label, Field(max_length=80)] | None = None
    """What it is called; by default what it waits for."""
    log: Annotated[str, _condition(parse_pattern)] | None = None
    """Regular expression of Python's, looked for in each line of the ranks' output; of a line the first 4 KB count."""
    metric: Annotated[str, _condition(parse_metric)] | None = None
    """`loss > 10`, `gpu.temperature > 85`, `gpu.utilization < 5 for 10m`: what ranks report, `gpu.…` or `host.…`."""
    state: Annotated[str, _condition(parse_state)] | None = None
    """`node unknown for 2m`, `steps stalled for 10m`, `rank failed`, `job failed`."""
    action: Literal["report", "restart"] = "report"
    """`restart` ends the attempt, too; another one follows as `recovery` says."""
    every: Annotated[str, Field(pattern=DURATION)] = "5m"
    """Of the same rank, GPU or host it is raised at most once in so long, `30s`, `5m`, `2h`; and of all, five times."""

    @model_validator(mode="after")
    def _one_of(self) -> Alert:
        check_exactly_one(self, ("log", "metric", "state"), _("give exactly one of log, metric and state"))
        if self.action == "restart" and self.state is not None and parse_state(self.state).subject == "job":
            raise ValueError(_("a state of the job itself cannot restart it: take log, metric, or the state of a node"))
        return self


def _lasting(least: str) -> AfterValidator:
    """Return the check that a duration is from `least` to a day; it stays as it was written."""

    def check(text: str) -> str:
        if not parse_duration(least) <= parse_duration(text) <= MOST_HEALTH_S:
            raise ValueError(_("must be from {least} to {most}").format(least=least, most="24h"))
        return text

    return AfterValidator(check)


class HealthCommand(Section):
    """A command that says whether the job goes well on a host: run on each, beside its ranks."""

    command: tuple[Text, ...] = Field(min_length=1, max_length=256, json_schema_extra=LAUNCHED)
    """Program and arguments, run in the ranks' working directory and environment, in their container where they have
    one; no shell. Exit code 0 is healthy."""
    every: Annotated[str, Field(pattern=DURATION), _lasting("1s")] = Field(default="30s", json_schema_extra=LAUNCHED)
    """From the end of one run to the beginning of the next."""
    timeout: Annotated[str, Field(pattern=DURATION), _lasting("1s")] = Field(default="10s", json_schema_extra=LAUNCHED)
    """A run that takes longer is killed with all that it has started, and counts as failed."""
    failures: int = Field(default=3, ge=1, le=1000, json_schema_extra=LAUNCHED)
    """So many in a row make a host unhealthy; one success makes it healthy again."""
    start_period: Annotated[str, Field(pattern=DURATION), _lasting("0s")] = Field(
        default="5m", json_schema_extra=LAUNCHED
    )
    """From when all ranks of the host run: until it is over, or a run has succeeded, failures do not count."""
    action: Literal["report", "restart"] = Field(default="report", json_schema_extra=LAUNCHED)
    """`restart` ends the attempt, too; another one follows as `recovery` says."""


ToldKind = Literal[
    "alert",
    "metric_alert",
    "job_state",
    "node_state",
    "rank_failed",
    "finding",
    "progress",
    "hang",
    "health",
    "straggler",
    "restarted",
    "saved",
    "outcome",
]


def _bounded(size: int) -> int:
    if not LEAST_LOG_CAP <= size <= MOST_LOG_CAP:
        raise ValueError(_("must be from {least} to {most}").format(least="1MiB", most="1TiB"))
    return size


class MetricPattern(Section):
    """A metric that is read from what the ranks print, where their lines are of no known form."""

    name: Annotated[Label, Field(max_length=64)]
    """What it is called; `loss`, `step`, `tokens_per_s` and the like are what they are elsewhere."""
    pattern: Annotated[str, _condition(parse_metric_pattern)] = Field(json_schema_extra=LAUNCHED)
    """Regular expression of Python's, looked for in each line of the ranks' output; of a line the first 4 KB count. The
    number is in its only group, or in the one called `value`."""


def _kind_of_metric(item: object) -> str:
    # A word that is no key: it is part of the path to a mistake.
    return "an expression" if isinstance(item, (dict, MetricPattern)) else "a name"


WatchedMetric = Annotated[
    Annotated[str, Tag("a name")] | Annotated[MetricPattern, Tag("an expression")], Discriminator(_kind_of_metric)
]


class Monitoring(Section):
    """What is watched."""

    metrics: tuple[WatchedMetric, ...] = Field(default=(), json_schema_extra=FOR_SCRIPT)
    """Names of metrics that the script is to report, an open list; or each with the regular expression that finds it in
    the ranks' output. A plan names those that nobody makes."""
    alerts: tuple[Alert, ...] = Field(default=(), max_length=32)
    """What to raise an alert about while the job runs."""
    health: HealthCommand | None = None
    """A command that says on each host whether the job goes well."""
    on_event: tuple[Text, ...] | None = Field(default=None, min_length=1)
    """Program and arguments, run on the login node for each event, which is JSON on its standard input; no shell."""
    on_event_kinds: tuple[ToldKind, ...] = Field(
        default=("alert", "metric_alert", "hang", "health", "straggler", "rank_failed", "outcome"),
        json_schema_extra=ON_EVENTS_ONLY,
    )
    """Events that it is run for."""
    log_cap: Annotated[Bytes, AfterValidator(_bounded)] = Field(
        default=2 << 30, json_schema_extra={**LAUNCHED, "examples": ["512MiB"]}
    )
    """Of each rank's stdout and stderr, how much is kept on the host's disk, an eighth from the beginning and the end;
    and as much of the copy on the login node, where all copies together keep at most eight times that.
    """
    logging: Logging | None = None
    """Logging."""
    visualization: Visualization | None = None
    """Dashboards."""

    @field_validator("metrics")
    @classmethod
    def _named_once(cls, metrics: tuple[WatchedMetric, ...]) -> tuple[WatchedMetric, ...]:
        names = [item.name for item in metrics if isinstance(item, MetricPattern)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(_("two expressions find {name}").format(name=twice))
        if len(names) > MOST_METRIC_PATTERNS:
            raise ValueError(_("more than {count} expressions").format(count=MOST_METRIC_PATTERNS))
        return metrics

    @property
    def metric_names(self) -> tuple[str, ...]:
        """All of `metrics` by name."""
        return tuple(item if isinstance(item, str) else item.name for item in self.metrics)

    @property
    def metric_patterns(self) -> dict[str, str]:
        """Those that are looked for, with what finds them."""
        return {item.name: item.pattern for item in self.metrics if isinstance(item, MetricPattern)}
