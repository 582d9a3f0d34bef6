"""Each attempt to commit to Firestore is counted against the quota of writes."""

from __future__ import annotations

from google.api_core import exceptions

from tpukit.kernel.store.firestore_calls import Calls


class Batch:
    """A batch of three writes that the server takes at the second try."""

    def __init__(self) -> None:
        self.tries = 0

    def __len__(self) -> int:
        return 3

    def commit(self, **_: object) -> list[str]:
        self.tries += 1
        if self.tries == 1:
            raise exceptions.Aborted("held")
        return ["done"]


def test_every_try_of_a_commit_takes_its_writes_from_the_quota(monkeypatch):
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    calls, taken = Calls("my-project", "(default)", lambda: None), []
    monkeypatch.setattr(calls._writes, "take", taken.append)
    batch = Batch()
    assert calls.commit(batch) == ["done"]
    assert (batch.tries, taken) == (2, [3, 3])
