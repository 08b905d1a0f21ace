"""Perplexity and RAGuard: published formulas, and what the embedded model makes of real texts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragassay.defenses.perplexity import perplexity
from ragassay.defenses.raguard import chunk_perplexity
from ragassay.defenses.robustrag_decoding import RobustRAGDecoding
from ragassay.experiments.reading_model import ReadingModel
from ragassay.testing import ScriptedTools, make_hits, make_query


def test_golden_perplexity(golden: dict[str, list[dict[str, Any]]]) -> None:
    for entry in golden["perplexity"]:
        assert entry["function"] == "perplexity"
        found = perplexity(entry["inputs"]["token_nll"])
        assert found == pytest.approx(entry["expected"], abs=entry["tolerance"]), entry["id"]


def test_golden_raguard(golden: dict[str, list[dict[str, Any]]]) -> None:
    for entry in golden["raguard"]:
        assert entry["function"] == "chunk_ppl"
        inputs, expected = entry["inputs"], entry["expected"]
        found = chunk_perplexity(inputs["ppl_first"], inputs["ppl_second"])
        assert found == pytest.approx((expected["PD"], expected["PM"]), abs=entry["tolerance"])


TEXT = "The harbor of the old town was built in 1871, and its lighthouse still stands on the pier."


@pytest.mark.slow
def test_the_embedded_model_scores_real_texts_once_and_alike(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from ragassay.errors import BackendUnavailable
    from ragassay.generation.hf import EmbeddedSmolLM2

    generator = EmbeddedSmolLM2()
    try:
        opened = generator.white_box()
        words = np.random.default_rng(0).permutation(TEXT.split())
        texts = [TEXT, " ".join([TEXT] * 4), " ".join(words.tolist()), "Xq zz vortal ;; 88 }{ grum"]
        reading = ReadingModel(generator.identity, lambda: opened, tmp_path / "losses.sqlite")
        start = time.perf_counter()
        losses = reading.token_nll(texts)
        seconds = time.perf_counter() - start
    except BackendUnavailable as error:
        pytest.skip(str(error))
    plain, repeated, shuffled, junk = (perplexity(each) or 0.0 for each in losses)
    assert repeated < plain < shuffled < junk
    assert [plain, repeated] == pytest.approx(opened.perplexity(texts[:2]), rel=1e-4)
    other = ReadingModel(generator.identity, lambda: opened, tmp_path / "others.sqlite")
    alone = [other.token_nll([text])[0] for text in texts]
    assert all(np.array_equal(a, b) for a, b in zip(alone, losses, strict=True))
    tokens = sum(len(each) + 1 for each in losses)
    print(f"\n{tokens} tokens scored in {seconds:.2f} s, loading included")


@pytest.mark.slow
def test_the_embedded_model_decodes_from_passages_that_agree() -> None:
    pytest.importorskip("torch")
    from ragassay.errors import BackendUnavailable
    from ragassay.generation.hf import EmbeddedSmolLM2

    opened = EmbeddedSmolLM2().white_box()
    tools = ScriptedTools(language_model=opened)
    hits = make_hits([
        "Ottawa is the capital of Canada, on the river of the same name.",
        "The capital city of Canada is Ottawa, in the province of Ontario.",
        "Since 1857 the capital of Canada has been Ottawa.",
    ])  # fmt: skip
    query = make_query("Which city is the capital of Canada?")
    try:
        verdict = RobustRAGDecoding(max_tokens=12).apply(query, hits, tools)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    assert "Ottawa" in (verdict.answer or "")
    assert verdict.trace["votes"] == 3
    # The same, token by token, with every prompt read again from its beginning.
    prompts = [opened.chat_ids(tools.answer_prompt(query, [hit])) for hit in hits]
    alone = opened.chat_ids(tools.answer_prompt(query, ()))
    with opened.branches([*prompts, alone]) as branches:
        for token in opened.tokenize(verdict.answer or "")[:4]:
            found = branches.logits
            expected = opened.next_logits([*prompts, alone])
            assert np.abs(found - expected).max() < 1e-2
            branches.append(token)
            prompts = [(*ids, token) for ids in prompts]
            alone = (*alone, token)
