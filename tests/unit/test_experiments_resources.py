"""What ``ragassay plan`` says of tokens, hours and bytes, against arithmetic and a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ragassay
from ragassay.defenses.instructrag import InstructRAG
from ragassay.errors import ConfigError, StoreError
from ragassay.experiments.estimate import Estimate
from ragassay.experiments.protocols import protocol
from ragassay.experiments.resources import (
    CHARACTERS_PER_TOKEN,
    Resources,
    Speeds,
    measured,
    resources,
    template_characters,
)
from ragassay.experiments.setup import Setup, load_experiment
from ragassay.generation.scripted import Scripted
from ragassay.prompts import load
from ragassay.retrieval.encoders import SentenceTransformersEncoder
from ragassay.retrieval.weights import vector_length
from ragassay.types import Request

FILE = """
name = "small"
budgets = [1, 2]
[dataset]
plugin = "atlas"
[retriever]
encoder = "hashing"
encoder_options = { dimensions = 256 }
k = 3
[generator]
plugin = "scripted"
max_tokens = 24
[[defense]]
plugin = "prompt_control_cautious"
[statistics]
draws = 100
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def needed(path: Path, *settings: str, **options: object) -> tuple[Setup, Resources]:
    experiment = load_experiment(path, settings)
    setup = protocol(experiment.file.protocol).set_up(experiment)
    counts = protocol(setup.protocol).estimate(setup, None)
    speeds = options.pop("speeds", Speeds())
    return setup, resources(setup, counts, speeds=speeds, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("storage", "width"), [("float32", 4), ("float16", 2)])
def test_bytes_of_vectors_and_hours_are_products(small: Path, storage: str, width: int) -> None:
    speeds = Speeds(tokens=1_000.0, texts=500.0)
    _, found = needed(small, f"retriever.storage={storage}", passages=5_200_000, speeds=speeds)
    assert found.vector_bytes == 5_200_000 * 256 * width
    assert found.encoded == found.passages == 5_200_000
    assert found.encoder_hours == pytest.approx(5_200_000 / 500 / 3600)
    tokens = found.input_tokens + found.output_tokens
    assert found.model_hours == pytest.approx(tokens / 1000 / 3600)


def test_without_a_speed_hours_are_not_known(small: Path) -> None:
    setup, found = needed(small)
    assert found.model_hours is None
    assert found.encoder_hours is None
    assert found.passages == len(setup.dataset.corpus)


def test_a_retriever_without_vectors_encodes_nothing(small: Path) -> None:
    settings = ('retriever={plugin="bm25", k=3}',)
    pytest.importorskip("bm25s")
    _, found = needed(small, *settings)
    assert (found.encoded, found.vector_bytes) == (0, 0)


def test_a_run_takes_no_more_than_was_estimated_and_not_much_less(
    small: Path, tmp_path: Path
) -> None:
    _, found = needed(small)
    result = ragassay.run(load_experiment(small), out=tmp_path / "run")
    streams = sum(p.stat().st_size for p in (tmp_path / "run").glob("*.jsonl"))
    assert found.folder_bytes / 2 < streams <= found.folder_bytes
    told = json.loads((tmp_path / "run" / "timing.json").read_text(encoding="utf-8"))
    assert told["input_tokens"] == result.input_tokens > 0
    assert result.input_tokens <= found.input_tokens
    assert 0 < result.output_tokens <= found.output_tokens
    speeds = measured(tmp_path / "run")
    assert speeds.texts == pytest.approx(result.encoded_texts / told["encoder_seconds"], rel=0.01)
    assert str(tmp_path / "run") in speeds.source


def test_long_templates_and_a_judge_with_all_its_retries_are_within_the_estimate(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (
        "generator.script=extract",
        "defense+=instructrag",
        'scoring.rules=["tokens", {plugin="judge", generator="scripted",'
        ' generator_options={text="no"}}]',
    )
    asked: list[Request] = []
    answer = Scripted.generate

    def noted(self: Scripted, requests: Sequence[Request]) -> Any:
        asked.extend(requests)
        return answer(self, requests)

    monkeypatch.setattr(Scripted, "generate", noted)
    setup, found = needed(small, *settings)
    counts = protocol(setup.protocol).estimate(setup, None)
    ragassay.run(load_experiment(small, settings), out=tmp_path / "run")
    letters = sum(len(message.content) for one in asked for message in one.messages)
    assert len(asked) <= sum(counts.calls.values())
    assert letters / CHARACTERS_PER_TOKEN <= found.input_tokens
    assert sum(one.sampling.max_tokens for one in asked) <= found.output_tokens
    judged = [one for one in asked if one.sampling.max_tokens == 512]
    assert 0 < len(judged) <= counts.calls["scorer judge"]
    assert len(judged) % 4 == 0  # each answer with three retries
    streams = sum(p.stat().st_size for p in (tmp_path / "run").glob("*.jsonl"))
    assert streams <= found.folder_bytes


def test_a_call_is_priced_with_the_longest_prompt_and_reply_of_who_makes_it(small: Path) -> None:
    tokens = {}
    for name in ("prompt_control_cautious", "instructrag"):
        setup = needed(small, f'defense=["{name}"]')[0]
        counts = Estimate(folder=small, trials=1, done=0, calls={name: 1}, made_of="")
        tokens[name] = resources(setup, counts, speeds=Speeds())
    template = load("instructrag")
    around = sum(len(m.content) for m in template.render(dict.fromkeys(template.slots, "")))
    assert tokens["instructrag"].input_tokens >= around // CHARACTERS_PER_TOKEN
    assert tokens["instructrag"].input_tokens > tokens["prompt_control_cautious"].input_tokens
    assert tokens["instructrag"].output_tokens == 256
    assert tokens["prompt_control_cautious"].output_tokens == 24


def test_the_examples_of_a_file_count_as_template(tmp_path: Path) -> None:
    path = tmp_path / "examples.json"
    row = {"question": "q", "answers": ["a"], "rationale": "r", "ctxs": [{"text": "x" * 5000}]}
    path.write_text(json.dumps([row]), encoding="utf-8")
    plain, long = InstructRAG(), InstructRAG(path=str(path))
    assert template_characters(long) > template_characters(plain) + 5000


def test_a_run_that_says_nothing_of_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"timing\.json does not say what a run took"):
        measured(tmp_path)
    (tmp_path / "timing.json").write_text('{"seconds": 1.0}', encoding="utf-8")
    with pytest.raises(StoreError, match="input_tokens"):
        measured(tmp_path)


def test_a_run_without_calls_gives_no_speed(tmp_path: Path) -> None:
    told = {"input_tokens": 0, "output_tokens": 0, "model_seconds": 0.0, "encoder_seconds": 0.0,
            "encoded_texts": 0}  # fmt: skip
    (tmp_path / "timing.json").write_text(json.dumps(told), encoding="utf-8")
    assert replace(measured(tmp_path), source="") == Speeds()


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_speed_is_above_zero(value: float) -> None:
    with pytest.raises(ConfigError, match="tokens a second must be above 0"):
        Speeds(tokens=value)


# ----------------------------------------------------------------------- the length of vectors


def model(folder: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


POOLING = {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True,
           "pooling_mode_cls_token": False}  # fmt: skip
MODULES = [{"type": "sentence_transformers.models.Transformer", "path": ""},
           {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "length"),
    [
        ({"config.json": {"hidden_size": 768}}, 768),
        ({"modules.json": MODULES, "1_Pooling/config.json": POOLING}, 384),
        ({"modules.json": MODULES,
          "1_Pooling/config.json": {**POOLING, "pooling_mode_cls_token": True}}, 768),
        ({"modules.json": [*MODULES, {"type": "sentence_transformers.models.Dense",
                                      "path": "2_Dense"}],
          "1_Pooling/config.json": POOLING, "2_Dense/config.json": {"out_features": 64}}, 64),
        ({"modules.json": MODULES}, None),
        ({"config.json": {}}, None),
    ],
)  # fmt: skip
def test_the_length_of_vectors_stands_in_the_configuration(
    tmp_path: Path, files: dict[str, object], length: int | None
) -> None:
    folder = model(tmp_path, files)
    assert vector_length(folder) == length
    assert SentenceTransformersEncoder(model=str(folder)).dimensions == length
