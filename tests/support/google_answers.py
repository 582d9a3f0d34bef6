"""Check of the emulators' answers against Google's own documents.

The answers were recorded while tests ran, in this process and in sandboxes.
"""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

from tpubox.box import answer_log as kept_answers


def check(file: Path) -> None:
    """Fail if an answer contradicts Google's documents, and clear the file: each answer is checked once."""
    if not file.exists():
        return
    from support import discovery  # loads Google's documents, which few tests need

    with file.open("r+b") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        content = opened.read()
        opened.truncate(0)
    wrong = set()
    for line in set(content.splitlines()):
        kept = json.loads(line)
        wrong.update(discovery.problems(kept["method"], kept["path"], kept["answer"]))
    assert not wrong, "the sandbox answered as no Google could:\n" + "\n".join(sorted(wrong))
    assert len(content) < kept_answers.MOST_BYTES, "the sandbox answered more than is kept for these tests to look at"
