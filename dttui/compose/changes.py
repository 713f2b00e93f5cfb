"""What a person says of the model and the degrees of a draft. Pure: each gives a changed draft."""

from __future__ import annotations

from dataclasses import replace

from dttui.planning.advising import framework_of, given_fields, with_recommendation, with_spread
from dttui.planning.compose_state import ComposeState
from dttui.planning.cost.recommend import Recommendation
from dttui.spec.models import Job, Model, Section, Strategy


def model_of(state: ComposeState) -> Model | None:
    """Return the model that the draft names."""
    return state.base.model if state.base is not None else None


def with_model(state: ComposeState, model: Model) -> ComposeState:
    """Give the draft a model; one of which nothing is said is none."""
    return _with(state, model=model if given_fields(model) else None)


def with_layout(state: ComposeState, chosen: Recommendation) -> ComposeState:
    """Give the draft the degrees, batches and schedule of a recommendation; what else its strategy says stays.

    Where its framework cannot train so, it gets one that can.
    """
    strategy = state.base.strategy if state.base is not None else Strategy()
    framework = framework_of(state.framework, chosen.frameworks)
    if framework is not None and framework != state.framework:
        state = state.choose_framework(framework)
    options = with_spread(state.framework_options, framework, chosen)
    if options != state.framework_options:
        state = state.with_options(options)
    return _with(state, strategy=with_recommendation(strategy, chosen))


def _with(state: ComposeState, **parts: Section | None) -> ComposeState:
    base = state.base or Job(name="draft")
    return replace(state, base=base.model_copy(update=parts))
