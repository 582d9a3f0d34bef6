"""Requests and responses of the REST front end, and its OpenAPI document, which is generated from the same types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tpukit import __version__
from tpukit.code_queue.decide import LONGEST_TIMEOUT
from tpukit.code_queue.records import ACTIVE, ATTEMPTS, ENDED, TIMEOUT, QueuedJob

BODY_LIMIT = 6 * 2**20
"""Bytes of a request: JSON may encode a character of the code in six."""
METADATA_LIMIT = 64 * 1024
LONGEST_LIST = 1000
_SCHEMAS = "#/components/schemas/{name}"


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: Annotated[str, Meta(pattern=r"\S", description="A Python program; it leaves its answer in `result`.")]
    timeout: Annotated[float, Meta(gt=0, le=LONGEST_TIMEOUT, description="Limit of the running time, in seconds.")] = (
        TIMEOUT
    )
    challenge_number: Annotated[int, Meta(ge=-(2**53), le=2**53)] | None = None
    priority: Annotated[float, Meta(ge=-100, le=100, description="Priority; higher runs first.")] = 0
    unique: Annotated[
        str, Meta(max_length=500, description="A key that is sent once: a second job with this key is the first one.")
    ] = ""
    metadata: Annotated[
        dict[str, Any], Meta(description="Returned with the job; `tpu` names the slice that it needs.")
    ] = msgspec.field(default_factory=dict)
    max_faults: Annotated[int, Meta(ge=1, le=1000, description="Limit of attempts lost by the infrastructure.")] = (
        ATTEMPTS
    )


class Problem(msgspec.Struct, frozen=True):
    """The reason for a refused or failed request."""

    error: str
    hint: str = ""


def openapi() -> dict[str, Any]:
    _, schemas = msgspec.json.schema_components([Submission, QueuedJob, Problem], ref_template=_SCHEMAS)
    record = schemas.pop("QueuedJob")
    schemas["Job"] = {
        "title": "Job",
        "description": "Times are seconds since 1970; 0 means not yet.",
        "type": "object",
        "properties": {"id": {"type": "string"}, **record["properties"]},
        "required": ["id", *record["properties"]],
    }
    listed = {"type": "array", "items": {"$ref": _SCHEMAS.format(name="Job")}}
    more = {"type": "boolean", "description": "True if more than `limit` jobs match."}
    schemas["Jobs"] = {"type": "object", "properties": {"jobs": listed, "more": more}, "required": ["jobs", "more"]}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tpukit job queue",
            "version": __version__,
            "description": "Send Python code, read its result later.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}],
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of the service, or an identity token of Google.",
                }
            },
        },
    }


def _paths() -> dict[str, Any]:
    key = {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    status = {"name": "status", "in": "query", "schema": {"type": "string", "enum": [*ACTIVE, *ENDED]}}
    bounds = {"type": "integer", "minimum": 1, "maximum": LONGEST_LIST, "default": 50}
    limit = {"name": "limit", "in": "query", "schema": bounds}
    one = {"parameters": [key]}
    return {
        "/v1/jobs": {
            "get": _operation("listJobs", "Jobs, newest first.", 200, "Jobs", (400,), parameters=[status, limit]),
            "post": _operation(
                "submitJob",
                "Send a job. With `unique`, return an earlier job with that key if there is one.",
                201,
                "Job",
                (400, 413),
                requestBody={"required": True, "content": _json("Submission")},
            ),
        },
        "/v1/jobs/{job_id}": {**one, "get": _operation("showJob", "A job with all its fields.", 200, "Job", (404,))},
        "/v1/jobs/{job_id}/result": {
            **one,
            "get": _operation("getResult", "The whole result of a completed job.", 200, "", (404, 409)),
        },
        "/v1/jobs/{job_id}/cancel": {
            **one,
            "post": _operation(
                "cancelJob",
                "Cancel a job: one that waits at once, one that runs as soon as its worker sees the request.",
                200,
                "Job",
                (404, 409),
            ),
        },
        "/v1/jobs/{job_id}/retry": {
            **one,
            "post": _operation("retryJob", "Send a job that has ended again.", 200, "Job", (404, 409)),
        },
        "/openapi.json": {"get": _operation("describe", "This document.", 200, "object", ())},
        "/healthz": {"get": _probe("live", "Whether the process runs.")},
        "/readyz": {"get": _probe("ready", "Whether it reaches its store.", 503)},
    }


def _operation(
    name: str, summary: str, status: int, schema: str, refused: tuple[int, ...], **more: Any
) -> dict[str, Any]:
    content = _json(schema) if schema else {"text/plain": {"schema": {"type": "string"}}}
    said = {400: "The request is not valid.", 401: "Not signed in.", 403: "Not allowed.", 404: "No such job."}
    said |= {
        409: "The state of the job does not allow this.",
        413: "Too large.",
        503: "The store is unreachable; try again.",
    }
    responses: dict[str, Any] = {str(status): {"description": "Done.", "content": content}}
    for code in sorted({*refused, 400, 401, 403, 503}):
        responses[str(code)] = {"description": said[code], "content": _json("Problem")}
    return {"operationId": name, "summary": summary, "responses": responses, **more}


def _probe(name: str, summary: str, *refused: int) -> dict[str, Any]:
    content = {"text/plain": {"schema": {"type": "string"}}}
    answers = {
        str(code): {"description": "Yes." if code == 200 else "No.", "content": content} for code in (200, *refused)
    }
    return {"operationId": name, "summary": summary, "security": [], "responses": answers}


def _json(schema: str) -> Mapping[str, Any]:
    described = {"type": "object"} if schema == "object" else {"$ref": _SCHEMAS.format(name=schema)}
    return {"application/json": {"schema": described}}
