"""The JSON Schema of a job file, made from the models, for editors and other tools."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from dttui.spec.field_docs import field_docs
from dttui.spec.models import JobDocument
from dttui.spec.versions import CURRENT

DIALECT = "https://json-schema.org/draft/2020-12/schema"
"""What the schema itself is written in."""


def job_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12. Each property tells by `effect`, where it has one, what acts upon it."""
    return {**document_schema(JobDocument, "job"), "$id": "urn:" + CURRENT.replace("/", ":job:")}


def document_schema(model: type[BaseModel], name: str) -> dict[str, Any]:
    """Return the schema, draft 2020-12, of a file of this model, which is called so."""
    schema = model.model_json_schema(by_alias=True, schema_generator=SchemaGenerator)
    return {"$schema": DIALECT, "$id": f"urn:dttui:{name}", **schema, "title": f"dttui {name}"}


class SchemaGenerator(GenerateJsonSchema):
    """Accepts what the loader does, and leaves out titles that only repeat the key."""

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        """Accept plain scalars of any kind: where text is expected, they count as they are written."""
        found = super().str_schema(schema)
        return {**found, "type": ["string", "number", "boolean"]}

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No title."""
        return False

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Refuse the keys that do not look as they should."""
        found = super().dict_schema(schema)
        return {**found, "additionalProperties": False} if "patternProperties" in found else found

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Describe each property by the docstring under its field."""
        found = super().model_schema(schema)
        model: type[BaseModel] = schema["cls"]
        told = field_docs(model)
        for name, field in model.model_fields.items():
            of_field = found.get("properties", {}).get(field.alias or name)
            if of_field is not None and name in told:
                of_field.setdefault("description", told[name])
        return found

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Leave out defaults that say nothing: those of whole sections, and where there is none."""
        found = super().default_schema(schema)
        if isinstance(found.get("default", 0), (dict, list, type(None))):
            found.pop("default")
        return found

    def generate(self, schema: CoreSchema, mode: Any = "validation") -> JsonSchemaValue:
        """Return the schema without the titles of models, which are names of Python's."""
        found = super().generate(schema, mode)
        for definition in found.get("$defs", {}).values():
            definition.pop("title", None)
        return found
