"""A job that is being composed: what it would do, cost and lack, before anything is launched."""

from typing import TYPE_CHECKING

from dttui.lazy import first_use

if TYPE_CHECKING:
    from dttui.compose.costs import AdviceAnswer as AdviceAnswer
    from dttui.compose.costs import CostAnswer as CostAnswer
    from dttui.compose.costs import CostQuestion as CostQuestion
    from dttui.compose.draft import DraftPreview as DraftPreview
    from dttui.compose.draft import facts_of as facts_of
    from dttui.compose.draft import preview_draft as preview_draft
    from dttui.compose.estimates import Degrees as Degrees
    from dttui.compose.estimates import DraftCost as DraftCost
    from dttui.compose.estimates import NoEstimate as NoEstimate
    from dttui.compose.estimates import Offer as Offer
    from dttui.compose.estimates import Statuses as Statuses
    from dttui.compose.estimates import advise as advise
    from dttui.compose.estimates import cost_of_draft as cost_of_draft
    from dttui.compose.estimates import model_of as model_of
    from dttui.compose.estimates import with_layout as with_layout
    from dttui.compose.estimates import with_model as with_model
    from dttui.compose.open_points import check_open_points as check_open_points
    from dttui.compose.templates import JOB_FILE as JOB_FILE
    from dttui.compose.templates import OWN_SCRIPT as OWN_SCRIPT
    from dttui.compose.templates import Template as Template
    from dttui.compose.templates import choose_template as choose_template
    from dttui.compose.templates import environments_for as environments_for
    from dttui.compose.templates import job_text as job_text
    from dttui.compose.templates import made_for as made_for
    from dttui.compose.templates import read_templates as read_templates

__getattr__ = first_use(__name__)
