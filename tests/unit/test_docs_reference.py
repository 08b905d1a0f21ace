"""The reference pages say what the code says; neither can change without the other."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import ragassay
from ragassay import config, errors, plugins, store, testing, types
from ragassay.cli import app
from ragassay.experiments.runner import RunResult

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
MODELS: dict[str, type[BaseModel]] = {
    "Top level": config.ExperimentFile,
    "[dataset]": config.Part,
    "[retriever]": config.RetrieverPart,
    "[generator]": config.GeneratorPart,
    "[helper]": config.GeneratorPart,
    "[language_model]": config.LanguageModelPart,
    "[prompt]": config.PromptPart,
    "[[attack]]": config.AttackPart,
    "[paraphrases]": config.ParaphrasesPart,
    "[dose]": config.DosePart,
    "[[defense]]": config.Part,
    "[[system]]": config.Part,
    "[calibration]": config.CalibrationPart,
    "[evidence]": config.EvidencePart,
    "[utility]": config.UtilityPart,
    "[tax]": config.TaxPart,
    "[arena]": config.ArenaPart,
    "[ladder]": config.LadderPart,
    "[scoring]": config.ScoringPart,
    "[statistics]": config.StatisticsPart,
    "[run]": config.RunPart,
}
PLUGINS = [(kind, name) for kind in plugins.KINDS for name in plugins.names(kind)
           if name != "outside_shortest"]  # fmt: skip


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def sections(text: str, level: int) -> dict[str, str]:
    """Heading (without its id) to the text below it, up to the next of the same level."""
    parts = re.split(rf"^{'#' * level} (.+)$", text, flags=re.M)
    return {
        re.sub(r"\s*\{ *#.*\}$", "", head).strip(): body
        for head, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def rows(text: str) -> list[list[str]]:
    """The rows of all tables whose first cell is code."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("| `")
    ]


def bare(cell: str) -> str:
    return cell.strip().strip("`").replace("\\|", "|")


def shown(value: Any) -> str:
    """How a default stands in a table: as in TOML."""
    if value is None or value is PydanticUndefined:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, config.Part):
        return shown(value.plugin)
    return repr(value)


# ---------------------------------------------------------------------- the experiment file


@pytest.mark.parametrize("heading", MODELS)
def test_every_key_of_the_experiment_file_is_documented_with_its_default(heading: str) -> None:
    body = sections(read(REFERENCE / "experiment-file.md"), 2)[heading]
    documented = {bare(row[0]): bare(row[2]) for row in rows(body)}
    expected = {}
    for name, field in MODELS[heading].model_fields.items():
        if field.is_required():
            expected[name] = "required"
        elif isinstance(field.default, BaseModel):
            expected[name] = f"[{name}]"
        else:
            expected[name] = shown(field.default)
    assert documented == expected


def test_every_section_of_the_experiment_file_is_checked() -> None:
    headings = sections(read(REFERENCE / "experiment-file.md"), 2)
    assert set(headings) == {*MODELS, "Overrides"}
    tables = set(config.ExperimentFile.model_fields) - {"protocol", "name", "seed", "budgets"}
    assert tables == {heading.strip("[]") for heading in MODELS} - {"Top level"}


# ------------------------------------------------------------------------- the command line


def commands() -> Iterator[tuple[str, Any]]:
    def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield path, command
        for name, child in getattr(command, "commands", {}).items():
            yield from walk(f"{path} {name}", child)

    return walk("ragassay", typer.main.get_command(app))


def options(command: Any) -> set[str]:
    flags = [flag for param in command.params for flag in param.opts if flag.startswith("-")]
    return set(flags) - {"--help"}


def test_every_command_and_option_is_documented() -> None:
    text = read(REFERENCE / "command-line.md")
    pages = sections(text, 2)
    documented = {head: body for head, body in pages.items() if head.startswith("ragassay ")}
    tree = dict(commands())
    assert set(documented) == set(tree)
    for path, command in tree.items():
        assert {bare(row[0]) for row in rows(documented[path])} == options(command), path
        assert command.help, f"{path} has no help"
    root = typer.main.get_command(app)
    head = text.split("\n## ")[0]
    assert {bare(row[0]) for row in rows(head)} == options(root) | {"--help"}


def test_every_exit_code_is_documented() -> None:
    body = sections(read(REFERENCE / "command-line.md"), 2)["Exit codes"]
    documented = dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", body, re.M))
    found = {(int(code), name) for code, name in re.findall(r"^\| (\d+) \| `(\w+)`", body, re.M)}
    expected = {
        (value.exit_code, name)
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.RagassayError)
    }
    assert documented
    assert found == expected


# ------------------------------------------------------------------------------- plug-ins


def plugin_sections() -> dict[tuple[str, str], str]:
    kinds = {"Attacks": "attack", "Data sets": "dataset", "Defenses": "defense",
             "Encoders": "encoder", "Generators": "generator", "Retrievers": "retriever",
             "Label rules": "scorer", "Systems": "system", "Tampering rules": "tamper"}  # fmt: skip
    found = {}
    for heading, body in sections(read(REFERENCE / "plug-ins.md"), 2).items():
        if heading in kinds:
            for name, text in sections(body, 3).items():
                found[kinds[heading], bare(name)] = text
    return found


def test_exactly_the_registered_plug_ins_are_documented() -> None:
    assert set(plugin_sections()) == set(PLUGINS)


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=[":".join(each) for each in PLUGINS])
def test_the_options_of_a_plug_in_are_documented_with_their_defaults(
    kind: plugins.Kind, name: str
) -> None:
    about = plugins.describe(plugins.find(kind, name))
    expected = {
        option["name"]: (
            option["type"].replace("'", '"'),
            "required" if option["required"] else shown(option["default"]),
        )
        for option in about["options"]
        if not option["name"].startswith("_")
    }
    documented = {
        bare(row[0]): (bare(row[1]).replace("'", '"'), bare(row[2]))
        for row in rows(plugin_sections()[kind, name])
    }
    assert documented == expected


@pytest.mark.parametrize("name", plugins.names("attack"))
def test_the_declared_knowledge_of_an_attack_is_documented(name: str) -> None:
    text = plugin_sections()["attack", name]
    knowledge = plugins.describe(plugins.find("attack", name))["knowledge"]
    stated = re.search(r"^Knowledge: (.+)$", text, re.M)
    assert stated is not None
    if knowledge is None:  # it depends on the options
        assert stated[1] == "that of the attack that crafted the file."
        return
    expected = {f"{f.name}={shown(getattr(knowledge, f.name))}".replace('"', "")
                for f in dataclasses.fields(knowledge)}  # fmt: skip
    assert set(re.findall(r"`([^`]+)`", stated[1])) == expected


def test_the_readme_names_every_plug_in() -> None:
    box = sections(read(ROOT / "README.md"), 2)["What is in the box"]
    named = {name for row in box.splitlines() if row.startswith("| ")
             for name in re.findall(r"`(\w+)`", row.split("|")[2])}  # fmt: skip
    assert named == {name for _, name in PLUGINS}


def test_the_options_of_the_server_how_to_have_the_stated_defaults() -> None:
    body = sections(read(DOCS / "how-to" / "servers.md"), 2)["Retries and time-outs"]
    about = plugins.describe(plugins.find("generator", "openai"))
    defaults = {option["name"]: option["default"] for option in about["options"]}
    stated = {bare(row[0]): float(row[1]) for row in rows(body)}
    assert len(stated) == 4
    assert stated == {name: defaults[name] for name in stated}


# ------------------------------------------------------------------- values, API, statistics


def test_the_streams_and_fields_of_a_run_folder_are_documented() -> None:
    text = read(REFERENCE / "run-folder.md")
    files = {bare(name) for row in rows(text) for name in row[0].split(",")}
    assert {f"{stream}.jsonl" for stream in store.STREAMS} <= files
    records = sections(sections(text, 2)["Records"], 3)
    for heading, cls in (("trials", types.TrialRecord), ("scores", types.ScoreRecord)):
        documented = {
            name for row in rows(records[heading]) for name in re.findall(r"`(\w+)`", row[0])
        }
        assert documented == {f.name for f in dataclasses.fields(cls)}


def test_the_public_names_are_documented() -> None:
    pages = sections(read(REFERENCE / "python-api.md"), 2)
    documented = {
        name
        for heading in ("Running", "Values")
        for row in rows(pages[heading])
        for name in re.findall(r"`(\w+)", row[0])
    }
    assert documented == set(ragassay.__all__)
    of_testing = {name for row in rows(pages["For tests of plug-ins"])
                  for name in re.findall(r"`(\w+)", row[0])}  # fmt: skip
    assert of_testing == set(testing.__all__)
    result = next(row for row in rows(pages["Running"]) if row[0] == "`RunResult`")
    assert re.findall(r"`(\w+)`", result[1]) == [f.name for f in dataclasses.fields(RunResult)]
    protocols = set(re.findall(r"`(\w+)`", pages["Protocols"]))
    assert all(hasattr(plugins, name) for name in protocols)


def test_the_knowledge_levels_are_documented() -> None:
    table = rows(sections(read(DOCS / "explanation" / "threat-model.md"), 2)["Who can do what"])
    documented = {bare(row[0]): [bare(value) for value in row[1].split(",")] for row in table}
    hints = typing.get_type_hints(types.Knowledge)
    expected = {name: list(typing.get_args(kind)) or ["true", "false"]
                for name, kind in hints.items()}  # fmt: skip
    assert documented == expected


def test_every_dotted_name_in_the_documentation_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    names = {name for page in pages for name in re.findall(r"`(ragassay(?:\.\w+)+)", read(page))}
    assert any(name.startswith("ragassay.stats.") for name in names)
    for name in sorted(names):
        assert exists(name), name


def exists(dotted: str) -> bool:
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        return all((value := getattr(value, part, None)) is not None for part in parts[cut:])
    return False


def test_the_ten_questions_by_hand_have_the_stated_figures() -> None:
    from ragassay.stats.paired import four_conditions

    text = read(DOCS / "explanation" / "why-four-answers.md")
    table = re.findall(r"^\| \d+ \| ([01]) \| ([01]) \| ([01]) \| ([01]) \|", text, re.M)
    labels = np.array(table, dtype=int).astype(bool)
    assert labels.shape == (10, 4)
    assert re.search(r"The column sums are (.+)\.", text)[1] == "1, 2, 6 and 5"  # type: ignore[index]
    assert labels.sum(axis=0).tolist() == [1, 2, 6, 5]
    four = four_conditions(*labels.T)
    stated = {name: int(value) for name, value in
              re.findall(r"^- `(\w+)` = .*?(\d+)/10[:,.]?[^=\n]*$", text, re.M)}  # fmt: skip
    c0, c1, p0, p1 = labels.sum(axis=0).tolist()
    assert (four.prevented, four.introduced) == (stated["P"], stated["J"])
    assert stated == {"P": 3, "J": 2, "N": p0 - p1, "H": c1 - c0, "Gamma": p0 - p1 + c1 - c0}


def test_the_examples_of_label_rules_are_labeled_as_stated() -> None:
    from ragassay.scoring.endorse import Endorse
    from ragassay.scoring.match import PublishedMatch, TokenMatch

    text = read(DOCS / "explanation" / "labels.md")
    examples = re.findall(
        r"^\| ([^|]+) \| ([^|]+) \| (yes|no) \| (yes|no) \| (yes|no) \| (?:yes|no) \|", text, re.M
    )
    assert len(examples) >= 5
    rules = (PublishedMatch(), TokenMatch(), Endorse())
    for wanted, answer, *labels in examples:
        for rule, stated in zip(rules, labels, strict=True):
            record = rule.score(
                trial_key="k",
                query=types.Query(id="q", text="Where was the treaty signed?", group="g"),
                target=types.Target(query_id="q", wanted=(wanted,), references=("Paris",)),
                answer=answer,
                declined=False,
            )
            assert record.target_positive is (stated == "yes"), (wanted, answer, rule)


# ---------------------------------------------------------------------------- architecture


def architecture_test() -> ModuleType:
    path = ROOT / "tests" / "test_architecture.py"
    spec = importlib.util.spec_from_file_location("layers_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documented_layers_are_the_enforced_ones() -> None:
    body = sections(read(DOCS / "architecture.md"), 2)["Layers"]
    documented = {
        name: int(layer)
        for layer, names in re.findall(r"^\| (\d) \| ([^|]+) \|", body, re.M)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert documented == architecture_test().LAYER


def test_the_documented_layout_names_every_module() -> None:
    layout = sections(read(DOCS / "architecture.md"), 2)["Layout"]
    source = ROOT / "src" / "ragassay"
    for path in source.iterdir():
        if path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").exists()):
            assert path.name in layout, path.name
