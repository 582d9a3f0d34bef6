"""Run one request of a driver, or the watch over an attempt, on a host: see the package `supervision` beside it."""

from __future__ import annotations

import json
import os
import sys

if __name__ == "__main__":
    # Isolated Python searches no folder, so that no module of the user interferes.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    if sys.argv[1:]:
        from supervision import host_unattended  # type: ignore[import-not-found]

        sys.exit(host_unattended.main(sys.argv[1]))
    from supervision import host_requests

    host_requests.note_driver()
    sys.stdout.write(json.dumps(host_requests.answer(json.loads(sys.stdin.buffer.readline()), sys.stdin.buffer)) + "\n")
