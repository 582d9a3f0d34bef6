"""Upload of scalars to Vertex AI TensorBoard, with its REST API and the standard library alone.

Google's own uploader requires TensorFlow; the five calls it makes do not. Resources are named after their content and a
second write to a step replaces the first, so all calls are idempotent.
https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.tensorboards.experiments
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from tpukit.host.tensorboard_events import Scalar

POINTS_PER_WRITE = 5000  # the service refuses more
ENDPOINT = "GOOGLE_VERTEX_AI_CUSTOM_ENDPOINT"
TOKEN = "GOOGLE_OAUTH_ACCESS_TOKEN"  # noqa: S105 (a name)
"""Variables that also redirect Google's Terraform provider, so that one setting serves both."""

METADATA = "GCE_METADATA_HOST"
"""Variable by which Google's clients find a metadata server at an unusual address."""

_TENSORBOARD = re.compile(r"projects/[^/]+/locations/(?P<location>[a-z0-9-]+)/tensorboards/[^/]+")


class Vertex:
    """One experiment of one TensorBoard."""

    def __init__(self, tensorboard: str, experiment: str, *, endpoint: str = "") -> None:
        named = _TENSORBOARD.fullmatch(tensorboard)
        if not named:
            raise ValueError(f"{tensorboard}: write projects/PROJECT/locations/REGION/tensorboards/NUMBER")
        elsewhere = endpoint or os.environ.get(ENDPOINT, "").rstrip("/").removesuffix("/v1")
        self._endpoint = (elsewhere or f"https://{named['location']}-aiplatform.googleapis.com").rstrip("/")
        self._token = _token_for(self._endpoint)
        self._tensorboard = tensorboard
        self._experiment = f"{tensorboard}/experiments/{identifier(experiment)}"
        self._experiment_name = experiment
        self._made: set[str] = set()

    def push(self, run: str, scalars: Sequence[Scalar]) -> None:
        """Write `scalars` to `run`, creating the missing ones of the three levels."""
        self._make(self._tensorboard, "experiments", "tensorboardExperiment", self._experiment_name)
        name = self._make(self._experiment, "runs", "tensorboardRun", run)
        for tag in dict.fromkeys(scalar.tag for scalar in scalars):
            kind = {"valueType": "SCALAR", "pluginName": "scalars"}
            self._make(name, "timeSeries", "tensorboardTimeSeries", tag, **kind)
        for first in range(0, len(scalars), POINTS_PER_WRITE):
            series = list(_series(scalars[first : first + POINTS_PER_WRITE]))
            self._post(f"{self._experiment}:write", {"writeRunDataRequests": [_run_data(name, series)]})

    def _make(self, parent: str, collection: str, kind: str, display_name: str, **fields: str) -> str:
        name = f"{parent}/{collection}/{identifier(display_name)}"
        if name not in self._made:
            query = urllib.parse.urlencode({f"{kind}Id": identifier(display_name)})
            try:
                self._post(f"{parent}/{collection}?{query}", {"displayName": display_name, **fields})
            except urllib.error.HTTPError as error:
                if error.code != 409:  # it exists already
                    raise
            self._made.add(name)
        return name

    def _post(self, path: str, body: dict[str, Any]) -> None:
        request = urllib.request.Request(  # noqa: S310  https, or the endpoint that the user configured
            f"{self._endpoint}/v1/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token()}")
        try:
            with urllib.request.urlopen(request, timeout=60):  # noqa: S310
                return
        except urllib.error.HTTPError as error:
            error.msg = f"{error.msg}: {_explanation(error)}"
            raise


def identifier(name: str) -> str:
    """Return a resource id for `name`: the name itself if it is valid, else its valid part with a unique suffix."""
    if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,127}", name):
        return name
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:100] or "x"
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _token_for(endpoint: str) -> Callable[[], str] | None:
    """Return a token source for `endpoint`: Google's tokens only go over HTTPS, or to an emulator on this machine."""
    if endpoint.startswith("https://"):
        return google_token()
    own = os.environ.get(TOKEN, "")
    if urllib.parse.urlsplit(endpoint).hostname not in ("127.0.0.1", "localhost", "::1"):
        return None
    if own:
        return lambda: own
    return google_token() if os.environ.get(METADATA) else None


def google_token() -> Callable[[], str]:
    """Return a function that gives the access token of the current credentials, renewed as it expires."""
    credentials: Any = None

    def token() -> str:
        nonlocal credentials
        import google.auth
        import google.auth.transport.requests

        try:
            if credentials is None:
                credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
            if not credentials.valid:
                credentials.refresh(google.auth.transport.requests.Request())
        except google.auth.exceptions.GoogleAuthError as error:
            raise PermissionError(f"no access to Google Cloud: {error}") from error
        return str(credentials.token)

    return token


def _series(scalars: Sequence[Scalar]) -> Iterator[dict[str, Any]]:
    for tag in dict.fromkeys(scalar.tag for scalar in scalars):
        points = [_point(scalar) for scalar in scalars if scalar.tag == tag]
        yield {"tensorboardTimeSeriesId": identifier(tag), "valueType": "SCALAR", "values": points}


def _run_data(run: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    return {"tensorboardRun": run, "timeSeriesData": series}


def _point(scalar: Scalar) -> dict[str, Any]:
    # Protobuf's JSON writes 64-bit integers as strings, and also numbers that JSON cannot express.
    value = (
        scalar.value
        if math.isfinite(scalar.value)
        else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(scalar.value, "NaN")
    )
    time = datetime.fromtimestamp(scalar.time, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return {"step": str(scalar.step), "wallTime": time, "scalar": {"value": value}}


def _explanation(error: urllib.error.HTTPError) -> str:
    """Return the service's error message; Google wraps it in JSON."""
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text[:500]
