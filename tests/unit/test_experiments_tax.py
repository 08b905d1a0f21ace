from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from ragassay import canon
from ragassay.experiments.tax import mean_pairwise_cosine, measure, tax_section
from ragassay.types import Cost, Knowledge, Passage, PoisonSet

VECTORS = {"x": (1.0, 0.0), "y": (0.0, 2.0), "xy": (1.0, 1.0), "zero": (0.0, 0.0)}


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    return np.array([VECTORS[text] for text in texts], dtype=np.float32)


def perplexity(texts: Sequence[str]) -> NDArray[np.float64]:
    return np.array([np.nan if text == "zero" else 10.0 * len(text) for text in texts])


def poison(query: str, *texts: str, seconds: float = 1.0, llm: str = "helper") -> PoisonSet:
    return PoisonSet(
        attack="a", query_id=query, knowledge=Knowledge(llm=llm),  # type: ignore[arg-type]
        passages=tuple(Passage(id=f"{query}{i}", text=text) for i, text in enumerate(texts)),
        cost=Cost(model_calls=2, seconds=seconds),
    )  # fmt: skip


def test_the_mean_cosine_is_over_pairs_of_normalized_vectors() -> None:
    assert mean_pairwise_cosine(embed(["x", "y", "xy"])) == pytest.approx(2 / 3 * np.sqrt(0.5))
    assert mean_pairwise_cosine(embed(["x", "zero"])) == 0.0
    assert mean_pairwise_cosine(embed(["x"])) is None


def test_similarity_is_the_mean_over_questions_that_have_two_passages() -> None:
    found = measure([poison("q1", "x", "xy"), poison("q2", "y"), poison("q3", "x", "y")],
                    embed=embed)  # fmt: skip
    assert found["similarity"] == {"value": pytest.approx(np.sqrt(0.5) / 2), "n": 2}
    assert found["seconds"] == {"value": 1.0, "n": 3}
    assert found["cost"]["model_calls"] == 6
    assert (found["questions"], found["passages"]) == (3, 5)


def test_single_passage_attacks_have_no_similarity() -> None:
    assert measure([poison("q1", "x")], embed=embed)["similarity"] == {"value": None, "n": 0}


def test_a_passage_without_a_perplexity_is_left_out_and_counted() -> None:
    found = measure([poison("q1", "x", "zero"), poison("q2", "xy")], perplexity=perplexity)
    assert found["perplexity"] == {"value": 15.0, "n": 2}


def test_nothing_to_measure_with_and_nothing_to_measure_give_no_value() -> None:
    assert measure([poison("q1", "x", "y")])["similarity"] == {"value": None, "n": 0}
    empty = measure([poison("q1")], embed=embed, perplexity=perplexity)
    assert empty["similarity"]["value"] is None
    assert empty["perplexity"]["value"] is None
    assert measure([])["seconds"] == {"value": None, "n": 0}


def test_the_section_is_plain_json_with_raw_values_beside_the_scores() -> None:
    measured = {
        "cheap": measure([poison("q1", "x", "xy", seconds=1)], embed=embed, perplexity=perplexity),
        "dear": measure([poison("q1", "x", "y", seconds=100, llm="internals")], embed=embed,
                        perplexity=perplexity),
    }  # fmt: skip
    section = tax_section(measured, performance={"cheap": {"s_asr": 0.2}, "dear": {"s_asr": 0.9}},
                          log=("cost",))  # fmt: skip
    canon.dumps(section)
    by_name = {each["name"]: each for each in section["dimensions"]}
    assert len(by_name) == 7
    assert by_name["cost"]["raw"] == [1.0, 100.0]
    assert by_name["cost"]["scores"] == [1.0, 0.0]
    assert by_name["llm"]["scores"] == [1.0, 0.0]
    assert by_name["performance"]["scores"] == [0.0, 1.0]
    assert by_name["similarity"]["scores"] == [0.0, 1.0]
    assert section["performance"]["cheap"]["m_asr"] is None
    assert section["attacks"] == ["cheap", "dear"]
