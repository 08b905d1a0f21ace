"""Whole reports from run folders: what they hold, and that nothing in them can act."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragassay import canon
from ragassay.errors import StoreError
from ragassay.experiments.protocols import analyze
from ragassay.report import transitions
from ragassay.report.markup import embed
from ragassay.report.reading import ReadOnce
from ragassay.report.records import (
    MAX_TEXT,
    browser_data,
    fair_limit,
)
from ragassay.report.render import write_reports
from ragassay.store import RunFolder
from ragassay.types import (
    ContextEntry,
    Evidence,
    Knowledge,
    Passage,
    PoisonSet,
    Query,
    Sampling,
    ScoreRecord,
    Target,
    ToolUsage,
    TrialRecord,
    TrialSpec,
)

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    'javascript:alert(3) "onload="alert(4)" <a href=https://evil.example>',
    "abc\u202egpj.exe\u202c\u2028\u200b]]><!--",
    "{{ 7*7 }} {% raw %}",
)
EVIL = " ".join(HOSTILE)
RIGHT, WRONG = "males", "females"
DEFENSE = "trust<b>rag"
# c0, c1, p0, p1 of each query; P = 3, J = 2, one harmed on clean.
LABELS = [
    (0, 0, 1, 0), (0, 0, 1, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 1),
    (1, 1, 1, 1), (0, 0, 1, 1), (0, 0, 0, 0), (0, 0, 0, 0), (0, 1, 1, 1),
]  # fmt: skip
PLACES = (("", 0, "none"), ("", 0, DEFENSE), ("att", 2, "none"), ("att", 2, DEFENSE))


def build(
    folder: Path, labels: list[tuple[Any, ...]], *, groups: int = 5, evil: bool = True
) -> RunFolder:
    """Write a run folder and its summary; with ``evil``, all that is foreign is hostile."""
    store = RunFolder(folder)
    extra = EVIL if evil else ""
    resolved = {
        "protocol": "aligned/1",
        "experiment": {"name": "hand", "seed": 1, "retriever": {"k": 2}, "note": extra,
                       "statistics": {"draws": 500, "confidence": 0.95}},
        "dataset": {"name": "hand" + extra, "evaluated": len(labels), "groups": groups,
                    "has_qrels": True},
        "retriever": "dense:x", "generator": "model:y" + extra, "headline": "rule",
        "scorers": {"rule": "rule:1", "other": "other:1"},
        "defenses": {"none": "n", DEFENSE: "m"},
    }  # fmt: skip
    with store.writer():
        store.write_text("resolved.json", canon.dumps(resolved))
        store.write_text("environment.json", canon.dumps({"python": "3.11.2" + extra}))
        for number, four in enumerate(labels):
            _query(store, number, groups, extra)
            for label, place in zip(four, PLACES, strict=True):
                _trial(store, number, label, place, extra)
        store.write_text("summary.json", canon.dumps(analyze(folder)))
    return store


def _query(store: RunFolder, number: int, groups: int, extra: str) -> None:
    query = Query(
        id=f"q{number}{extra}", text=f"question {number} {extra}", group=f"g{number % groups}"
    )
    target = Target(query_id=query.id, references=(RIGHT, extra), wanted=(WRONG, extra))
    store.append("queries", query.id, {"query": query, "target": target})
    text = f"Passage {number}. {extra}" + "z" * (3 * MAX_TEXT if number == 0 else 0)
    store.append("passages", f"d{number}", Passage(id=f"d{number}", text=text, title=extra))
    poison = PoisonSet(
        attack="att", query_id=query.id, knowledge=Knowledge(),
        passages=(Passage(id=f"p{number}{extra}", text=f"Poison {number} {extra}"),),
    )  # fmt: skip
    store.append("poison", f"att:{number}", poison)


def _trial(
    store: RunFolder, number: int, label: Any, place: tuple[str, int, str], extra: str
) -> None:
    attack, budget, defense = place
    spec = TrialSpec(
        protocol="aligned/1", dataset="d", query_id=f"q{number}{extra}", question="?",
        attack=attack, budget=budget, poison="", retriever="r", defense=defense,
        defense_label=defense, prompt="p", generator="g", sampling=Sampling(), seed=1,
    )  # fmt: skip
    key = canon.digest(spec)
    if label == "failed":
        record = TrialRecord(key=key, spec=spec, status="failed", error="server gone " + extra)
        store.append("trials", key, record)
        return
    first = f"p{number}{extra}" if budget and number != 8 else "away"
    context = (
        ContextEntry(id=first, score=1, origin="own" if first[0] == "p" else "corpus",
                     gold=False, kept=defense == "none"),
        ContextEntry(id=f"d{number}", score=0.5, origin="corpus", gold=True, kept=True),
    )  # fmt: skip
    answer = f"\U0001f600 {WRONG if label else RIGHT} {extra}"
    record = TrialRecord(
        key=key, spec=spec, status="done", context=context, answer=answer,
        usage=ToolUsage(model_calls=1), trace={"step": extra} if defense != "none" else {},
        suspicion={first: 0.75} if defense != "none" else {},
    )  # fmt: skip
    store.append("trials", key, record)
    for scorer in ("rule", "other"):
        positive = bool(label) if scorer == "rule" else WRONG in answer or number == 7
        evidence = [Evidence(label="reference", start=2, stop=2 + len(RIGHT))]
        if label:
            evidence = [Evidence(label="wanted", start=2, stop=2 + len(WRONG)),
                        Evidence(label="reference", start=4, stop=4 + len(RIGHT))]  # fmt: skip
        score = ScoreRecord(
            trial_key=key, scorer=scorer, version="1", target_positive=positive,
            correct=not label, abstained=False, evidence=tuple(evidence),
        )  # fmt: skip
        store.append("scores", key, score)


class Page(HTMLParser):
    """What a browser would find: elements, attributes, and the raw text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []
        self._inside: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self._inside != "style":
            self.text.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    store = build(tmp_path_factory.mktemp("run"), LABELS)
    write_reports(store.path)
    return store


@pytest.fixture(scope="module")
def source(run: RunFolder) -> str:
    return (run.path / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


# ----------------------------------------------------------------------------------- the page


def test_both_reports_are_written_and_named(run: RunFolder) -> None:
    paths = write_reports(run.path)
    assert {name: path.name for name, path in paths.items()} == {
        "md": "report.md", "html": "report.html"
    }  # fmt: skip


def test_two_renderings_have_equal_bytes(run: RunFolder, source: str) -> None:
    before = (run.path / "report.md").read_bytes()
    write_reports(run.path)
    assert (run.path / "report.html").read_text(encoding="utf-8") == source
    assert (run.path / "report.md").read_bytes() == before


def test_no_foreign_text_becomes_markup(source: str, page: Page) -> None:
    assert "<script>alert" not in source
    assert "<img" not in source
    assert not [char for char in "\u202e\u202c\u2028\u200b" if char in source]
    assert "⟨U+202E⟩" in source
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert not {tag for tag, _ in page.tags} & {"img", "iframe", "object", "link", "base", "form"}
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
    assert any("{{ 7*7 }}" in text for text in page.text)


def test_the_page_loads_nothing_and_leads_nowhere(page: Page) -> None:
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "xlink:href", "data", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith("#"), (tag, name, value)
        assert "http" not in (attributes.get("style") or ""), tag


def test_the_policy_allows_the_script_by_its_hash_and_nothing_else(page: Page) -> None:
    policy = next(
        a["content"]
        for tag, a in page.tags
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    (data_attributes, _), (_, script) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert data_attributes == {"type": "application/json", "id": "data"}


def test_the_script_never_parses_markup(page: Page) -> None:
    script = page.scripts[1][1]
    for danger in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                   "setAttribute(\"on", "srcdoc", "DOMParser"):  # fmt: skip
        assert danger not in script


def test_the_title_is_the_finding_and_sections_stand_in_order(source: str, page: Page) -> None:
    heading = re.search(r"<h1>(.*?)</h1>", source, re.DOTALL)
    assert heading is not None
    assert "No defense lowers the target-positive answers" in heading[1]
    order = ["Warnings and dropped trials", "What each defense prevents and introduces",
             "Effects of the defenses", "Effects with their intervals",
             "Rates in the four conditions", "What the label does to the conclusion",
             "Context composition", "Cost", "Records",
             "How to read the figures", "Settings and versions"]  # fmt: skip
    assert f">{order[0]}</strong>" in source
    places = [source.index(f">{name}</h2>") for name in order[1:]]
    assert places == sorted(places)
    text = " ".join(page.text)
    for part in ("3/10", "2/10", "6/10 → 5/10 (50.0%)", "Only 5 injection groups", "3.11.2"):
        assert part in text, part


def test_every_rule_has_its_tables_and_charts_without_script(source: str) -> None:
    assert source.count("<svg") == 2 * 3 + 1  # and the slope chart
    assert 'id="rule-0" checked' in source
    assert "body:has(#rule-1:checked) .by-rule:not(.rule-1)" in source
    assert "<noscript>" in source


def test_counts_lead_to_their_records(page: Page) -> None:
    filters = [a["data-filter"] for _, a in page.tags if a.get("data-filter")]
    assert "rule=rule&defense=trust%3Cb%3Erag&attack=att&p=2&class=P" in filters
    assert len(filters) == 2 * 2


# ------------------------------------------------------------------------- failures and nulls


def test_failed_trials_are_shown_and_one_group_is_not_estimable(tmp_path: Path) -> None:
    build(tmp_path, [*LABELS, (0, "failed", 1, 0)], groups=1)
    paths = write_reports(tmp_path)
    for path in paths.values():
        text = path.read_text(encoding="utf-8")
        assert "server gone" in text
        assert "43 of 44 done, 1 failed" in text
        assert "1/11" in text
        assert "not estimable" in text
        assert "No interval can be given" in text


def test_a_run_in_which_everything_failed_still_has_a_report(tmp_path: Path) -> None:
    build(tmp_path, [("failed",) * 4] * 3, evil=False)
    text = write_reports(tmp_path)["html"].read_text(encoding="utf-8")
    assert "Nothing is estimable" in text
    assert "12 of 12 trials failed" in text


def test_a_folder_without_a_summary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no summary\.json"):
        write_reports(tmp_path)


# -------------------------------------------------------------------------------- the records


def records(store: RunFolder) -> dict[str, Any]:
    return browser_data(store, store.read_json("summary.json"))


def test_classes_agree_with_the_analysis(run: RunFolder) -> None:
    data, summary = records(run), run.read_json("summary.json")
    assert data["rules"] == ["rule", "other"]
    for r, rule in enumerate(data["rules"]):
        for d, defense in enumerate(data["defenses"]):
            cell = next(
                c for c in summary["cells"] if c["scorer"] == rule and c["defense"] == defense
            )
            if defense == "none":
                continue
            of_defense = [record for record in data["records"] if record[2] == d]
            assert len(of_defense) == len(LABELS)
            letters = "".join(record[7][r] for record in of_defense)
            assert letters.count("P") == cell["effects"]["P"]["count"]
            assert letters.count("J") == cell["effects"]["J"]["count"]
            assert letters.count("P") + letters.count("+") == cell["rates"]["p0"]["count"]
            harmed = "".join(record[8][r] for record in of_defense)
            assert harmed.count("1") == cell["mcnemar"]["clean"]["gained"]


def test_a_query_without_four_labels_is_in_no_class(tmp_path: Path) -> None:
    data = records(build(tmp_path, [(0, 1, 1, 0), (0, 1, "failed", 0)]))
    assert [record[7][0] for record in data["records"]] == ["P", "x"]
    assert [record[8][0] for record in data["records"]] == ["1", "0"]
    four = np.array([[1, -1, 1, 1]], dtype=np.int8)
    assert transitions.transition_classes(four).tobytes() == b"x"


def test_spans_count_as_browsers_do_and_show_the_attackers_answer(run: RunFolder) -> None:
    data = records(run)
    p0 = data["trials"][data["records"][0][5]]
    answer = data["answers"][p0["a"]]
    units = answer.encode("utf-16-le")
    start, stop, kind = p0["s"][0]
    assert units[2 * start : 2 * stop].decode("utf-16-le") == WRONG
    assert kind == 0
    assert p0["l"] == ["100", "100"]


def test_contexts_tell_origin_gold_and_what_was_kept(run: RunFolder) -> None:
    data = records(run)
    p1 = data["trials"][data["records"][0][6]]
    entries = data["contexts"][p1["x"]]
    assert [(e[1], e[2], e[3]) for e in entries] == [(1.0, "o", 0), (0.5, "c", 1)]
    assert p1["k"] == "01"
    assert p1["u"] == [0.75, None]
    own, corpus = (data["passages"][entry[0]] for entry in entries)
    assert own[3] == data["queries"][0][0]
    assert corpus[2] == [f"Passage 0. {EVIL}{'z' * (3 * MAX_TEXT)}"[:MAX_TEXT],
                         len(f"Passage 0. {EVIL}") + 3 * MAX_TEXT]  # fmt: skip
    missing = next(p for p in data["passages"] if p[0] == "away")
    assert missing[2] is None


def test_equal_texts_stand_once(run: RunFolder) -> None:
    data = records(run)
    assert len({json.dumps(p[0]) for p in data["passages"]}) == len(data["passages"])
    assert len(data["answers"]) == 2
    assert len(data["traces"]) == 1


def test_texts_are_cut_fairly_to_fit_a_page() -> None:
    lengths = [100, 5_000, 9_000, 30_000]
    limit = fair_limit(lengths, 12_000)
    assert 100 < limit < 5_000
    assert sum(min(length, limit) for length in lengths) <= 12_000
    assert fair_limit([], 10) == MAX_TEXT


def test_embedded_data_hold_no_character_that_ends_or_hides() -> None:
    value = {EVIL: ["\ud800", "&amp;", "\U0001f600", "\x85\xad"]}
    text = embed(value)
    assert not re.search("[<>&\u2028\u202e\u200b\x85\xad\ud800]", text)
    assert json.loads(text) == value
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("clean", "poisoned", "absent", "letter"),
    [
        (False, True, False, "I"), (True, False, False, "R"), (True, True, False, "+"),
        (False, False, False, "-"), (None, True, False, "x"), (False, None, False, "x"),
        (None, True, True, "+"), (None, False, True, "-"), (None, None, True, "x"),
    ],
)  # fmt: skip
def test_without_a_defense_a_record_is_classed_by_what_the_attack_does(
    clean: bool | None, poisoned: bool | None, absent: bool, letter: str
) -> None:
    labels = [
        np.array([-1 if label is None else label], dtype=np.int8) for label in (clean, poisoned)
    ]
    found = transitions.attack_classes(*labels, clean_absent=absent)
    assert found.tobytes().decode() == letter


def test_a_page_that_is_full_lists_flips_and_disagreements_first_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build(tmp_path, LABELS, evil=False)
    monkeypatch.setattr(transitions, "MAX_TRIALS", 4 * 7)
    data = records(store)
    assert (len(data["records"]), data["total"]) == (7, 10)
    assert len(data["trials"]) == 4 * 7
    assert len(data["queries"]) == 7
    # Five flips, the one that was harmed on clean, and q7, where the two rules disagree.
    assert {data["queries"][record[0]][0] for record in data["records"]} == {
        "q0", "q1", "q2", "q3", "q4", "q7", "q9"
    }  # fmt: skip
    assert [record[9] for record in data["records"]] == [0, 0, 0, 0, 0, 1, 0]
    page = write_reports(tmp_path)["html"].read_text(encoding="utf-8")
    assert "7 of 10 records are listed" in page


def test_a_page_with_room_says_nothing_of_a_bound(source: str) -> None:
    assert "records are listed</strong>" not in source


def test_records_read_once_give_the_same_page(run: RunFolder, source: str) -> None:
    write_reports(ReadOnce(run.path))
    assert (run.path / "report.html").read_text(encoding="utf-8") == source


# -------------------------------------------------------------- settings, without a defense

SETTINGS = {"big/nq": "nq", "small/nq": "nq", "small/hot<b>": "hot"}


def build_imported(folder: Path, *, clean: bool = True) -> RunFolder:
    """Three settings, two attacks, no defense, two string rules; the texts are hostile."""
    store = RunFolder(folder)
    resolved = {
        "protocol": "imported/1",
        "experiment": {"name": "imported", "seed": 1,
                       "statistics": {"draws": 50, "confidence": 0.95}},
        "dataset": {"name": "two"}, "headline": "tokens",
        "scorers": {"published": "p", "tokens": "t"}, "defenses": {"none": "n"},
        "settings": {label: {"dataset": name} for label, name in SETTINGS.items()},
    }  # fmt: skip
    with store.writer():
        store.write_text("resolved.json", canon.dumps(resolved))
        for name in ("nq", "hot"):
            for n in range(4):
                query = Query(
                    id=f"{name}:{n}", text=f"{name} Q{n} {EVIL}", group=f"{n}", dataset=name
                )
                target = Target(query_id=query.id, wanted=("male",), references=("cat",))
                store.append("queries", query.id, {"query": query, "target": target})
                for setting, dataset in SETTINGS.items():
                    if dataset == name:
                        _imported(store, query, setting, n, clean=clean)
        store.write_text("summary.json", canon.dumps(analyze(folder)))
    return store


def _imported(store: RunFolder, query: Query, setting: str, n: int, *, clean: bool) -> None:
    places = [("", 0)] * clean + [("weak", 1), ("strong" + HOSTILE[0], 5)]
    for attack, budget in places:
        spec = TrialSpec(
            protocol="imported/1", dataset=query.dataset, query_id=query.id, question=query.text,
            attack=attack, budget=budget, poison="", retriever="", defense="none",
            defense_label="none", prompt="", generator="", sampling=Sampling(), seed=0,
            setting=setting,
        )  # fmt: skip
        key = canon.digest(spec)
        hit = budget == 5 or (budget == 1 and n == 0)
        answer = f"{'a male' if hit and n else 'females' if hit else 'a cat'} {EVIL}"
        store.append("trials", key, TrialRecord(key=key, spec=spec, status="done", answer=answer))
        at = answer.find("male")
        for scorer in ("published", "tokens"):
            score = ScoreRecord(
                trial_key=key, scorer=scorer, version="1",
                target_positive=hit and (scorer == "published" or n > 0), correct=not hit,
                abstained=False, stance="mentions" if hit else "absent",
                evidence=(Evidence(label="wanted", start=at, stop=at + 4),) if at >= 0 else (),
            )  # fmt: skip
            store.append("scores", f"{key}:{scorer}", score)


@pytest.fixture(scope="module")
def import_(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    store = build_imported(tmp_path_factory.mktemp("import"))
    write_reports(store.path)
    return store


def test_without_a_defense_the_page_leads_with_the_levels_under_attack(import_: RunFolder) -> None:
    source = (import_.path / "report.html").read_text(encoding="utf-8")
    text = " ".join(Page(source).text)
    assert "Without a defense, strong" in text
    assert "no defense was compared" in text
    for part in ("The undefended system, clean and under attack", "small/hot<b>: weak",
                 "6 of 15 successes by published vanish under tokens"):  # fmt: skip
        assert part in re.sub(r"(?<=[/_]) ", "", text), part
    for gone in ("What each defense prevents", "Effects with their intervals", "Context comp"):
        assert gone not in text
    for quoted in re.findall(r'<mark class="k0">([^<]*)</mark>', source):
        assert quoted == "male"
    assert source.count('<mark class="k0">') == 2
    assert not {tag for tag, _ in Page(source).tags} & {"img", "b", "iframe"}


def test_without_clean_answers_there_is_a_page_that_says_so(tmp_path: Path) -> None:
    store = build_imported(tmp_path, clean=False)
    for path in write_reports(tmp_path).values():
        text = path.read_text(encoding="utf-8")
        assert "what the attack adds is not known" in text
        assert "6 of 6 comparisons lack answers on clean retrieval" in text
    data = records(store)
    assert {letter for record in data["records"] for letter in record[7]} == {"+", "-"}


def test_records_carry_their_setting_and_share_their_clean_trials(import_: RunFolder) -> None:
    data = records(import_)
    assert data["settings"] == ["big/nq", "small/hot<b>", "small/nq"]
    assert len(data["records"]) == 3 * 2 * 4
    assert len(data["trials"]) == 3 * 3 * 4
    assert {data["settings"][data["cells"][record[1]][0]] for record in data["records"]} == set(
        data["settings"]
    )
    strong = [
        r for r in data["records"] if data["pairs"][data["cells"][r[1]][1]][1] == 5
    ]  # fmt: skip
    assert sorted(record[7] for record in strong) == ["I-"[::-1]] * 3 + ["II"] * 9
    assert data["trials"][strong[0][5]]["st"] == ["mentions", "mentions"]


@pytest.mark.slow
def test_in_a_browser_the_settings_can_be_filtered(import_: RunFolder, tmp_path: Path) -> None:
    hash_ = "#records?rule=published&setting=small%2Fhot%3Cb%3E&class=I"
    document, log = dom(import_.path / "report.html", hash_, tmp_path / "profile")
    assert "CONSOLE" not in log, [line for line in log.splitlines() if "CONSOLE" in line]
    assert '<p class="found" id="found" role="status">5 records of 4 queries</p>' in document
    options = re.findall(r"<option[^>]*>([^<]*)</option>", document)
    assert {"induced by the attack (5)", "rules disagree (2)", "all (8)"} <= set(options)
    assert "target-positive by tokens: no (mentions); published: yes (mentions)" in document
    assert ">Not run.<" not in document
    assert re.search(r'<label hidden="">Defense', document)
    assert "img" not in {tag for tag, _ in Page(document).tags}


# -------------------------------------------------------------------------------- the browser


def dom(path: Path, hash_: str, profile: Path) -> tuple[str, str]:
    """Open a page in headless Chromium and return its document and the log."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    try:
        done = subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu",
             f"--user-data-dir={profile}", "--disable-background-networking",
             "--enable-logging=stderr", "--virtual-time-budget=2000", "--dump-dom",
             f"{path.as_uri()}{hash_}"],
            capture_output=True, text=True, encoding="utf-8", timeout=60, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip("chromium does not answer here")
    if done.returncode or "<html" not in done.stdout:
        pytest.skip(f"chromium does not run here (exit code {done.returncode})")
    return done.stdout, done.stderr


@pytest.mark.slow
def test_in_a_browser_nothing_runs_but_the_records_and_they_agree(
    run: RunFolder, tmp_path: Path
) -> None:
    hash_ = "#records?rule=rule&defense=trust%3Cb%3Erag&attack=att&p=2&class=P"
    document, log = dom(run.path / "report.html", hash_, tmp_path / "profile")
    assert "CONSOLE" not in log, [line for line in log.splitlines() if "CONSOLE" in line]
    shown = Page(document)
    assert '<p class="found" id="found" role="status">3 records</p>' in document
    options = re.findall(r"<option[^>]*>([^<]*)</option>", document)
    assert {"prevented (3)", "introduced (2)", "harmed on clean (1)", "all (10)"} <= set(options)
    assert document.count('role="option"') == 3
    assert document.count('class="answer') >= 4
    assert re.search(rf'<mark class="k0"[^>]*>{WRONG}</mark>', document)
    assert "own poison" in document
    assert '<span class="ctl">' in document
    assert "img" not in {tag for tag, _ in shown.tags}
    assert len(shown.scripts) == 2
