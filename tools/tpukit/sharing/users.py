"""Users: their working directories, aliases of program settings, own settings, and log.

Every change is one compare-and-swap write with a sentence in the user's log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec
from msgspec.structs import replace

from tpukit.core.errors import Conflict, Invalid, NotFound, Problem
from tpukit.jobs.spec.program_config import ALIASES
from tpukit.kernel.store import Entry, Event, Kind, Store, change, everything
from tpukit.sharing import settings, tpu_names
from tpukit.sharing.settings import UserSettings

MOST_DIRECTORIES = 1000


class User(msgspec.Struct, frozen=True):
    name: str
    created: float
    directories: dict[str, str] = {}  # path by number
    aliases: dict[str, str] = msgspec.field(default_factory=lambda: dict(ALIASES))  # short names of program settings
    settings: UserSettings = UserSettings()
    last_window: int = 0  # number of the newest job
    read_until: float = 0.0  # earlier events were shown


USERS: Kind[User] = Kind("users", User, state="name", order="created", opaque=("directories", "aliases", "settings"))
msgspec.json.Decoder(User)


def add(store: Store, name: str, reserved: Collection[str], now: float) -> User:
    tpu_names.check_user(name, reserved)
    user = User(name, now, read_until=now)
    return store.create(USERS, name, user, events=[Event(now, "added")]).value


def get(store: Store, name: str) -> User:
    try:
        return store.get(USERS, name).value
    except NotFound as error:
        hint = f"`tpu user add {name}` adds one, `tpu user list` shows all"
        raise NotFound(f"there is no user {name}", hint=hint) from error


def listed(store: Store) -> list[User]:
    return [entry.value for entry in everything(store, USERS)]


def remove(store: Store, name: str) -> None:
    get(store, name)
    store.delete(USERS, store.get(USERS, name))


def set_directory(store: Store, name: str, number: int, folder: str, now: float) -> User:
    if not 0 < number <= MOST_DIRECTORIES:
        raise Invalid(Problem("NUMBER", f"{number} is not from 1 to {MOST_DIRECTORIES}", "write 1"))
    return _changed(
        *(store, name, lambda user: replace(user, directories={**user.directories, str(number): folder})),
        *(f"working directory {number} is {folder}", now),
    )


def directory(user: User, number: int) -> str:
    try:
        return user.directories[str(number)]
    except KeyError:
        hint = f"go to the folder and run `tpu user set-dir {number} --user {user.name}`"
        raise NotFound(f"{user.name} has no working directory {number}", hint=hint) from None


def delete_directory(store: Store, name: str, number: int, now: float) -> User:
    def without(user: User) -> User:
        directory(user, number)
        return replace(user, directories={key: one for key, one in user.directories.items() if key != str(number)})

    return _changed(store, name, without, f"working directory {number} removed", now)


def swap_directories(store: Store, name: str, one: int, other: int, now: float) -> User:
    def swapped(user: User) -> User:
        both = {str(one): directory(user, other), str(other): directory(user, one)}
        return replace(user, directories={**user.directories, **both})

    return _changed(store, name, swapped, f"working directories {one} and {other} swapped", now)


def set_alias(store: Store, name: str, alias: str, setting: str, reserved: Collection[str], now: float) -> User:
    tpu_names.check_alias(alias, reserved)
    if not setting.startswith("config.") or not all(part.isidentifier() for part in setting.split(".")):
        hint = "write config.NAME, such as config.training.learning_rate"
        raise Invalid(Problem("SETTING", f"{setting!r} is not the name of a setting", hint))
    return _changed(
        *(store, name, lambda user: replace(user, aliases={**user.aliases, alias: setting})),
        *(f"alias {alias} stands for {setting}", now),
    )


def delete_alias(store: Store, name: str, alias: str, now: float) -> User:
    def without(user: User) -> User:
        if alias not in user.aliases:
            hint = f"`tpu alias list --user {name}` shows all"
            raise NotFound(f"user {name} has no alias {alias}", hint=hint)
        return replace(user, aliases={key: one for key, one in user.aliases.items() if key != alias})

    return _changed(store, name, without, f"alias {alias} deleted", now)


def set_setting(store: Store, name: str, key: str, text: str, now: float) -> User:
    return _changed(
        *(store, name, lambda user: replace(user, settings=settings.changed(user.settings, key, text))),
        *(f"{key} set to {text}", now),
    )


def reset_settings(store: Store, name: str, now: float) -> User:
    return _changed(store, name, lambda user: replace(user, settings=UserSettings()), "settings reset", now)


def set_last_window(store: Store, name: str, number: int, now: float) -> User:
    """Set the counter. The next job gets the first free number after it."""
    if number < 0:
        raise Invalid(Problem("NUMBER", f"{number} is below 0", "write 0"))
    return _changed(store, name, lambda user: replace(user, last_window=number), f"windows count from {number}", now)


def note(store: Store, name: str, text: str, now: float) -> None:
    """Add a sentence to the user's log."""
    _changed(store, name, lambda user: user, text, now)


def news(store: Store, name: str, of_jobs: Sequence[Event], now: float, *, unread: bool = True) -> list[Event]:
    """Return unread events of the user and `of_jobs`, oldest first, and mark them read; `unread=False`: all events."""
    user = get(store, name)
    since = user.read_until if unread else 0.0
    happened = [event for event in (*store.events(USERS, name), *of_jobs) if event.at > since]
    change(store, USERS, name, lambda user: replace(user, read_until=max(user.read_until, now)))
    return sorted(happened, key=lambda event: event.at)


def _changed(store: Store, name: str, how: Callable[[User], User], text: str, now: float) -> User:
    get(store, name)
    entry: Entry[User] = change(store, USERS, name, how, note=text, at=now)
    return entry.value


def taken(store: Store, word: str) -> None:
    """Raise Conflict if a user has that name: a command could mean either."""
    if word in store.keys(USERS, word):
        raise Conflict(f"{word} is the name of a user", hint="use another name")
