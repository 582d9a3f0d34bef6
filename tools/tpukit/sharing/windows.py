"""Windows: the numbers under which users refer to their jobs, and details of the submission.

A window points at a job and holds nothing of its state, which comes only from the job's record.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from tpukit.core.errors import Conflict, NotFound
from tpukit.kernel.store import Kind, Store, change, everything
from tpukit.sharing import users
from tpukit.sharing.users import USERS, User


class Window(msgspec.Struct, frozen=True):
    user: str
    number: int
    job: str  # id of the job; empty during submission
    created: float
    directory: int = 1
    tpu: str = ""  # name of the TPU VM, if one was given
    parent: int = 0  # window of the job that this one continues
    log: str = ""  # folder that a script reported
    code: str = ""
    finished: float = 0.0  # when a script reported that its program is done; one sign of an end, never the only one

    @property
    def name(self) -> str:
        return f"{self.user}:{self.number}"


WINDOWS: Kind[Window] = Kind("windows", Window, state="user", order="created")
msgspec.json.Decoder(Window)


def make(
    store: Store, user: str, job: str, now: float, *, directory: int = 1, tpu: str = "", parent: int = 0
) -> Window:
    """Create a window with the first free number after the user's last one."""
    users.get(store, user)
    while True:
        number = change(store, USERS, user, _count).value.last_window
        window = Window(user, number, job, now, directory, tpu, parent)
        try:
            return store.create(WINDOWS, window.name, window).value
        except Conflict:  # the counter was set back below existing windows
            continue


def get(store: Store, name: str) -> Window:
    """Return the window named `USER:NUMBER`."""
    try:
        return store.get(WINDOWS, name).value
    except NotFound as error:
        user, _, number = name.partition(":")
        hint = f"`tpu job check --user {user}` shows all"
        raise NotFound(f"{user} has no window {number}", hint=hint) from error


def of_user(store: Store, user: str) -> list[Window]:
    """Return the windows of a user, oldest first."""
    users.get(store, user)
    return [entry.value for entry in everything(store, WINDOWS, states=[user])]


def changed(store: Store, name: str, how: Callable[[Window], Window]) -> Window:
    get(store, name)
    return change(store, WINDOWS, name, how).value


def drop(store: Store, name: str) -> None:
    """Delete a window but not the job's record. Do nothing if it is already deleted."""
    try:
        store.delete(WINDOWS, store.get(WINDOWS, name))
    except (NotFound, Conflict):
        return


def children(listed: list[Window], window: Window) -> list[Window]:
    """Return the windows that continue this one, directly or indirectly."""
    direct = [one for one in listed if one.parent == window.number and one.number != window.number]
    return direct + [deeper for one in direct for deeper in children([w for w in listed if w is not one], one)]


def _count(user: User) -> User:
    return replace(user, last_window=user.last_window + 1)
