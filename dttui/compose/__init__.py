"""A job that is being composed: what is asked about it and answered. What finds answers is behind the face."""

from typing import TYPE_CHECKING

from dttui.lazy import first_use

if TYPE_CHECKING:
    from dttui.compose.bench_words import HEADER as HEADER
    from dttui.compose.bench_words import USUAL_LARGEST as USUAL_LARGEST
    from dttui.compose.bench_words import fastest_texts as fastest_texts
    from dttui.compose.bench_words import fit_texts as fit_texts
    from dttui.compose.bench_words import kept_text as kept_text
    from dttui.compose.bench_words import load_question as load_question
    from dttui.compose.bench_words import place_name as place_name
    from dttui.compose.bench_words import progress_text as progress_text
    from dttui.compose.bench_words import regime_name as regime_name
    from dttui.compose.bench_words import row_cells as row_cells
    from dttui.compose.bench_words import unfinished_text as unfinished_text
    from dttui.compose.changes import form_of as form_of
    from dttui.compose.changes import is_elsewhere as is_elsewhere
    from dttui.compose.changes import model_of as model_of
    from dttui.compose.changes import said_of as said_of
    from dttui.compose.changes import section_of as section_of
    from dttui.compose.changes import with_layout as with_layout
    from dttui.compose.changes import with_model as with_model
    from dttui.compose.changes import with_section as with_section
    from dttui.compose.draft_answers import CalibrationAnswer as CalibrationAnswer
    from dttui.compose.draft_answers import ChangedPart as ChangedPart
    from dttui.compose.draft_answers import CostQuestion as CostQuestion
    from dttui.compose.draft_answers import Degrees as Degrees
    from dttui.compose.draft_answers import DraftCost as DraftCost
    from dttui.compose.draft_answers import DraftPreview as DraftPreview
    from dttui.compose.draft_answers import LaunchChanges as LaunchChanges
    from dttui.compose.draft_answers import LineChange as LineChange
    from dttui.compose.draft_answers import NoEstimate as NoEstimate
    from dttui.compose.draft_answers import Offer as Offer
    from dttui.compose.draft_answers import ReadText as ReadText

__getattr__ = first_use(__name__)
