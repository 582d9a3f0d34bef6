"""Risks to work are reported before a job is sent, and a dry run names the TPU and the program's inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.manager_desk import set_up
from tpukit.jobs.use_cases import submission

WARNING = "warning:"


def write(folder: Path, text: str) -> None:
    (folder / "code" / "job.yaml").write_text(f'name: train\ntpu: v4-8\ncommand: ["true"]\n{text}')


@pytest.mark.parametrize(
    ("tpu", "text", "said"),
    [
        ("g-v4-8-spot-1", "", "preemption"),
        ("g-v4-8-1", "", "hosts' disks"),
        ("g-v4-8-1", "workdir: gs://my-bucket/run\nmax: {grace: 1s}\n", "max.grace"),
    ],
)
def test_risk_is_said_before_the_job_is_sent(desk, tmp_path, monkeypatch, tpu, text, said):
    set_up(desk)
    desk("apply g-v4-8-spot-1")
    write(tmp_path, text)
    before = []
    record = submission.record
    monkeypatch.setattr(submission, "record", lambda *given: print("SENT") or before.append(1) or record(*given))
    shown = " ".join(desk(f"run {tpu} xibo").output.split())
    assert said in shown.partition("SENT")[0] and WARNING in shown.partition("SENT")[0]
    assert "gs://" in shown or "max.grace" in shown


@pytest.mark.parametrize("tpu", ["g-v4-8-1", "g-v4-8-spot-1"])
def test_job_that_saves_to_a_bucket_with_grace_has_no_warning(desk, tmp_path, tpu):
    set_up(desk)
    desk("apply g-v4-8-spot-1")
    write(tmp_path, "workdir: gs://my-bucket/run\n")
    shown = desk(f"run {tpu} xibo").output
    # No bucket is writable here, so the code stays local, which is no risk of the job.
    assert [line for line in shown.splitlines() if WARNING in line and "the code of" not in line] == []


def test_job_on_a_shared_disk_has_no_warning(desk, tmp_path):
    set_up(desk)
    write(tmp_path, "workdir: /mnt/share/run\n")
    assert WARNING not in desk("run g-v4-8-1 xibo").output


def test_dry_run_names_the_tpu_the_flags_and_the_risks(desk, tmp_path):
    set_up(desk)
    write(tmp_path, "")
    shown = desk("run g-v4-8-1 xibo lr=0.01 --dry-run --log-stage").output
    assert "g-v4-8-1" in shown and "us-central2-b" in shown
    assert "--config.training.learning_rate=0.01" in shown and "--config.stage" in shown
    assert WARNING in shown
