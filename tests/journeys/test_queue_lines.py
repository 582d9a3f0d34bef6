"""Command lines of `tpu queue` as its documents describe them: progress, errors, and removal."""

from __future__ import annotations

import json

from support.waiting import until


def test_follow_prints_each_status_while_the_job_has_it(tpu):
    job = tpu("queue", "submit", "--code", "import time\nwhile True: time.sleep(0.05)").stdout.strip()
    following = tpu.start("queue", "follow", job)
    until(lambda: "  pending" in tpu.said(following), lambda: tpu.said(following))
    tpu.start("queue", "serve", "--until-idle", "--no-http", "--tick", "0.05", "--preload", "")
    until(lambda: "  running on " in tpu.said(following), lambda: tpu.said(following))
    tpu("queue", "cancel", job)
    until(lambda: following.poll() == 1, lambda: tpu.said(following))
    assert "  cancelled" in tpu.said(following)


def test_show_names_the_line_that_raised_and_after_purge_there_is_no_job(tpu):
    job = tpu("queue", "submit", "--code", "x = 1\nraise ValueError('wrong shape')").stdout.strip()
    tpu("queue", "serve", "--until-idle", "--no-http", "--tick", "0.05", "--preload", "")
    shown = tpu("queue", "show", job).stdout
    assert "ValueError: wrong shape" in shown and 'File "<job>", line 2' in shown
    assert tpu("queue", "purge", "--older-than", "1h").stdout == ""
    assert tpu("queue", "purge", "--older-than", "0s").stdout.split() == [job]
    assert json.loads(tpu("queue", "list", "--json").stdout) == []
    assert f"there is no queued job {job}" in tpu("queue", "show", job, code=1).stderr
