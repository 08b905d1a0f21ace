"""What is sent to workers and comes back, without Ray: parcels, stand-ins, addresses."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ragassay import plugins
from ragassay.cluster import ray_workers
from ragassay.cluster.parcel import pack, unpack
from ragassay.cluster.pool import Pool, Task
from ragassay.cluster.remote import RemoteEncoder, RemoteGenerator
from ragassay.cluster.worker import Worker
from ragassay.config import parse
from ragassay.errors import BackendError, BackendUnavailable, ConfigError, PluginError
from ragassay.experiments.clients import client_of, open_model, threads_for
from ragassay.experiments.monitor import Monitor
from ragassay.experiments.setup import load_experiment, set_up
from ragassay.generation.cache import GenerationCache
from ragassay.generation.scripted import Scripted
from ragassay.retrieval.dense import DenseRetriever
from ragassay.retrieval.hashing import HashingEncoder
from ragassay.types import Message, Request, Sampling

PLUGIN = """
from dataclasses import dataclass
from pathlib import Path
from ragassay.types import Generation

@dataclass(frozen=True, slots=True, kw_only=True)
class Mine:
    path: str = ""
    tags: tuple[str, ...] = ()

    @property
    def identity(self):
        return f"mine:{Path(self.path).read_text() if self.path else ''}:{self.tags}"

    @property
    def gathers(self):
        return True

    def generate(self, requests):
        if requests[0].messages[0].content == "break":
            raise ZeroDivisionError("a fault of mine")
        return [Generation(text=f"{self.identity}: {r.messages[0].content}") for r in requests]
"""


@dataclass(frozen=True)
class Here:
    identity = "here"


class InProcess:
    """One worker of the pool, which is an object of this process."""

    def __init__(self, folder: Path) -> None:
        self.worker = Worker(str(folder), {})
        self.tasks: list[Task] = []

    def start(self) -> tuple[Worker, Future[None]]:
        ready: Future[None] = Future()
        ready.set_result(None)
        return self.worker, ready

    def send(self, worker: Worker, task: Task) -> Future[Any]:
        self.tasks.append(task)
        done: Future[Any] = Future()
        done.set_result(getattr(worker, task.method)(*task.arguments))
        return done

    def kill(self, worker: Worker) -> None:
        pass

    def end(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            worker.clear()


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InProcess:
    monkeypatch.chdir(tmp_path)  # and back at the end: a worker changes its folder
    return InProcess(tmp_path)


@pytest.fixture
def pool(workers: InProcess) -> Iterator[Pool]:
    made = Pool(workers, size=1)
    yield made
    made.close()


def mine(folder: Path, **options: Any) -> Any:
    (folder / "mine.py").write_text(PLUGIN, encoding="utf-8")
    found = plugins.find("generator", "mine.py:Mine", folder=folder)
    return plugins.build(found, options, folder=folder)


def ask(*contents: str) -> list[Request]:
    sampling = Sampling(temperature=0.0, max_tokens=8)
    return [Request(messages=(Message(role="user", content=c),), sampling=sampling)
            for c in contents]  # fmt: skip


# ------------------------------------------------------------------------------------ parcels


def test_a_plug_in_from_a_file_travels_with_the_files_that_its_options_name(
    tmp_path: Path,
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / "rules.txt").write_text("rules", encoding="utf-8")
    built = mine(here, path="rules.txt", tags=["a", "b"])
    parcel = pack("generator", built)
    for path in here.iterdir():
        path.unlink()
    for name in [name for name in sys.modules if name.startswith(plugins.FILE_MODULE)]:
        del sys.modules[name]
    again = unpack(parcel, there)
    assert again.identity == built.__class__.identity.fget(again) == "mine:rules:('a', 'b')"
    assert again.tags == ("a", "b")
    assert Path(again.path).is_relative_to(there)


def test_a_worker_with_other_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "rules.txt").write_text("old", encoding="utf-8")
    parcel = pack("generator", mine(tmp_path / "one", path="rules.txt"))
    object.__setattr__(parcel, "identity", "mine:other:()")
    with pytest.raises(BackendUnavailable, match=r"mine:old:\(\) on the worker and mine:other"):
        unpack(parcel, tmp_path / "there")


def test_a_package_that_is_not_there_is_named(tmp_path: Path) -> None:
    parcel = pack("encoder", HashingEncoder())
    object.__setattr__(parcel, "module", "no_such_package.encoders")
    with pytest.raises(BackendUnavailable, match=r"cannot import no_such_package\.encoders"):
        unpack(parcel, tmp_path)


def test_a_file_that_changed_since_it_was_read_is_not_sent(tmp_path: Path) -> None:
    built = mine(tmp_path)
    path = Path(str(sys.modules[type(built).__module__].__file__))
    kept = path.read_text(encoding="utf-8")
    path.write_text(kept + "\n# changed", encoding="utf-8")
    try:
        with pytest.raises(PluginError, match="was changed since it was read"):
            pack("generator", built)
    finally:
        path.write_text(kept, encoding="utf-8")


def test_a_class_that_nobody_else_can_import_is_refused() -> None:
    @dataclass(frozen=True)
    class Local:
        identity = "local"

    with pytest.raises(ConfigError, match="no other process can import it"):
        pack("encoder", Local())


# --------------------------------------------------------------------------------- stand-ins


def test_a_stand_in_encoder_gives_the_same_vectors_in_parts(
    pool: Pool, workers: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragassay.cluster.remote.PART_OF_TEXTS", 3)
    encoder = HashingEncoder(dimensions=32)
    remote = RemoteEncoder(encoder, pool)
    texts = [f"text {n}" for n in range(8)]
    assert np.array_equal(remote.encode(texts), encoder.encode(texts))
    assert [len(task.arguments[1]) for task in workers.tasks] == [3, 3, 2]
    assert remote.encode([]).shape == (0, 32)
    assert remote.identity == encoder.identity


def test_a_stand_in_generator_gives_the_same_answers_and_failures(
    pool: Pool, workers: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragassay.cluster.remote.LEAST_REQUESTS", 4)
    scripted = Scripted(script="echo", fail_every=3, gathers=True)
    remote = RemoteGenerator(scripted, pool)
    requests = ask(*(f"say {n}" for n in range(10)))
    expected, found = scripted.generate(requests), remote.generate(requests)
    assert [str(one) for one in found] == [str(one) for one in expected]
    failures = [one for one in found if isinstance(one, BackendError)]
    assert failures
    assert all(one.retryable for one in failures)
    assert [len(task.arguments[1]) for task in workers.tasks] == [4, 4, 2]
    assert remote.identity == scripted.identity


def test_a_fault_of_a_plug_in_comes_back_as_one_line(tmp_path: Path, pool: Pool) -> None:
    remote = RemoteGenerator(mine(tmp_path), pool)
    (answer,) = remote.generate(ask("break"))
    assert isinstance(answer, BackendError)
    assert "raised ZeroDivisionError: a fault of mine (worker on " in str(answer)
    assert remote.generate(ask("go"))[0].text == "mine::(): go"  # type: ignore[union-attr]


def test_a_worker_has_a_folder_only_for_files_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    worker = Worker(str(tmp_path), {})
    worker.encode(pack("encoder", HashingEncoder(dimensions=8)), ["a"], None)
    assert not list(temporary.iterdir())
    worker.generate(pack("generator", mine(tmp_path)), ask("go"))
    assert len(list(temporary.iterdir())) == 1
    worker.clear()
    assert not list(temporary.iterdir())


def test_servers_are_asked_from_here(tmp_path: Path, pool: Pool) -> None:
    with GenerationCache(tmp_path / "cache.sqlite") as store:
        for gathers, kind in ((False, Scripted), (True, RemoteGenerator)):
            client = client_of(Scripted(gathers=gathers), store, pool)
            assert isinstance(client._generator, kind)
            client.close()
    assert threads_for(Scripted(gathers=False), pool) == 32
    assert threads_for(Scripted(gathers=True), None) == 128
    assert threads_for(Scripted(gathers=True), SimpleNamespace(size=4)) == 512  # type: ignore[arg-type]


@pytest.mark.parametrize("gathers", [True, False])
def test_a_model_outside_of_a_run_answers_on_the_workers_too_and_a_server_needs_none(
    pool: Pool, workers: InProcess, monkeypatch: pytest.MonkeyPatch, gathers: bool
) -> None:
    def connected(**options: Any) -> Any:
        assert gathers
        return nullcontext(pool)

    monkeypatch.setattr("ragassay.experiments.clients.ray_pool", connected)
    run = parse({"name": "e", "dataset": {"plugin": "atlas"}, "generator": {"plugin": "scripted"},
                 "run": {"executor": "ray"}}).run  # fmt: skip
    with open_model(Scripted(script="echo", gathers=gathers), run, Monitor()) as client:
        client.ask(ask("go"))
    assert [task.method for task in workers.tasks] == ["generate"] * gathers


def test_a_spread_retriever_has_the_same_identity_and_opens_its_own_encoder(pool: Pool) -> None:
    plain = DenseRetriever(encoder="hashing")
    spread = plain.spread(lambda encoder: RemoteEncoder(encoder, pool))
    assert spread.identity == plain.identity
    assert isinstance(spread._embedder, RemoteEncoder)
    assert isinstance(plain._embedder, HashingEncoder)
    assert spread._encoder is plain._encoder


def test_who_works_is_in_no_key(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text('name = "e"\n[dataset]\nplugin = "atlas"\n[generator]\nplugin = "scripted"\n')
    ray = ("run.executor=ray", "run.ray_address=10.0.0.1:6379", "run.ray_workers=7")
    alone, spread = (set_up(load_experiment(path, settings)) for settings in ((), ray))
    assert alone.resolved() == spread.resolved()
    assert alone.run_folder() == spread.run_folder()
    assert "ray" not in json.dumps(spread.resolved())


# ---------------------------------------------------------------------------------- addresses


def opened(**options: Any) -> None:
    settings = {"address": "", "workers": 0, "cpus": 1.0, "gpus": 0.0, **options}
    with ray_workers.ray_pool(**settings):
        pass


class FakeRay:
    """As much of Ray as it takes to connect."""

    def __init__(self, nodes: Sequence[dict[str, float]] = (), error: str = "") -> None:
        self.nodes_there, self.error = nodes, error
        self.options: dict[str, Any] = {}
        self.open = False

    def is_initialized(self) -> bool:
        return self.open

    def init(self, **options: Any) -> None:
        if self.error:
            raise ConnectionError(self.error)
        self.options, self.open = options, True

    def shutdown(self) -> None:
        self.open = False

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": each} for each in self.nodes_there]

    def remote(self, cls: type) -> Any:
        return SimpleNamespace(options=lambda **how: SimpleNamespace(remote=lambda *args: None))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    ray = FakeRay([{"CPU": 4.0}, {"CPU": 16.0, "GPU": 2.0}])
    monkeypatch.setattr(ray_workers, "_library", lambda: ray)
    monkeypatch.setattr(ray_workers, "_known_node", lambda: "")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return ray


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(BackendUnavailable, match=r"pip install 'ragassay\[ray\]'"):
        opened()


def test_a_machine_that_does_not_answer_is_found_before_ray_is_asked(fake: FakeRay) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(BackendUnavailable, match="no Ray cluster answers at") as caught:
            opened(address=address)
        assert "refused" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not fake.options


def test_where_no_node_runs_here_auto_says_what_to_do(fake: FakeRay) -> None:
    fake.error = "Could not find any running Ray instance.\nPlease specify one."
    with pytest.raises(BackendUnavailable, match=r"at 'auto' \(Could not find any .*ray start"):
        opened()


@pytest.mark.parametrize("address", ["somewhere", "10.0.0.1", "10.0.0.1:port", "http://"])
def test_an_address_has_a_port(fake: FakeRay, address: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.ray_address must look like 10\.0\.0\.1:6379"):
        opened(address=address)


def test_the_environment_names_the_cluster(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        opened()
    assert fake.options["address"] == address
    assert not fake.open  # what was connected is disconnected


def test_a_cluster_is_started_here_for_local_alone(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    opened(address="local", workers=3, cpus=2.0)
    assert fake.options["num_cpus"] == 6
    assert fake.options["include_dashboard"] is False
    opened()
    assert "num_cpus" not in fake.options


def test_a_connection_that_is_there_is_used_and_kept(fake: FakeRay) -> None:
    fake.open = True
    opened(address="10.255.255.1:1")
    assert fake.open
    assert not fake.options


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 20), ({"cpus": 4.0}, 5), ({"cpus": 8.0, "gpus": 1.0}, 2), ({"cpus": 3.0}, 6),
        ({"gpus": 0.5}, 4), ({"workers": 7, "gpus": 1.0}, 7),
    ],
)  # fmt: skip
def test_as_many_workers_as_fit_into_the_nodes(
    fake: FakeRay, options: dict[str, Any], size: int
) -> None:
    settings = {"address": "", "workers": 0, "cpus": 1.0, "gpus": 0.0, **options}
    with ray_workers.ray_pool(**settings) as pool:
        assert pool.size == size


def test_a_worker_that_fits_nowhere_is_refused(fake: FakeRay) -> None:
    with pytest.raises(ConfigError, match=r"no node .* run\.ray_gpus = 4; its nodes have 4 CPUs"):
        opened(gpus=4.0)


def test_a_worker_of_another_version_is_refused() -> None:
    with pytest.raises(BackendUnavailable, match=r"worker on node7 has ragassay 0\.0\.1"):
        ray_workers._check_version({"version": "0.0.1", "machine": "node7"})
