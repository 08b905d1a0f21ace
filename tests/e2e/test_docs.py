"""The documentation does what it says: commands run, links resolve, code blocks are valid."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from ragassay import config, plugins
from ragassay.cli import app
from ragassay.config.grid import GridFile
from ragassay.testing import check_attack, check_defense

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
                *DOCS.rglob("*.md")])  # fmt: skip
TUTORIAL = DOCS / "tutorial" / "first-evaluation.md"
BIN = Path(sys.executable).parent
_FENCE = re.compile(r"^```(\w*)[ \t]*(?:title=\"([^\"]*)\")?\n(.*?)^```[ \t]*$", re.M | re.S)
_HEADING = re.compile(r"^#{1,6} (.+?)(?:[ \t]*\{ *#([\w-]+) *\})?[ \t]*$", re.M)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_NEEDED: dict[str, Any] = {
    "name": "x", "dataset": {"plugin": "atlas"}, "generator": {"plugin": "smollm2"},
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.title or self.text.splitlines()[0][:60]}"


@dataclass(frozen=True)
class Step:
    """A command of a page, and lines that its output must hold."""

    command: str
    promised: tuple[str, ...]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> list[Block]:
    found = [Block(page, *match.groups(default="")) for match in _FENCE.finditer(read(page))]
    return [block for block in found if block.language in languages]


def steps(block: Block) -> list[Step]:
    result: list[Step] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            result.append(Step(line[2:], ()))
        elif line.strip():
            last = result.pop()
            result.append(Step(last.command, (*last.promised, line)))
    return result


def squeezed(text: str) -> str:
    return " ".join(text.split())


def prose(page: Path) -> str:
    return _FENCE.sub("", read(page))


def ids_of_headings(page: Path) -> set[str]:
    ids = set()
    for text, given in _HEADING.findall(prose(page)):
        slug = re.sub(r"[^\w\s-]", "", text).strip().lower()
        ids.add(given or re.sub(r"[-\s]+", "-", slug))
    return ids


def commands_of(page: Path) -> list[str]:
    """All complete ``ragassay`` command lines in the blocks of a page."""
    lines = [step.command for block in blocks(page, "console") for step in steps(block)]
    lines += [line for block in blocks(page, "bash") for line in block.text.splitlines()]
    found = (re.search(r"(?:^|\s)ragassay (.+?)(?: && .*)?$", line) for line in lines)
    return [match[1] for match in found if match]


def parse(words: list[str]) -> None:
    """Parse a command line as the program would, and run nothing."""
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    command.make_context("ragassay", words)


def own_environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "RAGASSAY_CACHE": str(folder / "cache"), "COLUMNS": "160",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}  # fmt: skip


# ----------------------------------------------------------------------------- the tutorial


@dataclass(frozen=True)
class Walk:
    """The tutorial, walked through: its folder and what every command printed."""

    folder: Path
    done: list[tuple[Step, subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    folder = tmp_path_factory.mktemp("tutorial")
    done = []
    for block in blocks(TUTORIAL, "toml", "python", "console"):
        if block.language != "console":
            (folder / block.title).write_text(block.text, encoding="utf-8")
            continue
        for step in steps(block):
            finished = subprocess.run(
                shlex.split(step.command), cwd=folder, env=own_environment(folder),
                capture_output=True, text=True, encoding="utf-8", check=False, timeout=600,
            )  # fmt: skip
            done.append((step, finished))
    return Walk(folder, done)


def test_every_command_of_the_tutorial_succeeds_and_prints_what_is_promised(walk: Walk) -> None:
    assert len(walk.done) >= 6
    for step, finished in walk.done:
        assert finished.returncode == 0, f"{step.command}\n{finished.stderr}"
        for line in step.promised:
            assert squeezed(line) in squeezed(finished.stdout), f"{step.command}\n{finished.stdout}"


def test_the_tutorial_run_shows_what_the_tutorial_says(walk: Walk) -> None:
    summary = json.loads(read(walk.folder / "runs" / "first" / "summary.json"))
    cells = {(c["defense"], c["budget"]): c for c in summary["cells"] if c["scorer"] == "tokens"}
    for budget in (1, 5):
        rates = cells["none", budget]["rates"]
        assert rates["p0"]["count"] > rates["c0"]["count"]
        assert cells["cautious prompt", budget]["effects"]["N"]["count"] == 0
    prevented = {place: cell["effects"]["P"]["count"] for place, cell in cells.items()}
    assert prevented["KeywordAgg", 1] > 0 == prevented["KeywordAgg", 5]
    assert prevented["score gap", 1] > prevented["score gap", 5] > 0
    abstained = cells["score gap", 5]["abstained"]
    assert abstained["c1"]["count"] > abstained["c0"]["count"]


def test_the_keys_of_summary_json_are_the_documented_ones(walk: Walk) -> None:
    summary = json.loads(read(walk.folder / "runs" / "first" / "summary.json"))
    section = read(DOCS / "reference" / "run-folder.md").split("\n## summary.json\n")[1]
    tables = dict(re.findall(r"^(.*):\n\n((?:\|.*\n)+)", section, re.M))
    assert keys_of_table(tables["Top level"]) == set(summary)
    cell = tables["A cell"]
    for each in summary["cells"]:
        assert keys_of_table(cell) == set(each)
        assert set(each["dropped"]) <= set(re.findall(r"`(\w+)`", cell))


def test_the_files_of_a_run_are_the_documented_ones(walk: Walk) -> None:
    table = read(DOCS / "reference" / "run-folder.md").split("\n## Records\n")[0]
    present = {path.name for path in (walk.folder / "runs" / "first").iterdir()}
    passing = {".lock", ".index", ".index/"}  # a cache that only some commands leave
    assert present - passing == keys_of_table(table) - passing


def keys_of_table(text: str) -> set[str]:
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "reference" / "python-api.md"],
                         ids=lambda page: page.name)  # fmt: skip
def test_the_python_examples_run_as_they_stand(page: Path, walk: Walk) -> None:
    examples = [b.text for b in blocks(page, "python") if "load_experiment" in b.text]
    assert examples
    for example in examples:
        finished = subprocess.run(
            [sys.executable, "-c", example.replace("examples/demo.toml", "first.toml")],
            cwd=walk.folder, env=own_environment(walk.folder), capture_output=True, text=True,
            encoding="utf-8", check=False, timeout=600,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.strip()


# ------------------------------------------------------------------- commands, links, blocks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_documented_command_line_parses(page: Path) -> None:
    for command in commands_of(page):
        words = shlex.split(command, comments=True)
        try:
            parse(words)
        except Exception as error:
            pytest.fail(f"ragassay {command}: {error}")
    for command in re.findall(r"`ragassay ([^`\n]+)`", prose(page)):
        names = [word for word in command.split() if word.isalpha() and word.islower()]
        tree: Any = typer.main.get_command(app)
        while names and hasattr(tree, "commands"):
            assert names[0] in tree.commands, f"`ragassay {command}`: no command {names[0]!r}"
            tree, names = tree.commands[names[0]], names[1:]


def test_the_documentation_shows_commands_to_check() -> None:
    assert sum(len(commands_of(page)) for page in PAGES) > 20


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", read(ROOT / "Makefile"), re.M))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"(?:^|`)make ([a-z]+)(?=[ `\n])", read(page), re.M)
    }
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_internal_link_resolves(page: Path) -> None:
    for link in _LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.is_file(), f"{link}: no such file"
        if DOCS in page.parents:
            assert DOCS in target.parents, f"{link} leaves docs/, the site has no such page"
        if anchor:
            assert anchor in ids_of_headings(target), f"{link}: no such heading"


def test_every_page_is_in_the_navigation_and_every_entry_exists() -> None:
    entries = re.findall(r": ([\w/-]+\.md)$", read(ROOT / "mkdocs.yml"), re.M)
    pages = [str(page.relative_to(DOCS).as_posix()) for page in DOCS.rglob("*.md")]
    assert sorted(entries) == sorted(pages)


def test_no_blank_is_left_in_a_page() -> None:
    blanks = [f"{page.name}: {blank}" for page in PAGES
              for blank in re.findall(r"@@[A-Z_]+@@", read(page))]  # fmt: skip
    assert not blanks


@pytest.mark.parametrize("block", [b for p in PAGES for b in blocks(p, "toml")], ids=str)
def test_experiment_blocks_are_valid_and_name_known_options(block: Block) -> None:
    tree = tomllib.loads(block.text)
    if "project" in tree:
        return
    if "corpus" in tree:  # the file of a grid, with an experiment inside
        tree = {**GridFile.model_validate(tree).experiment, "protocol": "ladder"}
    file = config.parse({**_NEEDED, **tree}, str(block))
    for kind, parts in {
        "dataset": [file.dataset], "retriever": file.retriever, "attack": file.attack,
        "generator": [*file.generator, *([file.helper] if file.helper else [])],
        "defense": file.defense, "scorer": file.scoring.rules,
    }.items():  # fmt: skip
        for part in parts:
            if ".py:" not in part.plugin:
                about = plugins.describe(plugins.find(kind, part.plugin))  # type: ignore[arg-type]
                assert set(part.options) <= {option["name"] for option in about["options"]}


@pytest.mark.parametrize("block", [b for p in PAGES for b in blocks(p, "python")], ids=str)
def test_python_blocks_are_valid(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize(
    ("page", "count"),
    [(DOCS / "how-to" / "own-defense.md", 4), (DOCS / "how-to" / "own-attack.md", 2),
     (ROOT / "README.md", 1)],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)  # fmt: skip
def test_the_plug_ins_that_pages_show_keep_their_contract(
    page: Path, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = []
    for block in [block for block in blocks(page, "python") if block.title]:
        (tmp_path / block.title).write_text(block.text, encoding="utf-8")
        modules.append(block.title.removesuffix(".py"))
    monkeypatch.syspath_prepend(str(tmp_path))
    checked = 0
    for module in map(importlib.import_module, modules):
        for value in [v for v in vars(module).values() if callable(v)]:
            if getattr(value, "__module__", "") != module.__name__:
                continue
            if value.__name__.startswith("test_"):
                value()
            elif hasattr(value, "apply"):
                check_defense(value(), replies="Ottawa")
            elif hasattr(value, "craft"):
                check_attack(value())
            checked += 1
    for loaded in modules:
        sys.modules.pop(loaded, None)
    assert checked == count


def test_the_data_of_the_how_to_page_are_accepted(tmp_path: Path) -> None:
    page = DOCS / "how-to" / "own-data.md"
    for block in blocks(page, "json", "toml", "text"):
        if "/" in block.title or block.title == "mydata.toml":
            path = tmp_path / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
    for command in ("data check", "plan"):
        finished = subprocess.run(
            [str(BIN / "ragassay"), *command.split(), "mydata.toml"], cwd=tmp_path,
            env=own_environment(tmp_path), capture_output=True, text=True, encoding="utf-8",
            check=False, timeout=600,
        )  # fmt: skip
        assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "4 trials: 2 questions" in squeezed(finished.stdout) or "8 trials" in finished.stdout


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed (make docs)")
    finished = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file",
         str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path / "site")],
        capture_output=True, text=True, encoding="utf-8", check=False, timeout=600,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
