"""The JSON Schema of job files, for editors."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from tpukit.spec.job import JobSpec


def json_schema() -> dict[str, Any]:
    """Draft 2020-12. Accepts what `tpu` accepts, apart from rules between fields, which it cannot say."""
    schema = JobSpec.model_json_schema()
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "tpukit job",
        **{k: v for k, v in schema.items() if k != "title"},
    }
