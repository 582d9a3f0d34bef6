"""Roles in a project's policy: missing ones are added in one change, and bindings of others stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tpukit.cluster.grants import Grant, added

MEMBERS = st.sampled_from(["serviceAccount:a", "serviceAccount:b", "user:c"])
ROLES = st.sampled_from(["roles/x", "roles/y"])
BOUNDS = st.sampled_from([("", ""), ("ours", "1 == 1"), ("ours", "2 == 2"), ("theirs", "3 == 3")])
GRANTS = st.lists(st.builds(lambda m, r, b: Grant(m, r, *b), MEMBERS, ROLES, BOUNDS), max_size=6)


def bindings(grants):
    """Return a policy with one binding for each role and condition."""
    policy = added({}, grants)
    return policy or {}


def has(policy, grant):
    return any(
        binding["role"] == grant.role
        and grant.member in binding["members"]
        and binding.get("condition", {}).get("expression", "") == grant.expression
        for binding in policy.get("bindings", [])
    )


@given(GRANTS, GRANTS)
def test_added_policy_has_the_newest_of_every_grant_and_needs_no_second_change(before, wanted):
    policy = bindings(before)
    result = added(policy, wanted) or policy
    newest = {(grant.member, grant.role, grant.title): grant for grant in wanted}
    assert all(has(result, grant) for grant in newest.values())
    assert added(result, list(newest.values())) is None


@given(GRANTS, GRANTS)
def test_added_policy_loses_nothing_but_our_own_earlier_bounds(before, wanted):
    policy = bindings(before)
    result = added(policy, wanted) or policy
    replaced = {(grant.member, grant.role, grant.title) for grant in wanted if grant.title}
    for grant in before:
        if has(policy, grant) and (grant.member, grant.role, grant.title) not in replaced:
            assert has(result, grant)


def test_added_keeps_the_mark_and_asks_for_the_version_that_knows_conditions():
    policy = added({"etag": "abc", "version": 1}, [Grant("user:c", "roles/x", "ours", "1 == 1")])
    assert policy == {
        "etag": "abc",
        "version": 3,
        "bindings": [
            {"role": "roles/x", "members": ["user:c"], "condition": {"title": "ours", "expression": "1 == 1"}}
        ],
    }


def test_withdrawn_role_goes_from_that_member_whatever_its_condition_and_stays_with_others():
    bound = {"role": "roles/x", "members": ["user:a"], "condition": {"title": "t", "expression": "1 == 1"}}
    policy = {"bindings": [{"role": "roles/x", "members": ["user:a", "user:b"]}, bound]}
    left = added(policy, [Grant("user:a", "roles/y")], [Grant("user:a", "roles/x")])
    assert left is not None
    assert left["bindings"] == [
        {"role": "roles/x", "members": ["user:b"]},
        {"role": "roles/y", "members": ["user:a"]},
    ]
    assert added(left, [Grant("user:a", "roles/y")], [Grant("user:a", "roles/x")]) is None
