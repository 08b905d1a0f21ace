"""Workers as actors of a Ray cluster.

Ray decides on which machine a worker runs and says when one died. It is not asked to restart
workers or to repeat calls: the pool does that, on workers that are there.

Only a cluster that was named, or that ``RAY_ADDRESS`` or a running node of this machine names,
is used; one is started here for the address ``local`` alone. A machine that does not answer is
found out before Ray is asked, because Ray tries for minutes and then ends the process.

Source: Moritz et al., Ray: A Distributed Framework for Emerging AI Applications, OSDI 2018.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ragassay import __version__
from ragassay.cluster.parcel import Parcel
from ragassay.cluster.pool import Pool, Task, WorkerLost
from ragassay.cluster.worker import Worker
from ragassay.errors import BackendError, BackendUnavailable, ConfigError

LOCAL = "local"
OBJECT_STORE_BYTES = 256 * 2**20
_PROBE_SECONDS = 5.0
_CLEAR_SECONDS = 5.0
_PASSED_ON = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_LOG = logging.getLogger(__name__)


class RayWorkers:
    """Starts actors and calls them.

    Parameters
    ----------
    ray : module
        Ray, connected.
    cpus, gpus : float
        What an actor occupies.
    """

    def __init__(self, ray: Any, *, cpus: float, gpus: float) -> None:
        self._ray = ray
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        self._make = partial(
            ray.remote(Worker)
            .options(num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0)
            .remote,
            str(Path.cwd()),
            environment,
        )
        self._parcels: dict[str, Any] = {}
        self._with_files: list[Any] = []

    def start(self) -> tuple[Any, Future[None]]:
        """Start an actor; see :class:`ragassay.cluster.pool.Workers`."""
        actor = self._make()
        return actor, self._translated(actor.facts.remote(), _check_version)

    def send(self, worker: Any, task: Task) -> Future[Any]:
        """Call an actor. A parcel is put into the cluster once, and named from then on."""
        if any(isinstance(x, Parcel) and x.writes for x in task.arguments) and not any(
            worker is one for one in self._with_files
        ):
            self._with_files.append(worker)
        arguments = [self._put(x) if isinstance(x, Parcel) else x for x in task.arguments]
        return self._translated(getattr(worker, task.method).remote(*arguments), None)

    def kill(self, worker: Any) -> None:
        """End an actor."""
        self._with_files = [one for one in self._with_files if one is not worker]
        try:
            self._ray.kill(worker, no_restart=True)
        except Exception as error:  # it is gone, or the cluster is
            _LOG.debug("an actor could not be ended: %s", error)

    def end(self, workers: Sequence[Any]) -> None:
        """End actors. Ray kills without notice, so those with files are asked to remove them.

        One that is busy does not answer in time, and leaves them in its temporary folder.
        """
        try:
            asked = [worker.clear.remote() for worker in self._with_files]
            if asked:
                self._ray.wait(asked, num_returns=len(asked), timeout=_CLEAR_SECONDS)
        except Exception as error:  # the cluster is gone
            _LOG.debug("actors could not be asked to remove files: %s", error)
        for worker in workers:
            self.kill(worker)

    def _put(self, parcel: Parcel) -> Any:
        if parcel.key not in self._parcels:
            self._parcels[parcel.key] = self._ray.put(parcel)
        return self._parcels[parcel.key]

    def _translated(self, reference: Any, check: Any) -> Future[Any]:
        ours: Future[Any] = Future()

        def done(theirs: Future[Any]) -> None:
            try:
                value = theirs.result()
                if check is not None:
                    check(value)
            except BackendError as error:
                ours.set_exception(error)
            except self._ray.exceptions.RayTaskError as error:
                # the worker lives: what it was sent, or what it gave back, could not be read
                ours.set_exception(BackendError(f"a worker failed: {_last_line(error)}"))
            except BaseException as error:
                ours.set_exception(WorkerLost(_last_line(error)))
            else:
                ours.set_result(value)

        reference.future().add_done_callback(done)
        return ours


@contextmanager
def ray_pool(*, address: str, workers: int, cpus: float, gpus: float) -> Iterator[Pool]:
    """Connect to a Ray cluster and open a pool of workers; all of them are ended on leaving.

    Parameters
    ----------
    address : str
        ``HOST:PORT``, ``ray://HOST:PORT``, ``auto``, or ``local`` for a cluster that is started
        here and ends with the pool. Empty: ``RAY_ADDRESS``, else ``auto``. If the process is
        connected already, that connection is used and kept.
    workers : int
        How many at most; 0: as many as fit into what the cluster has now.
    cpus, gpus : float
        What a worker occupies.

    Raises
    ------
    BackendUnavailable
        Ray is not installed, or no cluster answers.
    ConfigError
        No node of the cluster has room for a worker.
    """
    ray = _library()
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address or os.environ.get("RAY_ADDRESS", "") or "auto", workers, cpus, gpus)
    try:
        pool = Pool(RayWorkers(ray, cpus=cpus, gpus=gpus), size=_size(ray, workers, cpus, gpus))
        try:
            yield pool
        finally:
            pool.close()
    finally:
        if ours:
            ray.shutdown()


def _library() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
    except ImportError as error:
        raise BackendUnavailable(
            "run.executor = \"ray\" needs Ray, which is not installed: pip install 'ragassay[ray]'"
        ) from error
    return ray


def _connect(ray: Any, address: str, workers: int, cpus: float, gpus: float) -> None:
    options: dict[str, Any] = {"address": address}
    if address == LOCAL:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options["include_dashboard"] = False
        options["object_store_memory"] = OBJECT_STORE_BYTES
        if workers:
            options["num_cpus"] = max(1, round(workers * cpus + 0.499))
            options["num_gpus"] = round(workers * gpus + 0.499) if gpus else 0
    else:
        _probe(address)
    try:
        with warnings.catch_warnings(), _own_handler():
            warnings.simplefilter("ignore")
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except (Exception, SystemExit) as error:
        raise _no_cluster(address, _last_line(error)) from error


@contextmanager
def _own_handler() -> Iterator[None]:
    """Keep this process's SIGTERM handler: that of Ray exits, and loses finished trials."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _probe(address: str) -> None:
    """Refuse an address at which nobody listens."""
    place = _known_node() if address == "auto" else address
    if not place:
        return  # Ray looks for processes of its own on this machine, and says so at once
    try:
        parts = urlsplit(place if "://" in place else f"//{place}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise ConfigError(
            f"run.ray_address must look like 10.0.0.1:6379, ray://10.0.0.1:10001, auto or local, "
            f"got {address!r}"
        )
    try:
        socket.create_connection((host, port), timeout=_PROBE_SECONDS).close()
    except OSError as error:
        raise _no_cluster(address, f"{host}:{port}: {error.strerror or error}") from error


def _known_node() -> str:
    """The address that a Ray node on this machine noted down, if there is one."""
    folder = Path(os.environ.get("RAY_TMPDIR") or "/tmp")  # noqa: S108 - where Ray keeps it
    try:
        return (folder / "ray" / "ray_current_cluster").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _no_cluster(address: str, reason: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"no Ray cluster answers at {address!r} ({reason}); start one with 'ray start --head', "
        'name one in run.ray_address or RAY_ADDRESS, or set run.ray_address = "local" to start '
        "one on this machine"
    )


def _size(ray: Any, workers: int, cpus: float, gpus: float) -> int:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(fitting(node, cpus, gpus) for node in nodes)
    if room == 0 and not workers:
        have = ", ".join(f"{n.get('CPU', 0):g} CPUs and {n.get('GPU', 0):g} GPUs" for n in nodes)
        raise ConfigError(
            f"no node of the Ray cluster has room for a worker of run.ray_cpus = {cpus:g} and "
            f"run.ray_gpus = {gpus:g}; its nodes have {have or 'nothing'}"
        )
    return workers or room


def fitting(resources: Mapping[str, float], cpus: float, gpus: float) -> int:
    """How many workers fit into a node.

    Examples
    --------
    >>> fitting({"CPU": 16.0, "GPU": 2.0}, 4, 1), fitting({"CPU": 16.0}, 4, 1)
    (2, 0)
    """
    wanted = {"CPU": cpus, "GPU": gpus}
    counts = [int(resources.get(name, 0.0) / much) for name, much in wanted.items() if much > 0]
    return min(counts)


def _check_version(facts: Mapping[str, str]) -> None:
    if facts["version"] != __version__:
        raise BackendUnavailable(
            f"the worker on {facts['machine']} has ragassay {facts['version']}, this is "
            f"{__version__}; install the same version on every node"
        )


def _last_line(error: BaseException) -> str:
    """What of Ray's messages says what happened: the last line of a trace, or the first."""
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    traced = any(line.startswith("Traceback") or "ray::" in line for line in lines)
    return (lines[-1] if traced else lines[0])[:300]
