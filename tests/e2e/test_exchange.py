"""Import and export from the command line: a report comes out, or one clear error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NAMES = ("clean-undefended", "poisoned-undefended", "clean-defended", "poisoned-defended")
POSITIVE = {
    "clean-undefended": (),
    "poisoned-undefended": (0, 1, 2, 3, 4, 5),
    "clean-defended": (9,),
    "poisoned-defended": (4, 5, 6),
}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("ragassay")), *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "RAGASSAY_CACHE": str(folder / "cache")},
        capture_output=True, text=True, check=False, timeout=600, encoding="utf-8",
    )  # fmt: skip


def written(folder: Path, n: int = 10) -> list[str]:
    """Four invented files whose transitions are known: P = 4, J = 1, H = +1 of 10."""
    for name in NAMES:
        lines = [
            {
                "query_id": f"q{i}",
                "group_id": f"g{i // 2}",
                "question": f"Who built harbor {i}?",
                "target": f"rival{i}",
                "references": [f"mason{i}"],
                "answer": f"It was {'rival' if i in POSITIVE[name] else 'mason'}{i}.",
            }
            for i in range(n)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return [part for name in NAMES for part in (f"--{name}", f"{name}.jsonl")]


def cell(folder: Path, scorer: str = "tokens") -> dict[str, Any]:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    [found] = [c for c in summary["cells"] if c["scorer"] == scorer and c["defense"] != "none"]
    return found


def test_four_files_give_a_report_with_the_known_transitions(tmp_path: Path) -> None:
    done = run(
        tmp_path, "import", *written(tmp_path), "--method", "Vote", "--attack", "flood",
        "--budget", "5", "--out", "run",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "40 answers to 10 queries" in done.stdout
    found = cell(tmp_path / "run")
    assert (found["attack"], found["budget"], found["defense"]) == ("flood", 5, "Vote")
    counts = {name: found["effects"][name]["count"] for name in ("P", "J", "N", "H", "Gamma")}
    assert counts == {"P": 4, "J": 1, "N": 3, "H": 1, "Gamma": 4}
    assert found["groups"] == 5
    for name in ("report.html", "report.md"):
        assert (tmp_path / "run" / name).stat().st_size > 1000
    again = run(tmp_path, "report", "run")
    assert again.returncode == 0, again.stderr


def test_what_was_exported_imports_to_the_same_figures(tmp_path: Path) -> None:
    options = ["--method", "Vote", "--attack", "flood", "--budget", "5"]
    assert run(tmp_path, "import", *written(tmp_path), *options, "--out", "run").returncode == 0
    done = run(tmp_path, "export", "run", "--out", "back", "--scores", "tokens")
    assert done.returncode == 0, done.stderr
    assert "40 answers: flood, p=5" in done.stdout
    assert len((tmp_path / "back" / "scores.csv").read_text("utf-8").splitlines()) == 41
    files = [part for name in NAMES for part in (f"--{name}", f"back/{name}.jsonl")]
    assert run(tmp_path, "import", *files, *options, "--out", "run2").returncode == 0
    done = run(tmp_path, "export", "run", "--out", "records.json", "--format", "joined")
    assert done.returncode == 0, done.stderr
    done = run(tmp_path, "import", "records.json", "--out", "run3")
    assert done.returncode == 0, done.stderr
    assert cell(tmp_path / "run") == cell(tmp_path / "run2") == cell(tmp_path / "run3")


def test_a_csv_with_named_columns_and_several_defenses_is_imported(tmp_path: Path) -> None:
    header = "nr,question,answer,target,arm,guard"
    lines = [
        f"{i},Who built harbor {i}?,{said}{i},rival{i},{arm},{guard}"
        for i in range(4)
        for arm, said in (("dry", "mason"), ("wet", "rival"))
        for guard in ("none", "Vote", "Trim")
    ]
    (tmp_path / "long.csv").write_text("\n".join([header, *lines]), encoding="utf-8")
    done = run(
        tmp_path, "import", "long.csv", "--map", "query_id=nr", "--map", "retrieval=arm",
        "--map", "defense=guard", "--value", "dry=clean", "--value", "wet=poisoned", "--out", "run",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["defenses"] == ["Trim", "Vote"]
    assert summary["trials"]["done"] == 24


def test_files_that_do_not_match_up_leave_nothing_behind(tmp_path: Path) -> None:
    arguments = written(tmp_path)
    path = tmp_path / "poisoned-defended.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines[:3], *lines[4:], lines[4]]), encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    done = run(tmp_path, "import", *arguments, "--out", "run")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert "poisoned-defended.jsonl:10: query 'q4' has another answer" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before
    path.write_text("".join([*lines[:3], *lines[4:]]), encoding="utf-8")
    done = run(tmp_path, "import", *arguments, "--out", "run")
    assert done.returncode == 3
    assert "query 'q3' has no answer in poisoned-defended.jsonl" in done.stderr
    done = run(tmp_path, "import", *arguments, "--out", "run", "--allow-missing")
    assert done.returncode == 0, done.stderr
    assert "1 answers are missing" in done.stdout
    assert cell(tmp_path / "run")["dropped"]["missing"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("import", "--out", "run"), 2, "name the file of all answers, or --clean-undefended"),
        (("import", "no.jsonl", "--out", "run"), 3, "no such file"),
        (("import", "x.csv", "--map", "answer", "--out", "run"), 2, "expected NAME=VALUE"),
        (("import", "x.csv", "--ignore", "a", "--out", "run"), 2, "give one file of all answers"),
        (("export", "nothing", "--out", "x"), 4, "has no resolved.json"),
    ],
)
def test_a_wrong_command_ends_with_one_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_run_of_our_own_is_exported_and_imported_with_the_same_effects(world: Any) -> None:
    done = world.run("run", "world.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    choice = ["--attack", "poisonedrag", "--budget", "3", "--defense", "keywordagg"]
    done = world.run("export", "run", "--out", "records.json", "--format", "joined", *choice)
    assert done.returncode == 0, done.stderr
    done = world.run("import", "records.json", "--out", "back")
    assert done.returncode == 0, done.stderr

    def effects(run: str) -> dict[str, Any]:
        [found] = [
            c for c in world.summary(run)["cells"]
            if (c["scorer"], c["defense"], c["budget"]) == ("published", "keywordagg", 3)
        ]  # fmt: skip
        return {name: effect["count"] for name, effect in found["effects"].items()}

    assert effects("run") == effects("back")
    assert effects("run")["N"] != 0
