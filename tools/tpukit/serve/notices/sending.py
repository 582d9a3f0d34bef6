"""Send one notice: a JSON text to a webhook, or a text to a command. Errors never name the address."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from tpukit.core.errors import Denied, Transient
from tpukit.serve.notices.decide import Notice
from tpukit.serve.notices.rules import Rule

SECONDS = 15.0
TEXT_MOST = 3000


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry a notice to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def send(rule: Rule, notice: Notice) -> None:
    """Raise Transient if another try may succeed, else Denied."""
    if rule.webhook:
        _post(rule.webhook, notice)
    else:
        _run(rule.command, notice)


def plain(text: str) -> str:
    """Return text without control characters, so that it cannot add headers or lines of its own."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)[:TEXT_MOST]


def escaped(text: str) -> str:
    """Return text in which Slack sees no links and mentions (https://docs.slack.dev/messaging/formatting-message-text)."""
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _post(address: str, notice: Notice) -> None:
    content = json.dumps({"text": escaped(notice.text)}).encode()
    request = urllib.request.Request(address, content, {"Content-Type": "application/json"})  # noqa: S310  https
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=SECONDS):
            return
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 429 or error.code >= 500:
            raise Transient(f"the webhook returned {error.code}") from None
        raise Denied(f"the webhook returned {error.code}", hint="check its address in notices.yaml") from None
    except (OSError, HTTPException, ValueError) as error:
        raise Transient(f"the webhook is unreachable: {type(error).__name__}") from None


def _run(command: tuple[str, ...], notice: Notice) -> None:
    subject = plain(notice.subject).replace("\n", " ")[:200]
    argv = [word.replace("{subject}", subject) for word in command]
    try:
        done = subprocess.run(
            *(argv,),
            input=f"{plain(notice.text)}\n".encode(),
            capture_output=True,
            timeout=SECONDS,
            env=dict(os.environ),
            check=False,
        )
    except (OSError, ValueError) as error:
        raise Denied(f"{argv[0]} cannot be run: {type(error).__name__}", hint="check notices.yaml") from None
    except subprocess.TimeoutExpired:
        raise Transient(f"{argv[0]} took longer than {SECONDS:.0f} s") from None
    if done.returncode:
        raise Transient(f"{argv[0]} exited with {done.returncode}")
