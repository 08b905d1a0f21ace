"""What worker threads ask: a client that caches, joins equal requests, and gathers waves.

A request that is answered, in flight, or twice in one call is never sent again. How the rest
is sent depends on the back end. A server (``gathers`` false) is called on the asking thread
and bounds its concurrency itself. A local engine (``gathers`` true) is called by one engine
thread with the requests of all workers together, because large batches are what it is fast
at. Answers are in the cache before anybody sees them, so that what a trial has seen is what
every later trial will see, also after a kill.

A back end may offer more than the :class:`ragassay.plugins.Generator` protocol:
``generate_iter(requests)``, which yields ``(position, answer)`` in any order as answers come,
so that a kill loses little and workers go on early; ``cancel()``, which makes running
calls return soon; and ``close()``, which lets go of connections until the next call.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ragassay.errors import (
    BackendError,
    BackendUnavailable,
    Interrupted,
    RagassayError,
    StoreError,
)
from ragassay.generation.cache import GenerationCache, request_digest
from ragassay.plugins import Generator
from ragassay.types import Generation, Request

WAVE = 512
_GROUP = 16  # answers per transaction at most
_SETTLE_SECONDS = 0.005  # lets threads that are about to ask join a wave that could go out
_STOPPED = "stopped; answers that arrived are kept in the cache"


@dataclass(slots=True, eq=False)
class _Call:
    """One ``ask`` that waits for ``missing`` answers."""

    missing: int = 0
    registered: bool = False
    ready: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True, eq=False)
class _Slot:
    """A request in flight and all calls that want its answer."""

    digest: str
    request: Request
    calls: list[_Call] = field(default_factory=list)
    outcome: Generation | RagassayError | None = None


@dataclass(slots=True)
class _Plan:
    """What becomes of the requests of one call."""

    found: dict[str, Generation]
    own: list[_Slot] = field(default_factory=list)
    wanted: dict[str, _Slot] = field(default_factory=dict)


class ModelClient:
    """Asks a generator through the cache, from any number of threads.

    Parameters
    ----------
    generator : Generator
        The back end.
    cache : GenerationCache
        Shared by all clients.
    wave : int, default 512
        Largest number of requests in one call of a gathering back end.
    idle_seconds : float, default 0.05
        A wave goes out when nothing new came for so long, even if some workers do not wait.

    Attributes
    ----------
    calls, cached, joined : int
        Requests that were sent, answered by the cache, and answered together with an equal
        request in flight. Their sum is the number of requests asked.
    input_tokens, output_tokens : int
        Of the requests that were sent.
    """

    def __init__(
        self,
        generator: Generator,
        cache: GenerationCache,
        *,
        wave: int = WAVE,
        idle_seconds: float = 0.05,
    ) -> None:
        if wave < 1:
            raise ValueError(f"wave must be at least 1, got {wave}")
        self._generator = generator
        self._cache = cache
        self._identity = generator.identity
        self._gathers = generator.gathers
        self._wave = wave
        self._idle_seconds = idle_seconds
        self._changed = threading.Condition()  # guards all that follows
        self._flying: dict[str, _Slot] = {}
        self._pending: list[_Slot] = []
        self._active = 0
        self._waiting = 0
        self._last_arrival = self._last_change = time.monotonic()
        self._stopped = False
        self._engine: threading.Thread | None = None
        self._committer: threading.Thread | None = None
        self._arrived: queue.SimpleQueue[tuple[_Slot, Generation] | None] = queue.SimpleQueue()
        self._registration = threading.local()
        self._sending = 0
        self._sending_since = 0.0
        self._seconds = 0.0
        self.calls = 0
        self.cached = 0
        self.joined = 0
        self.input_tokens = 0
        self.output_tokens = 0

    @property
    def seconds(self) -> float:
        """Wall time in which at least one call of the generator was running."""
        with self._changed:
            running = time.monotonic() - self._sending_since if self._sending else 0.0
            return self._seconds + running

    @contextmanager
    def worker(self) -> Iterator[None]:
        """Register the calling thread as one that will ask; a wave waits for all of them."""
        depth = getattr(self._registration, "depth", 0)
        self._registration.depth = depth + 1
        if not depth:
            self._register(1)
        try:
            yield
        finally:
            self._registration.depth = depth
            if not depth:
                self._register(-1)

    def ask(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer each request, in order.

        Returns
        -------
        list of Generation
            With ``digest`` set. ``cached`` is true, and ``seconds`` 0, for those that this
            call did not have to send.

        Raises
        ------
        BackendError
            A request failed (the first one that did, after all others are settled and the
            good answers are in the cache).
        StoreError
            The cache cannot be read or written.
        Interrupted
            :meth:`stop` was called.
        """
        digests = [request_digest(self._identity, request) for request in requests]
        call = _Call(registered=getattr(self._registration, "depth", 0) > 0)
        try:
            plan = self._claim(digests, requests, call)
            if plan.own and not self._gathers:
                self._send(plan.own)
            if plan.wanted:
                call.ready.wait()
        finally:
            self._abandon(call)
        return _collect(digests, plan)

    def stop(self) -> None:
        """Make every waiting worker raise Interrupted once the running calls have returned.

        Answers that arrive until then are kept. Later calls of :meth:`ask` raise at once.
        """
        with self._changed:
            self._stopped = True
            for slot in self._pending:
                self._settle(slot, Interrupted(_STOPPED))
            self._pending.clear()
            self._changed.notify_all()
        cancel = getattr(self._generator, "cancel", None)
        if callable(cancel):
            cancel()

    def close(self) -> None:
        """Stop, wait for the running calls to return, end the threads, and close the back end.

        Another client may ask the back end again.
        """
        self.stop()
        if self._engine is not None:
            self._engine.join()
        with self._changed:
            self._changed.wait_for(lambda: not self._sending)
        if self._committer is not None:
            self._arrived.put(None)
            self._committer.join()
            self._committer = None
        close = getattr(self._generator, "close", None)
        if callable(close):
            close()

    # ------------------------------------------------------------------ one call of ask

    def _claim(self, digests: Sequence[str], requests: Sequence[Request], call: _Call) -> _Plan:
        """Sort the requests of a call into: in the cache, in flight, and to be sent.

        The cache is read under the lock: an answer is written before its slot is removed, so
        that a digest is always found in one of the two places.
        """
        with self._changed:
            if self._stopped:
                raise Interrupted(_STOPPED)
            plan = _Plan(self._cache.get_many(d for d in digests if d not in self._flying))
            if len(plan.found) < len(set(digests)):
                self._start_threads()
            for digest, request in zip(digests, requests, strict=True):
                if digest in plan.found:
                    self.cached += 1
                elif digest in self._flying:
                    self.joined += 1
                    plan.wanted[digest] = self._flying[digest]
                else:
                    self.calls += 1
                    slot = _Slot(digest, request)
                    self._flying[digest] = plan.wanted[digest] = slot
                    plan.own.append(slot)
            for slot in plan.wanted.values():
                slot.calls.append(call)
            call.missing = len(plan.wanted)
            if call.missing and call.registered:
                self._waiting += 1
            if plan.own and self._gathers:
                self._pending.extend(plan.own)
                self._last_arrival = self._last_change = time.monotonic()
            self._changed.notify_all()
        return plan

    def _abandon(self, call: _Call) -> None:
        """Take back the mark of a call that ends without its answers (Ctrl-C)."""
        with self._changed:
            if call.missing and call.registered:
                self._waiting -= 1
            call.registered = False

    def _register(self, step: int) -> None:
        with self._changed:
            self._active += step
            self._last_change = time.monotonic()
            self._changed.notify_all()

    def _start_threads(self) -> None:
        # Daemons: a back end that hangs must not keep the process from ending.
        if self._committer is None:
            self._committer = threading.Thread(
                target=self._commit_forever, name="generation-cache", daemon=True
            )
            self._committer.start()
        if self._gathers and self._engine is None:
            self._engine = threading.Thread(
                target=self._run_engine, name="generation-engine", daemon=True
            )
            self._engine.start()

    # ------------------------------------------------------------------ waves

    def _run_engine(self) -> None:
        while wave := self._next_wave():
            self._send(wave)
            with self._changed:
                # Until the last answers are committed their workers still seem to wait,
                # and the next wave would leave without them.
                self._changed.wait_for(lambda: all(s.outcome is not None for s in wave))

    def _next_wave(self) -> list[_Slot]:
        """Wait until a wave can go out; empty when the client is stopped."""
        with self._changed:
            while not self._stopped:
                delay = self._seconds_to_wave()
                if delay is not None and delay <= 0:
                    wave = self._pending[: self._wave]
                    del self._pending[: self._wave]
                    return sorted(wave, key=lambda slot: slot.digest)
                self._changed.wait(delay)
        return []

    def _seconds_to_wave(self) -> float | None:
        if not self._pending:
            return None
        if len(self._pending) >= self._wave:
            return 0.0
        now = time.monotonic()
        delay = self._last_arrival + self._idle_seconds - now
        if self._waiting >= self._active:
            delay = min(delay, self._last_change + _SETTLE_SECONDS - now)
        return delay

    # ------------------------------------------------------------------ calling the back end

    def _send(self, slots: Sequence[_Slot]) -> None:
        """Call the generator; whatever happens, every slot gets an outcome."""
        remaining = dict(enumerate(slots))
        self._count_sending(1)
        failure: RagassayError = BackendError(
            f"generator {self._identity} did not answer all of {len(slots)} requests"
        )
        try:
            for position, outcome in self._outcomes([slot.request for slot in slots]):
                slot = remaining.pop(position, None)
                if slot is None:
                    failure = BackendError(
                        f"generator {self._identity} answered request {position!r} of "
                        f"{len(slots)} twice, or there is no such request"
                    )
                    break
                self._deliver(slot, outcome)
        except BaseException as error:  # a waiting thread must hear of it, whatever it is
            failure = self._failure(error)
            if not self._gathers and not isinstance(error, Exception):
                raise
        finally:
            for slot in remaining.values():
                with self._changed:
                    self._settle(slot, Interrupted(_STOPPED) if self._stopped else failure)
            self._count_sending(-1)

    def _outcomes(self, requests: list[Request]) -> Iterator[tuple[int, object]]:
        stream = getattr(self._generator, "generate_iter", None)
        if stream is None:
            answers = self._generator.generate(requests)
            if len(answers) != len(requests):
                raise BackendError(
                    f"generator {self._identity} returned {len(answers)} results for "
                    f"{len(requests)} requests"
                )
            yield from enumerate(answers)
            return
        answers = stream(requests)
        try:
            for item in answers:
                yield item
                if self._stopped:
                    break
        finally:
            if hasattr(answers, "close"):
                answers.close()

    def _deliver(self, slot: _Slot, outcome: object) -> None:
        if isinstance(outcome, Generation) and isinstance(outcome.text, str):
            with self._changed:
                self.input_tokens += outcome.input_tokens
                self.output_tokens += outcome.output_tokens
            self._arrived.put((slot, replace(outcome, digest=slot.digest, cached=False)))
            return
        failure = (
            outcome
            if isinstance(outcome, BackendError)
            else BackendError(
                f"generator {self._identity} returned {type(outcome).__name__} "
                "where a Generation or a BackendError belongs"
            )
        )
        with self._changed:
            # A back end that was told to cancel reports failures that are none.
            self._settle(slot, Interrupted(_STOPPED) if self._stopped else failure)

    def _failure(self, error: BaseException) -> RagassayError:
        if isinstance(error, RagassayError):
            return error
        if isinstance(error, KeyboardInterrupt):
            return Interrupted(_STOPPED)
        reason = " ".join(str(error).split())[:300]
        return BackendError(f"generator {self._identity} raised {type(error).__name__}: {reason}")

    def _count_sending(self, step: int) -> None:
        with self._changed:
            if step > 0 and not self._sending:
                self._sending_since = time.monotonic()
            self._sending += step
            if not self._sending:
                self._seconds += time.monotonic() - self._sending_since
                self._changed.notify_all()

    # ------------------------------------------------------------------ answers

    def _commit_forever(self) -> None:
        """Write arriving answers in small groups, then wake whoever waits for them."""
        last = False
        while not last:
            group = [self._arrived.get()]
            while len(group) < _GROUP and not self._arrived.empty():
                group.append(self._arrived.get())
            last = None in group
            self._commit([item for item in group if item is not None])

    def _commit(self, group: Sequence[tuple[_Slot, Generation]]) -> None:
        outcomes: list[Generation | RagassayError]
        try:
            earlier = self._cache.put_many([g for _, g in group], identity=self._identity)
            outcomes = [earlier.get(generation.digest, generation) for _, generation in group]
        except RagassayError as error:
            outcomes = [error] * len(group)
        except Exception as error:  # this thread must live, or workers wait for ever
            reason = " ".join(str(error).split())[:300]
            outcomes = [StoreError(f"generation cache {self._cache.path}: {reason}")] * len(group)
        with self._changed:
            for (slot, _), outcome in zip(group, outcomes, strict=True):
                self._settle(slot, outcome)

    def _settle(self, slot: _Slot, outcome: Generation | RagassayError) -> None:
        """Give a slot its outcome and wake the calls that are complete. Needs the lock."""
        slot.outcome = outcome
        del self._flying[slot.digest]
        for call in slot.calls:
            call.missing -= 1
            if not call.missing:
                self._waiting -= call.registered
                call.ready.set()
        self._changed.notify_all()


def _collect(digests: Sequence[str], plan: _Plan) -> list[Generation]:
    outcomes = [plan.found.get(digest) or plan.wanted[digest].outcome for digest in digests]
    failures = [outcome for outcome in outcomes if isinstance(outcome, RagassayError)]
    # A broken cache or a stop concerns the run, a failed request only this call.
    for failure in sorted(failures, key=lambda failure: isinstance(failure, BackendError)):
        raise _fresh(failure)
    own = {slot.digest for slot in plan.own}
    answers = []
    for digest, outcome in zip(digests, outcomes, strict=True):
        if not isinstance(outcome, Generation):
            raise BackendError("a request was left without an answer")
        if digest not in own:
            outcome = replace(outcome, cached=True, seconds=0.0)
        own.discard(digest)  # its second occurrence cost nothing
        answers.append(outcome)
    return answers


def _fresh(failure: RagassayError) -> RagassayError:
    """Copy a back end's failure: an exception that several threads raise mixes their traces."""
    if not isinstance(failure, BackendError):
        return failure
    kind = BackendUnavailable if isinstance(failure, BackendUnavailable) else BackendError
    return kind(str(failure), retryable=failure.retryable)
