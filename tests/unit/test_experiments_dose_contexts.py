from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ragassay.experiments import dose_contexts
from ragassay.types import Generation, Message, Query, Request


def test_each_draw_asks_the_helper_for_texts_of_its_own() -> None:
    asked: list[Request] = []

    class Helper:
        def ask(self, requests: list[Request]) -> list[Generation]:
            asked.extend(requests)
            return [Generation(text=f"text {len(asked)}") for _ in requests]

    target = SimpleNamespace(wanted=("Rome",))
    setup: Any = SimpleNamespace(dataset=SimpleNamespace(targets={"q": target}))
    query = Query(id="q", text="Where?", group="g")
    for draw in (0, 1, 2):
        scene = dose_contexts._scene(setup, query, Helper(), draw)  # type: ignore[arg-type]
        assert scene.target == "Rome"
        assert scene.ask is not None
        for attempt in (0, 1):
            scene.ask([Message(role="user", content="write")], attempt)
    samples = [request.sample_index for request in asked]
    assert len(set(samples)) == 6
    assert samples[:2] == [0, 1]
