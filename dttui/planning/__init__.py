"""From a job, its environments and what is known of their hosts to a Plan. Pure: no I/O, no clock."""

from typing import TYPE_CHECKING

from dttui.lazy import first_use

if TYPE_CHECKING:
    from dttui.planning.aggregate import Choice as Choice
    from dttui.planning.aggregate import gpu_text as gpu_text
    from dttui.planning.compose_state import ComposeState as ComposeState
    from dttui.planning.compose_state import ProgramKind as ProgramKind
    from dttui.planning.cost.assumptions import CLAIMED as CLAIMED
    from dttui.planning.cost.assumptions import HardwareClaim as HardwareClaim
    from dttui.planning.cost.assumptions import Input as Input
    from dttui.planning.cost.assumptions import ModelClaim as ModelClaim
    from dttui.planning.cost.assumptions import UnknownAssumptionError as UnknownAssumptionError
    from dttui.planning.cost.assumptions import assume_shape as assume_shape
    from dttui.planning.cost.collectives import CollectiveChoice as CollectiveChoice
    from dttui.planning.cost.collectives import rule_text as rule_text
    from dttui.planning.cost.collectives import timed_text as timed_text
    from dttui.planning.cost.estimate import Estimate as Estimate
    from dttui.planning.cost.estimate import MemoryRange as MemoryRange
    from dttui.planning.cost.estimate import amdahl_text as amdahl_text
    from dttui.planning.cost.estimate import part_names as part_names
    from dttui.planning.cost.hardware import Precision as Precision
    from dttui.planning.cost.hardware import gpu_table as gpu_table
    from dttui.planning.cost.layout_search import Wish as Wish
    from dttui.planning.cost.links import age_text as age_text
    from dttui.planning.cost.recommend import Advice as Advice
    from dttui.planning.cost.recommend import JobAdvice as JobAdvice
    from dttui.planning.cost.recommend import Recommendation as Recommendation
    from dttui.planning.input_words import default_texts as default_texts
    from dttui.planning.input_words import input_text as input_text
    from dttui.planning.input_words import layout_line as layout_line
    from dttui.planning.input_words import model_line as model_line
    from dttui.planning.merged_findings import Saying as Saying
    from dttui.planning.merged_findings import merge as merge
    from dttui.planning.merged_findings import merged as merged
    from dttui.planning.merged_findings import without_node as without_node
    from dttui.planning.models import Aggregate as Aggregate
    from dttui.planning.models import Plan as Plan
    from dttui.planning.models import PlannedNode as PlannedNode
    from dttui.planning.models import PlannedProcess as PlannedProcess
    from dttui.planning.section_form import FieldKind as FieldKind
    from dttui.planning.section_form import FormField as FormField
    from dttui.planning.section_form import SectionForm as SectionForm
    from dttui.planning.section_form import items_of as items_of
    from dttui.planning.section_form import options_form as options_form
    from dttui.planning.submission import Submission as Submission
    from dttui.planning.summary import estimate_text as estimate_text
    from dttui.planning.summary import gpu_sum as gpu_sum
    from dttui.planning.summary import network_note as network_note
    from dttui.planning.summary import success_message as success_message

__getattr__ = first_use(__name__)
