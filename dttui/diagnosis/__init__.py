"""Why a job ended as it did: evidence from its directory in, cause and advice out."""

from typing import TYPE_CHECKING

from dttui.lazy import first_use

if TYPE_CHECKING:
    from dttui.diagnosis.models import Diagnosis as Diagnosis
    from dttui.diagnosis.report import Kind as Kind
    from dttui.diagnosis.report import Line as Line
    from dttui.diagnosis.report import ReportSection as ReportSection
    from dttui.diagnosis.report import sections as sections
    from dttui.diagnosis.report import short_sections as short_sections

__getattr__ = first_use(__name__)
