"""Every measurement that needs no model works at its small size; page and verdicts follow."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
PAGE = BENCH.parent / "docs" / "explanation" / "speed.md"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location("bench_run", BENCH / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["search", "encoding", "intervals", "defenses", "report", "arena"])
def test_a_measurement_works_at_its_small_size(name: str, tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, str(BENCH / "run.py"), "--quick", "--only", name, "--out", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert len(rows) == len(done.stdout.splitlines()) > 0
    for row in rows.values():
        if row["value"] is None:  # something optional is missing: it says what to install
            assert "not installed" in row["note"]
        else:
            assert row["value"] >= 0
            wanted = row["value"] >= row["target"] if row["kind"] == "at least" else (
                row["value"] <= row["target"]
            )  # fmt: skip
            assert row["met"] == wanted


def test_ways_take_turns_and_the_ratio_is_a_median(runner: ModuleType) -> None:
    import side_by_side

    calls: list[str] = []
    seconds = side_by_side.take_turns(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3
    )
    assert calls == ["a", "b"] * 4  # one round is for warming up
    assert [len(each) for each in seconds.values()] == [3, 3]
    assert side_by_side.ratio({"a": [2.0, 9.0, 8.0], "b": [1.0, 3.0, 2.0]}, "a", "b") == 3.0


def test_the_page_holds_what_was_measured_and_keeps_its_prose(
    runner: ModuleType, tmp_path: Path
) -> None:
    from dataclasses import replace

    page = tmp_path / "speed.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    before = page.read_text(encoding="utf-8").split(runner.BEGIN)[0]
    [(_, rows)] = [runner.MEASUREMENTS["search"]]
    found = [replace(rows[0], value=7.5), replace(rows[1], value=1.9), replace(rows[2], note="no")]
    results = {"machine": runner.machine(), "rows": {r.name: runner.plain(r) for r in found}}
    runner.write_page(page, results)
    runner.write_page(page, results)  # what is generated is replaced, not added
    text = page.read_text(encoding="utf-8")
    assert text.startswith(before)
    assert text.count(rows[0].what) == 1
    assert "| 7.5 times | at least 6 | yes |" in text
    assert "| 1.9 times | at most 1.7 | no |" in text
    assert "| not measured |" in text


def test_a_failed_measurement_is_no_figure(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*, quick: bool) -> None:
        raise RuntimeError("no luck")

    rows = runner.MEASUREMENTS["tokens"][1]
    monkeypatch.setitem(runner.MEASUREMENTS, "tokens", (broken, rows))
    out = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "tokens", "--out", str(out),
                                      "--page", str(tmp_path / "page.md")])  # fmt: skip
    (tmp_path / "page.md").write_text(f"x\n{runner.BEGIN}\n{runner.END}\n", encoding="utf-8")
    runner.main()
    [row] = json.loads(out.read_text(encoding="utf-8"))["rows"].values()
    assert row["value"] is None
    assert row["met"] is None
    assert "no luck" in row["note"]
