"""Firestore: databases, as Terraform manages them. Google's own emulator serves their contents."""

from __future__ import annotations

import re

from tpubox.google.wire import etags, location_checks, longrunning, update_masks
from tpubox.google.wire.api import Api, Call, Started, replaced
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.regions import REGIONS
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

DATABASE = "projects/{project}/databases/{database}"
MESSAGE = "GoogleFirestoreAdminV1Database"
MULTI_REGIONS = ("eur3", "nam5", "nam7")
"""Multi-region locations.

https://cloud.google.com/firestore/docs/locations
"""
_FIXED = ("databaseEdition", "locationId", "realtimeUpdatesMode")
"""Fields that cannot be changed in place.

Two are immutable according to the discovery document; for another location the Terraform provider recreates the
database. The type of an empty database can be changed.
"""
_OUTPUT = (
    *("createTime", "deleteTime", "earliestVersionTime", "etag", "freeTier", "keyPrefix", "name", "previousId"),
    *("sourceInfo", "uid", "updateTime", "versionRetentionPeriod"),
)

api = Api(
    "firestore",
    service="firestore.googleapis.com",
    document="firestore",
    title="Cloud Firestore API",
    permissions="datastore",
    operation=longrunning.operation_format(
        lambda doc: longrunning.message(f"google.firestore.admin.v1.{doc['type'].title()}DatabaseMetadata", {})
    ),
)
longrunning.serve(api, DATABASE + "/operations", message="GoogleLongrunningOperation")


@api.on("POST", "projects/{project}/databases", body=MESSAGE)
def _create(cloud: Cloud, call: Call) -> Started:
    name = call.query.get("databaseId", "")
    if name != "(default)" and not re.fullmatch(r"[a-z][a-z0-9-]{2,61}[a-z0-9]", name):
        raise GUESS.invalid(f"Invalid database ID {name!r}.")
    location = call.body.get("locationId")
    if not location or not call.body.get("type"):
        raise GUESS.invalid("Location and type of the database must be given.")
    if location not in REGIONS and location not in MULTI_REGIONS:
        raise location_checks.denied(location, api.service, call["project"])
    full = f"projects/{call['project']}/databases/{name}"
    if cloud.state.get("database", full):
        raise GUESS.exists("Database already exists. Please use another database_id")
    made = {
        "concurrencyMode": "PESSIMISTIC",
        "appEngineIntegrationMode": "DISABLED",
        "pointInTimeRecoveryEnablement": "POINT_IN_TIME_RECOVERY_DISABLED",
        "deleteProtectionState": "DELETE_PROTECTION_DISABLED",
        "databaseEdition": "STANDARD",
        **{field: value for field, value in call.body.items() if field not in _OUTPUT},
        "name": full,
        "uid": f"{cloud.state.next():032x}",
        "createTime": cloud.stamp(),
        "updateTime": cloud.stamp(),
        "etag": f"{cloud.state.next():08x}",
    }
    cloud.state.put("database", full, made)
    return cloud.start(api, "CREATE", full, full, response=_message(made))


@api.on("GET", "projects/{project}/databases")
def _listed(cloud: Cloud, call: Call) -> Doc:
    mine = cloud.state.all("database", f"projects/{call['project']}/").values()
    return {"databases": [etags.shown(one) for one in mine]}


@api.on("GET", DATABASE)
def _show(cloud: Cloud, call: Call) -> Doc:
    return etags.shown(_find(cloud, call))


@api.on("PATCH", DATABASE, body=MESSAGE)
def _patch(cloud: Cloud, call: Call) -> Started:
    old = _find(cloud, call)
    _check_etag(call.body.get("etag"), old)
    fields = update_masks.changed(call, old, fixed=_FIXED, output=_OUTPUT)
    new = {**replaced(old, call.body, fields), "updateTime": cloud.stamp()}
    name = old["name"]
    return cloud.change(api, "UPDATE", name, name, store="database", after=new, response=_message(new))


@api.on("DELETE", DATABASE)
def _delete(cloud: Cloud, call: Call) -> Started:
    database = _find(cloud, call)
    _check_etag(call.query.get("etag"), database)
    if database["deleteProtectionState"] == "DELETE_PROTECTION_ENABLED":
        raise GUESS.not_ready("The database is protected from deletion.")
    return cloud.start(api, "DELETE", database["name"], database["name"], response=_message(database))


@api.on_operation_end("CREATE", "DELETE")
def _changed(cloud: Cloud, operation: Doc) -> None:
    if operation["fail"]:
        cloud.fail(operation)
    if (operation["type"] == "DELETE") != bool(operation["fail"]):
        cloud.state.delete("database", operation["target"])


def _message(database: Doc) -> Doc:
    return longrunning.message("google.firestore.admin.v1.Database", etags.shown(database))


def _check_etag(asked: str | None, database: Doc) -> None:
    """Refuse a stale etag. FAILED_PRECONDITION is documented for deletions; using it for changes is a guess."""
    etags.check(asked, database, code=400, status="FAILED_PRECONDITION")


def _find(cloud: Cloud, call: Call) -> Doc:
    full = DATABASE.format(**call.names)
    found = cloud.state.get("database", full)
    if found is None:
        raise GUESS.not_found(f"The database {call['database']} does not exist for project {call['project']}")
    return found
