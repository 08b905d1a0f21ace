"""What asking a model for labels costs: estimated before, counted and noted down after."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ragassay import canon
from ragassay.errors import ConfigError, StoreError
from ragassay.experiments.asking import CACHE_FILE
from ragassay.experiments.labeling import Group, Labeled, Labels, distinct_contents
from ragassay.experiments.setup import Named
from ragassay.generation.cache import GenerationCache, request_digest
from ragassay.plugins import Generator, ModelScorer
from ragassay.store import RunFolder
from ragassay.types import Request

NOTES = "scoring.json"
CHARACTERS_PER_TOKEN = 4
_CHUNK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Money per million tokens, in whatever currency they are given in."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(
                    f"the price of {name} tokens must be 0 or more, got {getattr(self, name)}"
                )

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """Money for so many tokens."""
        return (self.input * input_tokens + self.output * output_tokens) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one scorer would do to a folder.

    ``answers`` lack a label, ``distinct`` is their number of different contents. ``calls`` is
    the number of requests that the cache does not answer, without repeats after unusable
    replies. ``input_tokens`` is what these hold, by the model's own count where ``counted``,
    else one token for four characters; ``output_tokens`` bounds the replies from above.
    ``remote`` is the host that would be sent the answers, empty if on this machine.
    """

    title: str
    identity: str
    answers: int
    distinct: int
    calls: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    counted: bool = False
    remote: str = ""


def estimate_labels(labels: Labels, scorer: Named, cache: Path) -> Estimate:
    """Estimate what labeling would ask of a scorer's model; asks nothing."""
    missing = labels.missing(scorer)
    groups = distinct_contents(missing)
    plain = Estimate(
        title=scorer.title, identity=scorer.identity, answers=len(missing), distinct=len(groups)
    )
    instance = scorer.instance
    if not isinstance(instance, ModelScorer):
        return plain
    backend = instance.backend
    calls = cached = inputs = outputs = 0
    with GenerationCache(cache / CACHE_FILE) as store:
        for requests in _requests(instance, groups):
            digests = [request_digest(backend.identity, request) for request in requests]
            found = store.get_many(digests)
            new = [r for r, digest in zip(requests, digests, strict=True) if digest not in found]
            calls, cached = calls + len(new), cached + len(requests) - len(new)
            inputs += sum(_tokens(backend, request) for request in new)
            outputs += sum(request.sampling.max_tokens for request in new)
    return Estimate(
        title=scorer.title,
        identity=scorer.identity,
        answers=len(missing),
        distinct=len(groups),
        calls=calls,
        cached=cached,
        input_tokens=inputs,
        output_tokens=outputs,
        counted=callable(getattr(backend, "count_tokens", None)),
        remote=remote_host(backend),
    )


def note(folder: RunFolder, labeled: Iterable[Labeled], prices: Prices | None = None) -> None:
    """Add what was done, and what it took, to ``provenance/scoring.json`` of a held folder."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entries = []
    for each in labeled:
        entry: dict[str, Any] = {"at": now, **asdict(each)}
        if prices is not None and each.asks_a_model:
            entry["price_per_million"] = asdict(prices)
            entry["cost"] = prices.cost(each.input_tokens, each.output_tokens)
        entries.append(entry)
    if not entries:
        return
    inner = RunFolder(folder.path / "provenance")
    try:
        inner.path.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"{inner.path} cannot be made: {error.strerror}") from error
    there = (inner.path / NOTES).exists()
    earlier = inner.read_json(NOTES).get("scorings", []) if there else []
    text = canon.dumps({"v": 1, "scorings": [*earlier, *entries]})
    inner.write_text(NOTES, text + "\n")


def remote_host(backend: Generator) -> str:
    """The host that a generator sends prompts to, ``""`` where they stay on this machine.

    Of several ``hosts``, the first that is not this machine.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> remote_host(SimpleNamespace(host="api.example.org"))
    'api.example.org'
    >>> remote_host(SimpleNamespace(host="127.0.0.1:8000"))
    ''
    """
    places = getattr(backend, "hosts", None) or (getattr(backend, "host", ""),)
    return next(filter(None, map(_elsewhere, places)), "")


def _elsewhere(place: object) -> str:
    name = urlsplit(f"//{place}").hostname or "" if isinstance(place, str) else ""
    if name == "localhost" or name.endswith(".localhost"):
        return ""
    try:
        return "" if ipaddress.ip_address(name).is_loopback else name
    except ValueError:
        return name


def _requests(instance: ModelScorer, groups: Sequence[Group]) -> Iterator[list[Request]]:
    for start in range(0, len(groups), _CHUNK):
        yield instance.requests_for([group.answered for group in groups[start : start + _CHUNK]])


def _tokens(backend: Generator, request: Request) -> int:
    count = getattr(backend, "count_tokens", None)
    if callable(count):
        return int(count(request.messages))
    characters = sum(len(message.content) for message in request.messages)
    return -(-characters // CHARACTERS_PER_TOKEN)
