"""The keys of the compose screen."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from dttui.tui.commands import N_

COMPOSE_KEYS: list[BindingType] = [
    Binding("slash", "filter", N_("filter"), id="compose.filter", tooltip=N_("Show only what has these words")),
    Binding("ctrl+l", "launch", N_("launch"), id="compose.launch", priority=True, tooltip=N_("Launch the job")),
    Binding("v", "view", N_("view"), id="compose.view", tooltip=N_("Change between environments and job")),
    Binding("ctrl+s", "save", N_("save"), id="compose.save", priority=True, tooltip=N_("Save the job as a file")),
    Binding("o", "open", N_("open"), id="compose.open", tooltip=N_("Open a job file")),
    Binding("N", "new", N_("new"), show=False, id="compose.new", tooltip=N_("Begin with a template")),
    Binding("c", "check", N_("check"), id="compose.check", tooltip=N_("Check the hosts; start nothing")),
    Binding("p", "preview", N_("preview"), id="compose.preview", tooltip=N_("Show the plan: what would run where")),
    Binding("y", "edit", N_("YAML"), id="compose.edit", tooltip=N_("Edit the job as text")),
    Binding("d", "recommend", N_("recommend"), id="compose.recommend", tooltip=N_("Recommend degrees of parallelism")),
    Binding("e", "estimate", N_("estimate"), id="compose.estimate", tooltip=N_("Show what the job costs, and why")),
    Binding("a", "fields", N_("all fields"), id="compose.fields", tooltip=N_("Go to the sections that hold all else")),
    Binding(
        "D",
        "section('strategy')",
        N_("degrees"),
        show=False,
        id="compose.degrees",
        tooltip=N_("Say how it is made parallel: degrees, ZeRO, schedule, batch"),
    ),
    Binding("n", "findings", N_("findings"), id="compose.findings", tooltip=N_("Go to what there is to mend")),
    Binding(
        "u", "guide", N_("guide"), show=False, id="compose.guide", tooltip=N_("What is usual, and what to try on hosts")
    ),
    Binding("w", "model", N_("model"), show=False, id="compose.model", tooltip=N_("Say how large the model is")),
    Binding("t", "options", N_("options"), id="compose.options", tooltip=N_("Say what the framework is told")),
    Binding("s", "sort", N_("sort"), id="compose.sort", tooltip=N_("Sort in another way")),
    Binding("f", "framework", N_("framework"), show=False, id="compose.framework", tooltip=N_("Choose the framework")),
    Binding(
        "i",
        "container",
        N_("container"),
        show=False,
        id="compose.container",
        tooltip=N_("Choose the image to run in"),
    ),
    Binding(
        "G",
        "choose_gpus",
        N_("GPUs"),
        show=False,
        id="compose.gpus",
        tooltip=N_("Choose the GPUs of the environment singly"),
    ),
    Binding(
        "r", "retry", N_("retry"), show=False, id="compose.retry", tooltip=N_("Try to reach the environment again")
    ),
    Binding("escape", "leave", N_("list"), id="compose.list", tooltip=N_("Go back to the list")),
]
