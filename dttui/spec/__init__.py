"""job.yaml: models, loader, units. Pure but for reading the file."""

from typing import TYPE_CHECKING

from dttui.lazy import first_use

if TYPE_CHECKING:
    from dttui.spec.document import validate as validate
    from dttui.spec.durations import parse_duration as parse_duration
    from dttui.spec.findings import Finding as Finding
    from dttui.spec.importing import Imported as Imported
    from dttui.spec.importing import grouped as grouped
    from dttui.spec.importing import import_documents as import_documents
    from dttui.spec.json_schema import document_schema as document_schema
    from dttui.spec.json_schema import job_schema as job_schema
    from dttui.spec.key_places import as_problem as as_problem
    from dttui.spec.key_places import with_places as with_places
    from dttui.spec.loader import Loaded as Loaded
    from dttui.spec.loader import dump_job as dump_job
    from dttui.spec.loader import load_document as load_document
    from dttui.spec.loader import load_job as load_job
    from dttui.spec.loader import parse_document as parse_document
    from dttui.spec.loader import parse_job as parse_job
    from dttui.spec.models import MOST_COUNT as MOST_COUNT
    from dttui.spec.models import MOST_LAYERS as MOST_LAYERS
    from dttui.spec.models import MOST_PARAMETERS as MOST_PARAMETERS
    from dttui.spec.models import Cluster as Cluster
    from dttui.spec.models import Container as Container
    from dttui.spec.models import DatasetRef as DatasetRef
    from dttui.spec.models import Job as Job
    from dttui.spec.models import Lora as Lora
    from dttui.spec.models import Model as Model
    from dttui.spec.models import Node as Node
    from dttui.spec.models import Run as Run
    from dttui.spec.overrides import with_values as with_values
    from dttui.spec.problems import DocumentError as DocumentError
    from dttui.spec.problems import Problem as Problem
    from dttui.spec.problems import did_you_mean as did_you_mean
    from dttui.spec.problems import format_path as format_path
    from dttui.spec.problems import printable as printable
    from dttui.spec.problems import shown as shown
    from dttui.spec.problems import text_width as text_width
    from dttui.spec.problems import with_hint as with_hint
    from dttui.spec.quantities import format_bytes as format_bytes
    from dttui.spec.quantities import parse_bytes as parse_bytes
    from dttui.spec.severity import Severity as Severity
    from dttui.spec.yaml_reader import decode as decode
    from dttui.spec.yaml_reader import read_bytes as read_bytes
    from dttui.spec.yaml_reader import read_yaml as read_yaml

__getattr__ = first_use(__name__)
