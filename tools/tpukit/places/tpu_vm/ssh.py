"""Requests to hosts over SSH, with one connection to each, all on one background thread. Thread-safe."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tpukit.core import fence, resources
from tpukit.core.errors import Denied, HostKeyChanged, Invalid, LeaseLost, TpukitError, Transient
from tpukit.jobs.spec import settings
from tpukit.places import raw
from tpukit.places.tpu_vm.channel import Answer, Call, Login, programs, version

T = TypeVar("T")
Executed = tuple[int, bytes, bytes]
CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS, KEEPALIVES = 5, 3
AT_ONCE = 64
CONFIG = "TPUKIT_SSH_CONFIG"
"""Variable with an OpenSSH configuration file, for hosts that do not listen on port 22."""
_FOLDER = ".tpukit/programs"
_INSTALL = (
    "import json,os,sys\n"
    "d=json.load(sys.stdin);f=d['folder'];t='%s.%d'%(f,os.getpid());os.makedirs(t,0o700)\n"
    "for n,c in d['files'].items():\n"
    " n=os.path.join(t,n);os.makedirs(os.path.dirname(n),0o700,exist_ok=True);open(n,'w',encoding='utf-8').write(c)\n"
    "try:os.rename(t,f)\n"
    "except OSError:\n"
    " if not os.path.isdir(f):raise\n"
)


class Ssh:
    def __init__(self, folder: Path, key: str | None = None) -> None:
        """Initialize. `key`: a private key; without one, tpukit's own in `folder` is used."""
        try:
            import asyncssh
        except ImportError as error:
            raise Invalid("asyncssh is not installed", hint=resources.install_hint("tpu-vm")) from error
        self._ssh = asyncssh
        self._folder, self._key_file = folder, key
        self._key: Any = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._waiting: set[Future[Any]] = set()  # results that threads wait for
        self._connections: dict[Login, asyncio.Task[Any]] = {}

    def public_key(self) -> str:
        return str(self._private().export_public_key("openssh").decode()).strip()

    def ask(self, calls: Sequence[Call]) -> list[Answer | TpukitError]:
        if not calls:
            return []
        self._private()
        answers = self._wait(self._ask_all(calls, fence.carry(fence.check)))
        for answer in answers:
            if isinstance(answer, LeaseLost):
                raise answer
        return answers

    def execute(self, logins: Sequence[Login], argv: Sequence[str], seconds: float) -> list[Executed | TpukitError]:
        """Run a program on all of these hosts concurrently; return exit code, output and errors of each."""
        self._private()

        async def one(login: Login) -> Executed | TpukitError:
            try:
                return await self._run(Call(login, {}, seconds=seconds), shlex.join(argv), b"")
            except TpukitError as error:
                return error

        async def everywhere() -> list[Executed | TpukitError]:
            return list(await asyncio.gather(*map(one, logins)))

        return self._wait(everywhere())

    def attached(self, login: Login, argv: Sequence[str], *, terminal: bool) -> int:
        """Run a command on a host with the input and output of this process, and return its exit code.

        SSH passes a command as one string, so the words are quoted here, and nowhere else.
        """
        self._private()
        fence.check()
        with raw.terminal(terminal):
            return self._wait(self._attached(login, shlex.join(argv), terminal))

    async def _attached(self, login: Login, command: str, terminal: bool) -> int:
        ssh = self._ssh
        size = {"term_type": os.environ.get("TERM", "xterm"), "term_size": tuple(shutil.get_terminal_size())}
        try:
            connection = await self._connection(login)
            done = await connection.run(
                command,
                stdin=os.dup(0),
                stdout=os.dup(1),
                stderr=os.dup(2),
                encoding=None,
                check=False,
                **(size if terminal else {}),
            )
        except (OSError, ssh.Error) as error:
            self._drop(login)
            raise self._translated(login, error) from error
        if done.exit_status is None or done.exit_status < 0:
            raise Transient(f"the connection to {login.address} was lost; the command may still run there")
        return int(done.exit_status)

    def close(self) -> None:
        """Close all connections. Pending requests fail."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            waiting = list(self._waiting)
        if loop is None or thread is None:
            return
        for future in waiting:
            future.cancel()
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._disconnect(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = self._begin(coroutine)
        try:
            return future.result()
        except CancelledError as error:
            raise Transient("the connections were closed before a response arrived") from error
        finally:
            with self._lock:
                self._waiting.discard(future)

    def _begin(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:  # so that `close` knows what begins before it
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="ssh", daemon=True)
                self._thread.start()
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._waiting.add(future)
            return future

    def _private(self) -> Any:
        with self._lock:
            if self._key is None:
                self._key = self._read_key()
            return self._key

    def _read_key(self) -> Any:
        ssh = self._ssh
        file = Path(self._key_file).expanduser() if self._key_file else self._folder / "id_ed25519"
        try:
            if not self._key_file and not file.exists():
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                new = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
                made = ssh.generate_private_key("ssh-ed25519", comment="tpukit")
                new.touch(0o600)
                new.write_bytes(made.export_private_key("openssh"))
                with suppress(FileExistsError):  # another process was faster
                    file.hardlink_to(new)
                new.unlink()
            return ssh.read_private_key(file)
        except (OSError, ssh.KeyImportError) as error:
            hint = f"name one without a passphrase: {settings.hint('ssh_key')}; without it tpukit creates its own"
            raise Denied(f"the key {file} cannot be used: {error}", hint=hint) from error

    async def _ask_all(self, calls: Sequence[Call], check: fence.Check) -> list[Answer | TpukitError]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(call: Call) -> Answer | TpukitError:
            async with gate:
                try:
                    return await self._answer(call, check)
                except TpukitError as error:
                    return error

        return list(await asyncio.gather(*map(one, calls)))

    async def _answer(self, call: Call, check: fence.Check) -> Answer:
        command = f"python3 -I -S {_FOLDER}/{version()}/supervisor.py"
        content = json.dumps(call.request).encode() + b"\n" + call.content
        for _ in range(3):
            code, out, err = await self._run(call, command, content, check if call.changes else None)
            if code == 0:
                with suppress(ValueError):
                    answer: Answer = json.loads(out)
                    return answer
            if code == 2 and b"supervisor.py" in err:  # not installed on the host yet
                await self._install(call)
                continue
            last = err.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            if code == 127:
                raise Invalid(f"{call.login.address}: this host has no python3", hint="install Python 3 there")
            raise Transient(f"{call.login.address}: the supervisor ended with {code}: {last[0]}")
        raise Transient(f"{call.login.address}: the supervisor file disappeared after upload")

    async def _install(self, call: Call) -> None:
        content = json.dumps({"folder": f"{_FOLDER}/{version()}", "files": programs()}).encode()
        code, _, err = await self._run(call, f"python3 -I -S -c {shlex.quote(_INSTALL)}", content)
        if code:
            raise Transient(
                f"{call.login.address}: the supervisor could not be uploaded: {err.decode(errors='replace')}"
            )

    async def _run(
        self, call: Call, command: str, content: bytes, check: fence.Check | None = None
    ) -> tuple[int, bytes, bytes]:
        """Return exit code and output. Reopen a lost connection once, since every request can be repeated.

        `check`: the fence of a request that changes something, checked once connected.
        """
        ssh = self._ssh
        for last in (False, True):
            try:
                connection = await self._connection(call.login)
                seconds = call.seconds
                if check is not None:
                    seconds = call.within(await asyncio.get_running_loop().run_in_executor(None, check))
                done = await asyncio.wait_for(
                    connection.run(command, input=content, encoding=None, check=False), seconds
                )
            except TimeoutError as error:
                self._drop(call.login)
                raise Transient(f"{call.login.address} did not respond within {call.seconds:.0f} s") from error
            except (OSError, ssh.Error) as error:
                self._drop(call.login)
                if last or isinstance(error, (ssh.PermissionDenied, ssh.HostKeyNotVerifiable)):
                    raise self._translated(call.login, error) from error
                continue
            # A lost connection gives no exit status, and a killed program a signal instead.
            if done.exit_status is not None and done.exit_signal is None:
                return int(done.exit_status), bytes(done.stdout or b""), bytes(done.stderr or b"")
            self._drop(call.login)
        raise Transient(f"the connection to {call.login.address} was lost")

    async def _connection(self, login: Login) -> Any:
        task = self._connections.get(login)
        if task is None:
            task = self._connections[login] = asyncio.ensure_future(self._connect(login))
        return await asyncio.shield(task)

    async def _connect(self, login: Login) -> Any:
        ssh = self._ssh
        config = os.environ.get(CONFIG)
        return await ssh.connect(
            login.address,
            username=login.user,
            client_keys=[self._key],
            known_hosts=([ssh.import_public_key(key) for key in login.host_keys], [], []),
            config=[config] if config else None,
            agent_path=None,
            connect_timeout=CONNECT_SECONDS,
            login_timeout=CONNECT_SECONDS,
            keepalive_interval=KEEPALIVE_SECONDS,
            keepalive_count_max=KEEPALIVES,
        )

    def _drop(self, login: Login) -> None:
        task = self._connections.pop(login, None)
        if task is not None and task.done() and not task.cancelled() and task.exception() is None:
            task.result().abort()

    async def _disconnect(self) -> None:
        under_way = asyncio.all_tasks() - {asyncio.current_task()}
        for login in list(self._connections):
            self._drop(login)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def _translated(self, login: Login, error: Exception) -> TpukitError:
        said = f"{login.user}@{login.address}: {error}"
        if isinstance(error, self._ssh.HostKeyNotVerifiable):
            hint = "another machine may have this address, or the TPU VM was just recreated"
            return HostKeyChanged(f"{said}: unexpected SSH host key", hint=hint)
        if isinstance(error, self._ssh.PermissionDenied):
            hint = "a new key takes effect after a minute; OS Login also needs roles/compute.osLogin or osAdminLogin"
            return Denied(f"{said}: the host does not accept the SSH key", hint=hint)
        return Transient(said)
