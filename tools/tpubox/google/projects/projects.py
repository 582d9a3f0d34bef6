"""Resource Manager: projects and their IAM policies. Billing: every project has an account."""

from __future__ import annotations

from tpubox.google.iam import held_permissions, policy
from tpubox.google.wire.api import Api, Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.state import Doc

api = Api(
    "resource_manager",
    service="cloudresourcemanager.googleapis.com",
    document="cloudresourcemanager",
    title="Cloud Resource Manager API",
    versions=("v1", "v3"),
    permissions="resourcemanager",
)
billing = Api("cloud_billing", document="cloudbilling", title="Cloud Billing API")


@api.on("GET", "projects/{project}")
def _show(cloud: Cloud, call: Call) -> Doc:
    began = cloud.state.get("furnished", call["project"]) or {}
    if call.request.path.startswith(f"{api.name}/v3/"):
        # https://cloud.google.com/resource-manager/reference/rest/v3/projects
        name = f"projects/{number_of(call['project'])}"
        return {"name": name, "projectId": call["project"], "displayName": call["project"], "state": "ACTIVE", **began}
    return {
        "projectId": call["project"],
        "projectNumber": number_of(call["project"]),
        "name": call["project"],
        "lifecycleState": "ACTIVE",
        "labels": {},
        **began,
    }


@api.on("POST", "projects/{project}:getIamPolicy", body="GetIamPolicyRequest")
def _get_policy(cloud: Cloud, call: Call) -> Doc:
    return policy.answer(cloud, f"projects/{call['project']}", call)


@api.on("POST", "projects/{project}:setIamPolicy", body="SetIamPolicyRequest")
def _set_policy(cloud: Cloud, call: Call) -> Doc:
    return policy.put(cloud, f"projects/{call['project']}", call.body.get("policy", {}))


held_permissions.register(api, "projects/{project}", body="TestIamPermissionsRequest")


@billing.on("GET", "projects/{project}/billingInfo")
def _billing(cloud: Cloud, call: Call) -> Doc:
    return {
        "name": f"projects/{call['project']}/billingInfo",
        "projectId": call["project"],
        "billingAccountName": "billingAccounts/000000-000000-000000",
        "billingEnabled": True,
    }
