"""Calls to Firestore: each tried once and briefly, with readable errors and the server's time from every response."""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tpukit.core import resources, retry
from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Denied, Invalid, NotFound, TpukitError, Transient
from tpukit.kernel.store.pacing import TokenBucket

CALL_SECONDS = 10.0
CLOCK_SECONDS = 60.0
"""Seconds for which the server's time is extrapolated with this machine's monotonic clock."""
RECONNECT_SECONDS = 3.0
TRIES = 8
WRITES = "TPUKIT_FIRESTORE_WRITES"
WRITES_PER_SECOND = 400.0
"""Writes per second of this process, unless $TPUKIT_FIRESTORE_WRITES is set.

A collection whose documents hold growing values in an indexed field, such as times of jobs, takes 500 a second
(https://firebase.google.com/docs/firestore/quotas#writes_and_transactions). A new collection also begins at that rate,
and may then grow by half every five minutes
(https://firebase.google.com/docs/firestore/best-practices#ramping_up_traffic).
"""
_log = logging.getLogger(__name__)


class Refused(Exception):
    """A failed precondition: nothing of the batch was done."""


class _Busy(Transient):
    """A concurrent write to the same document: nothing of the batch was done."""


class Calls:
    def __init__(self, project: str, database: str, trouble: Callable[[], None]) -> None:
        self.address = f"firestore://{project}" + ("" if database == "(default)" else f"/{database}")
        self._trouble = trouble
        self._writes = TokenBucket(writes_per_second())
        self._clock = (0.0, float("-inf"))  # the server's time, and this machine's monotonic clock at that moment
        try:
            from google.api_core.retry import Retry
            from google.cloud import firestore
        except ImportError as error:
            hint = resources.install_hint("firestore")
            raise Invalid(f"the store {self.address} needs the package google-cloud-firestore", hint=hint) from error
        # Callers decide about retries. None would mean the same, but queries fail on it.
        self._once = {"retry": Retry(predicate=lambda error: False), "timeout": CALL_SECONDS}
        with self._translated():
            self.client: Any = firestore.Client(project=project, database=database)
            _connect(self.client)

    def close(self) -> None:
        self.client._firestore_api.transport.close()  # the client's own `close` leaves it open

    def listen(
        self, collection: str, field: str, changed: Callable[[], None], lost: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `changed` when a document gets the highest value of a field, and `lost` when listening ends.

        Return a function that stops listening. While the server is unreachable, the client's own listener would
        reconnect without a pause, cost a core and thousands of threads, and could not be stopped before the server is
        back.
        """
        from google.cloud.firestore_v1 import types

        database = f"projects/{self.client.project}/databases/{self.client._database}"
        # One document is enough to notice every change, and the cost of an event grows with the number of documents.
        query = types.StructuredQuery(
            from_=[{"collection_id": collection}],
            order_by=[{"field": {"field_path": field}, "direction": "DESCENDING"}],
            limit=1,
        )
        target = types.Target(query={"parent": f"{database}/documents", "structured_query": query}, target_id=1)
        done = threading.Event()

        def requests() -> Iterator[Any]:
            yield types.ListenRequest(database=database, add_target=target)
            done.wait()

        once = {**self._once, "timeout": None}
        try:
            stream = self.client._firestore_api.listen(requests(), metadata=self.client._rpc_metadata, **once)
        except BaseException:
            done.set()
            raise

        def consume() -> None:
            try:
                for response in stream:
                    if response._pb.WhichOneof("response_type") != "target_change":
                        changed()
            except Exception as error:  # any error: the listener asks the server next  # noqa: BLE001
                _log.debug("a listener ended: %s", error)
            finally:
                done.set()
                lost()

        thread = threading.Thread(target=consume, name="store-listen", daemon=True)
        thread.start()

        def end() -> None:
            done.set()
            stream.cancel()
            thread.join()

        return end

    def now(self) -> float:
        at, steady = self._clock
        if SYSTEM.monotonic() - steady > CLOCK_SECONDS:
            self.moment()
            at, steady = self._clock
        return at + SYSTEM.monotonic() - steady

    def moment(self) -> Any:
        """Return the server's current time."""
        return self.read([self.client.collection("leases").document("now")])[0].read_time  # the document need not exist

    def read(self, documents: Sequence[Any]) -> list[Any]:
        """Return snapshots in the order of their documents, all of one moment."""
        with self._translated():
            before = SYSTEM.monotonic()
            snapshots = {snapshot.reference.path: snapshot for snapshot in self.client.get_all(documents, **self._once)}
        read = [snapshots[document.path] for document in documents]
        self._clock = (read[0].read_time.timestamp(), before)
        return read

    def query(self, query: Any, **options: Any) -> list[Any]:
        with self._translated():
            return list(query.stream(**self._once, **options))

    def commit(self, batch: Any) -> list[Any]:
        """Commit a batch, and return the results of its writes. Raise Refused if a precondition failed."""
        from google.api_core import exceptions

        refusals = (exceptions.FailedPrecondition, exceptions.AlreadyExists, exceptions.NotFound)

        def commit() -> list[Any]:
            self._writes.take(len(batch))
            with self._translated():
                try:
                    return list(batch.commit(**self._once))
                except refusals as error:
                    raise Refused from error

        pauses = (random.uniform(0.0, retry.growing(tries, 0.02, 60.0)) for tries in range(1, TRIES))  # noqa: S311
        return retry.call(commit, pauses, SYSTEM.sleep, lambda error, pause: isinstance(error, _Busy))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError

        try:
            yield
        except (GoogleAPIError, GoogleAuthError) as error:
            translated = _translation(self.address, error)
            if isinstance(translated, Transient) and not isinstance(translated, _Busy):
                self._trouble()
            raise translated from error


def writes_per_second() -> float:
    text = os.environ.get(WRITES, "")
    try:
        rate = float(text or WRITES_PER_SECOND)
    except ValueError:
        rate = 0.0
    if not 0.1 <= rate <= 1e6:
        raise Invalid(f"${WRITES}: {text!r} is not a number of writes a second", hint="write 400, or unset it")
    return rate


def _connect(client: Any) -> None:
    """Give the client a connection that reconnects soon: gRPC by default waits up to two minutes after an outage."""
    import grpc
    from google.cloud.firestore_v1.services.firestore import FirestoreClient
    from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcTransport

    options = [
        ("grpc.max_reconnect_backoff_ms", int(RECONNECT_SECONDS * 1000)),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.max_receive_message_length", -1),
    ]
    emulator = os.environ.get("FIRESTORE_EMULATOR_HOST")
    if emulator:
        channel = grpc.insecure_channel(emulator, options=options)
    else:
        channel = FirestoreGrpcTransport.create_channel(
            client._target, credentials=client._credentials, options=options
        )
    transport = FirestoreGrpcTransport(host=client._target, channel=channel)
    client._firestore_api_internal = FirestoreClient(transport=transport)


def _translation(address: str, error: Exception) -> TpukitError:
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError, TransportError

    said = getattr(error, "message", "") or str(error)
    project = address.removeprefix("firestore://").partition("/")[0]
    match error:
        case exceptions.Aborted():
            return _Busy(f"the store {address} is busy: {said}", hint="try again")
        case exceptions.Unauthenticated():
            return Denied(f"the store {address} does not accept your credentials: {said}", hint=_LOGIN)
        case exceptions.Forbidden():
            hint = f"ask for the role roles/datastore.user in {project}, and make sure that the API is enabled there"
            return Denied(f"the store {address} denies you access: {said}", hint=hint)
        case exceptions.NotFound():
            hint = f"gcloud firestore databases create --project={project} --location=REGION"
            return NotFound(f"there is no store {address}: {said}", hint=hint)
        case exceptions.InvalidArgument():
            return Invalid(f"the store {address} refuses the request: {said}")
        case TransportError():
            pass
        case GoogleAuthError():
            return Denied(f"there are no credentials for the store {address}: {said}", hint=_LOGIN)
    return Transient(f"the store {address} could not be reached: {said}", hint="try again")


_LOGIN = "gcloud auth application-default login"
