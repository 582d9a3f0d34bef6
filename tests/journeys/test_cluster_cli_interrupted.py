"""An apply interrupted while Google creates things: the same command imports them and goes on.

The google provider stops waiting when Terraform is interrupted. The resources that Google then finishes are in no
state, and the next apply fails with 409 alreadyExists.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from journeys.cluster_machine import ROOT, shown_plan
from support.waiting import until

SUBNET = "module.network.google_compute_subnetwork.this[0]"
ROUTER = "module.network.google_compute_router.this[0]"
ACCOUNT = "module.service_account.google_service_account.this"
SUBNET_ID = "projects/my-project-1/regions/us-central2/subnetworks/tpu-subnet"
ROUTER_ID = "projects/my-project-1/regions/us-central2/routers/tpu-network-router"
ACCOUNT_ID = "projects/my-project-1/serviceAccounts/cloud-tpu-sa@my-project-1.iam.gserviceaccount.com"
AFTER = {
    SUBNET: ("google_compute_subnetwork", {"name": "tpu-subnet", "region": "us-central2"}),
    ROUTER: ("google_compute_router", {"name": "tpu-network-router", "region": "us-central2"}),
    ACCOUNT: ("google_service_account", {"account_id": "cloud-tpu-sa"}),
}
APPLY = ["terraform", "apply -input=false -json"]


def planned(*addresses):
    change = [
        {"type": "planned_change", "change": {"resource": resource(one), "action": "create"}} for one in addresses
    ]
    return {"to": ["terraform", " plan "], "out": lines(*change)}


def resource(address):
    return {"addr": address, "resource_type": AFTER[address][0]}


def shown(*addresses):
    creates = [
        {
            "address": one,
            "type": AFTER[one][0],
            "change": {"actions": ["create"], "before": None, "after": AFTER[one][1]},
        }
        for one in addresses
    ]
    return shown_plan(*creates)


def lines(*messages):
    return "".join(json.dumps(one) + "\n" for one in messages)


def started(address):
    return {"type": "apply_start", "hook": {"resource": resource(address), "action": "create"}}


def failed(address, detail, summary="Error"):
    return (
        {"type": "apply_errored", "hook": {"resource": resource(address), "action": "create"}},
        {
            "type": "diagnostic",
            "@level": "error",
            "diagnostic": {"severity": "error", "summary": summary, "detail": detail, "address": address},
        },
    )


def given_up(*addresses):
    words = "Error waiting to create it: unable to finish polling, context has been cancelled"
    told = [started(one) for one in addresses] + [line for one in addresses for line in failed(one, words)]
    return {"to": APPLY, "code": 1, "out": lines(*told)}


def there(address, name):
    if address == ACCOUNT:
        words = (
            "googleapi: Error 409: Service account cloud-tpu-sa already exists within project projects/my-project-1."
        )
    else:
        words = f"googleapi: Error 409: The resource '{name}' already exists, alreadyExists"
    return started(address), *failed(address, words, "Error creating it")


def refused(**names):
    """Return a stand-in for an apply that fails until all of them are imported."""
    told = [line for address, name in names.items() for line in there(address, name)]
    return {"to": APPLY, "until": list(names.values())[-1], "code": 1, "out": lines(*told)}


IDS = {SUBNET: SUBNET_ID, ROUTER: ROUTER_ID, ACCOUNT: ACCOUNT_ID}


@pytest.mark.parametrize("addresses", [(SUBNET, ROUTER), (ACCOUNT,)], ids=["subnet and router", "account"])
def test_apply_after_an_interrupt_imports_what_it_had_begun_to_make_and_goes_on(machine, addresses):
    machine.answer(planned(*addresses), shown(*addresses), given_up(*addresses))
    assert machine.tpu("apply", "--yes").returncode != 0
    machine.answer(planned(*addresses), shown(*addresses), refused(**{one: IDS[one] for one in addresses}))
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 0, done.stderr
    imports = [call for call in machine.calls() if " import " in call]
    assert [(address in call, IDS[address] in call) for call, address in zip(imports, addresses, strict=True)] == [
        (True, True)
    ] * len(addresses)
    assert addresses[0] in done.stderr
    assert "interrupted" in done.stderr


def test_apply_never_imports_what_it_did_not_begin_to_make(machine):
    machine.answer(planned(SUBNET), shown(SUBNET), refused(**{SUBNET: SUBNET_ID}))
    for _ in range(2):
        done = machine.tpu("apply", "--yes")
        assert done.returncode != 0
        assert "already exists" in done.stderr
    assert not [call for call in machine.calls() if " import " in call]


def test_apply_whose_import_fails_says_why_and_does_not_repeat_it(machine):
    machine.answer(planned(SUBNET), shown(SUBNET), given_up(SUBNET))
    machine.tpu("apply", "--yes")
    gone = {"to": ["terraform", " import "], "code": 1, "err": "Error: Cannot import non-existent remote object\n"}
    machine.answer(gone, planned(SUBNET), shown(SUBNET), refused(**{SUBNET: SUBNET_ID}))
    done = machine.tpu("apply", "--yes")
    assert done.returncode != 0
    assert "non-existent remote object" in done.stderr
    assert len([call for call in machine.calls() if " import " in call]) == 1


WAITS = """#!{python} -IS
import pathlib, signal, sys, time
home = pathlib.Path({home!r})
line = " ".join(sys.argv[1:])
if "apply" not in line:
    import os
    os.execv({standin!r}, [{standin!r}, *sys.argv[1:]])
told = []
signal.signal(signal.SIGINT, lambda *_: told.append(1))
sys.stdout.write({begun!r}); sys.stdout.flush()
(home / "applying").touch()
while not told:
    time.sleep(0.01)
sys.stdout.write({ended!r})
(home / "saved").touch()
sys.exit(1)
"""


def test_interrupt_is_passed_on_once_and_the_next_run_goes_on(machine):
    machine.answer(planned(SUBNET), shown(SUBNET))
    program = machine.folder / "bin" / "terraform"
    standin = machine.folder / "bin" / "real" / "terraform"
    standin.parent.mkdir()
    program.rename(standin)
    words = "unable to finish polling, context has been cancelled"
    program.write_text(
        WAITS.format(
            python=sys.executable,
            home=str(machine.folder),
            standin=str(standin),
            begun=lines(started(SUBNET)),
            ended=lines(*failed(SUBNET, words)),
        )
    )
    program.chmod(0o755)
    argv = [sys.executable, "-m", "tpukit", "cluster", "apply", "--yes"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "tools")}
    with subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        until((machine.folder / "applying").exists)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130, said
    assert (machine.folder / "saved").exists()
    assert "cancelling" in said
    assert "continues from there" in said
    standin.rename(program)
    machine.answer(planned(SUBNET), shown(SUBNET), refused(**{SUBNET: SUBNET_ID}))
    done = machine.tpu("apply", "--yes")
    assert done.returncode == 0, done.stderr
    assert len([call for call in machine.calls() if " import " in call]) == 1
