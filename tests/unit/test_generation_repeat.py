from __future__ import annotations

from collections.abc import Sequence

import pytest

from ragassay.errors import BackendError, ConfigError, NotEstimable
from ragassay.generation.repeat import RepeatReport, repeats_itself
from ragassay.generation.scripted import Scripted
from ragassay.types import Generation, Message, Request, Sampling

REQUESTS = [
    Request(
        messages=(Message(role="user", content=f"say {i}"),), sampling=Sampling(temperature=0.7)
    )
    for i in range(4)
]


class Moody:
    """Answers prompt 0 anew each time, and prompts 0 and 1 otherwise in a batch."""

    identity = "moody"
    gathers = False

    def __init__(self) -> None:
        self.asked = 0

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        self.asked += 1
        texts = []
        for request in requests:
            assert request.sampling.temperature == 0
            name = request.messages[0].content
            text = name
            if name == "say 0":
                text += f" {self.asked}"
            if name == "say 1" and len(requests) > 1:
                text += " in company"
            texts.append(text)
        return [Generation(text=text) for text in texts]


def test_a_model_that_repeats_itself_passes() -> None:
    report = repeats_itself(Scripted(script="echo"), REQUESTS)
    assert report == RepeatReport(n=4, times=2, alone=4, together=4, identical=4)
    assert report.repeats
    assert report.describe() == "4 of 4 texts identical, alone and in a batch"


def test_each_kind_of_deviation_is_counted() -> None:
    report = repeats_itself(Moody(), REQUESTS, times=3)
    assert report == RepeatReport(n=4, times=3, alone=3, together=3, identical=2)
    assert not report.repeats
    assert report.describe().startswith("2 of 4 texts identical alone and in a batch (3 of 4")


def test_a_failure_is_raised_and_not_counted_as_agreement() -> None:
    with pytest.raises(BackendError, match="every request fails"):
        repeats_itself(Scripted(script="fail"), REQUESTS)


def test_a_wrong_number_of_results_is_a_failure() -> None:
    class Short(Moody):
        def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
            return []

    with pytest.raises(BackendError, match="0 results for 1 requests"):
        repeats_itself(Short(), REQUESTS)


def test_nothing_to_ask_is_not_estimable() -> None:
    with pytest.raises(NotEstimable):
        repeats_itself(Scripted(), [])
    with pytest.raises(ConfigError, match="times"):
        repeats_itself(Scripted(), REQUESTS, times=0)
