"""Predefined roles, by service, and the resources on which they can be granted.

The lists of these services are complete, so a missing role is a misspelling; roles of other services are accepted as
they are. https://cloud.google.com/iam/docs/roles-permissions
"""

from __future__ import annotations

import re

_BASIC = frozenset({"admin", "browser", "editor", "owner", "reader", "viewer", "writer"})
_NAMES: dict[str, str] = {
    "artifactregistry": (
        "admin attachmentReader attachmentWriter containerRegistryMigrationAdmin createOnPushRepoAdmin "
        "createOnPushWriter editor reader repoAdmin serviceAgent viewer writer"
    ),
    "cloudbuild": (
        "admin builds.approver builds.builder builds.editor builds.viewer connectionAdmin connectionViewer editor "
        "integrationsEditor integrationsOwner integrationsViewer loggingServiceAgent readTokenAccessor "
        "serviceAgent tokenAccessor viewer workerPoolEditor workerPoolOwner workerPoolUser workerPoolViewer"
    ),
    "cloudkms": (
        "admin autokeyAdmin autokeyUser cryptoKeyDecrypter cryptoKeyDecrypterViaDelegation cryptoKeyEncrypter "
        "cryptoKeyEncrypterDecrypter cryptoKeyEncrypterDecrypterViaDelegation cryptoKeyEncrypterViaDelegation "
        "cryptoOperator decapsulator ekmConnectionsAdmin encryptionDashboardViewer expertPqcSigner expertRawAesCbc "
        "expertRawAesCtr expertRawPKCS1 hsmSingleTenantExecutor hsmSingleTenantKeyCreator hsmSingleTenantProposer "
        "hsmSingleTenantQuorumMember importer keyAccessJustificationsEnrollmentConfigViewer "
        "keyAccessJustificationsPolicyConfigAdmin orgServiceAgent protectedResourcesViewer publicKeyViewer "
        "serviceAgent signer signerVerifier verifier viewer"
    ),
    "compute": (
        "admin editor futureReservationAdmin futureReservationUser futureReservationViewer imageUser instanceAdmin "
        "instanceAdmin.v1 instanceGroupManagerServiceAgent interconnectAttachmentGroupAnalyzer "
        "interconnectGroupAnalyzer loadBalancerAdmin loadBalancerServiceUser networkAdmin networkUser "
        "networkViewer orgFirewallPolicyAdmin orgFirewallPolicyUser orgSecurityPolicyAdmin orgSecurityPolicyUser "
        "orgSecurityResourceAdmin osAdminLogin osLogin osLoginExternalUser packetMirroringAdmin "
        "packetMirroringUser peerSubnetMigrationAdmin publicIpAdmin securityAdmin serviceAgent soleTenantViewer "
        "storageAdmin viewer vmExtensionPolicyAdmin vmExtensionPolicyViewer xpnAdmin"
    ),
    "config": "admin agent editor viewer",
    "container": (
        "admin cloudKmsKeyUser clusterAdmin clusterViewer defaultNodeServiceAccount defaultNodeServiceAgent "
        "developer editor hostServiceAgentUser nodeServiceAccount nodeServiceAgent serviceAgent viewer"
    ),
    "datastore": (
        "admin backupSchedulesAdmin backupSchedulesViewer backupsAdmin backupsViewer bulkAdmin cloneAdmin editor "
        "importExportAdmin indexAdmin keyVisualizerViewer owner restoreAdmin user userCredsAdmin userCredsViewer "
        "viewer"
    ),
    "iam": (
        "accessPolicyAdmin accessPolicyUser accessPolicyViewer admin dataScientist databasesAdmin denyAdmin "
        "denyReviewer devOps editor infrastructureAdmin mlEngineer networkAdmin oauthClientAdmin oauthClientViewer "
        "operationViewer organizationRoleAdmin organizationRoleViewer principalAccessBoundaryAdmin "
        "principalAccessBoundaryUser principalAccessBoundaryViewer roleAdmin roleViewer scimSyncer securityAdmin "
        "securityAuditor securityReviewer serviceAccountAdmin serviceAccountApiKeyBindingAdmin "
        "serviceAccountCreator serviceAccountDeleter serviceAccountKeyAdmin serviceAccountOpenIdTokenCreator "
        "serviceAccountTokenCreator serviceAccountUser serviceAccountViewer siteReliabilityEngineer supportUser "
        "viewer workforcePoolAdmin workforcePoolEditor workforcePoolViewer workloadIdentityPoolAdmin "
        "workloadIdentityPoolViewer workloadIdentityUser workspacePoolAdmin"
    ),
    "logging": (
        "admin bucketWriter configWriter fieldAccessor linkViewer logWriter privateLogViewer serviceAgent "
        "sqlAlertWriter viewAccessor viewer"
    ),
    "monitoring": (
        "admin alertPolicyEditor alertPolicyViewer alertViewer cloudConsoleIncidentEditor "
        "cloudConsoleIncidentViewer dashboardEditor dashboardViewer editor metricWriter metricsScopesAdmin "
        "metricsScopesViewer notificationChannelEditor notificationChannelViewer notificationServiceAgent "
        "servicesEditor servicesViewer snoozeEditor snoozeViewer uptimeCheckConfigEditor uptimeCheckConfigViewer "
        "viewer"
    ),
    "resourcemanager": (
        "folderAdmin folderCreator folderEditor folderIamAdmin folderMover folderViewer lienModifier "
        "organizationAdmin organizationViewer projectCreator projectDeleter projectIamAdmin projectMover tagAdmin "
        "tagHoldAdmin tagUser tagViewer"
    ),
    "serviceusage": "apiKeysAdmin apiKeysViewer serviceUsageAdmin serviceUsageConsumer serviceUsageViewer",
    "storage": (
        "admin annotationGeneratorService bucketViewer editor expressModeServiceInput expressModeServiceOutput "
        "expressModeUserAccess folderAdmin hmacKeyAdmin insightsCollectorService legacyBucketOwner "
        "legacyBucketReader legacyBucketWriter legacyObjectOwner legacyObjectReader objectAdmin objectCreator "
        "objectUser objectViewer viewer"
    ),
    "tpu": "admin editor serviceAgent viewer xpnAgent",
}
_ROLES = {f"{service}.{name}" for service, names in _NAMES.items() for name in names.split()}
_BASIC_WITHOUT_CONDITION = frozenset({"owner", "editor", "viewer"})
_BUCKETS_ALONE = frozenset(name for name in _ROLES if name.startswith("storage.legacy"))
_NOT_ON_BUCKETS = _BASIC | {"storage.hmacKeyAdmin"}
"""Roles that apply only to buckets, and roles that do not apply to them.

https://cloud.google.com/storage/docs/access-control/iam-roles
"""
_ABOVE_PROJECTS = frozenset(
    {
        "compute.xpnAdmin",
        "resourcemanager.organizationAdmin",
        "resourcemanager.organizationViewer",
        "resourcemanager.projectCreator",
    }
)
_OF_MANY_SERVICES = re.compile(
    r".*[sS]erviceAgent|.*Agent|iam\.(dataScientist|databasesAdmin|devOps|infrastructureAdmin|mlEngineer|networkAdmin)"
    r"|iam\.(securityAdmin|securityAuditor|securityReviewer|siteReliabilityEngineer|supportUser)"
    r"|resourcemanager\.tag(User|Viewer)|config\.agent|cloudbuild\.(builds\.builder|integrationsOwner)"
    r"|artifactregistry\.containerRegistryMigrationAdmin|container\.nodeServiceAccount"
)
"""Roles with permissions of so many services that they apply to most resources."""
_FITTING = (
    (re.compile(r"b/.+"), re.compile(r"storage\..+")),
    (
        re.compile(r"projects/[^/]+/serviceAccounts/.+"),
        re.compile(r"iam\.(admin|editor|viewer|workloadIdentityUser|serviceAccount.+)"),
    ),
    (re.compile(r"projects/[^/]+/locations/[^/]+/repositories/.+"), re.compile(r"artifactregistry\..+")),
    (
        re.compile(r"projects/[^/]+/regions/[^/]+/subnetworks/.+"),
        re.compile(
            r"compute\.(admin|editor|viewer|instanceAdmin|instanceAdmin\.v1|loadBalancerAdmin|networkAdmin|networkUser"
            r"|networkViewer|packetMirroringAdmin|peerSubnetMigrationAdmin|securityAdmin|xpnAdmin)"
        ),
    ),
)
"""Roles with a permission that applies to the resource, by the name of its policy."""


def can_be_granted(role: str, resource: str) -> bool:
    """Return True if this policy accepts the predefined role, or if that is unknown."""
    name = role.removeprefix("roles/")
    service, _, rest = name.partition(".")
    if resource.startswith("b/") and name in _NOT_ON_BUCKETS:
        return False
    if not rest:
        return name in _BASIC
    if service not in _NAMES:
        return True
    if name not in _ROLES:
        return False
    if re.fullmatch(r"projects/[^/]+", resource):
        return name not in _BUCKETS_ALONE | _ABOVE_PROJECTS
    fitting = next((roles for policies, roles in _FITTING if policies.fullmatch(resource)), None)
    return fitting is None or bool(fitting.fullmatch(name) or _OF_MANY_SERVICES.fullmatch(name))


def takes_condition(role: str) -> bool:
    """Return True if the role may have a condition; basic roles may not.

    https://cloud.google.com/iam/docs/conditions-overview
    """
    return role.removeprefix("roles/") not in _BASIC_WITHOUT_CONDITION
