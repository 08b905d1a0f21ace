"""The gate's result as SARIF 2.1.0, which code scanning shows beside a pull request.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) 2.1.0; sections 3.27.9 and 3.27.10
for ``kind`` and ``level``: a result that is not a failure has the level ``none``, and what could
not be decided is ``open``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ragassay import __version__
from ragassay.canon import digest
from ragassay.gate.evaluation import Check, GateResult
from ragassay.gate.rules import METRICS
from ragassay.report import gate as told
from ragassay.report.text import visible
from ragassay.taxonomy import FRAMEWORKS, THREATS

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_KINDS = {"pass": ("pass", "none"), "fail": ("fail", "error"), "undecided": ("open", "none")}
_MAX = 500


def sarif(result: GateResult) -> str:
    """Write the result as SARIF: a rule for each metric, a result for each check.

    A result points at the line of the rules file, or at the run's experiment file where rules were
    given on the command line.
    """
    used = [name for name in METRICS if any(c.rule.metric.name == name for c in result.checks)]
    ids = sorted({each for check in result.checks for each in check.threats if each in THREATS})
    taxonomies = [
        {
            "name": name, "version": version, "informationUri": url, "organization": framework,
            "shortDescription": {"text": f"{name} {version}"},
            "taxa": [
                {"id": each, "name": THREATS[each].name, "helpUri": THREATS[each].url,
                 "shortDescription": {"text": THREATS[each].name}}
                for each in ids if THREATS[each].framework == framework
            ],
        }
        for framework, (name, version, url) in FRAMEWORKS.items()
        if any(THREATS[each].framework == framework for each in ids)
    ]  # fmt: skip
    driver: dict[str, Any] = {
        "name": "ragassay", "version": __version__, "semanticVersion": __version__,
        "rules": [_rule(name) for name in used],
    }  # fmt: skip
    if taxonomies:
        driver["supportedTaxonomies"] = [
            {"name": each["name"], "index": i} for i, each in enumerate(taxonomies)
        ]
    plain = result.plain()
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "results": [
            _result(result, check, shown, used, taxonomies)
            for check, shown in zip(result.checks, plain["checks"], strict=True)
        ],
        "columnKind": "unicodeCodePoints",
        "properties": {"verdict": result.verdict, "level": result.level},
    }
    if taxonomies:
        run["taxonomies"] = taxonomies
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _rule(name: str) -> dict[str, Any]:
    metric = METRICS[name]
    return {
        "id": f"ragassay/{name}", "name": "".join(part.title() for part in name.split("_")),
        "shortDescription": {"text": f"{name} ({metric.symbol}): {metric.text}."},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["security", "rag", "poisoning"], "precision": "high"},
    }  # fmt: skip


def _result(
    result: GateResult,
    check: Check,
    shown: Mapping[str, Any],
    used: list[str],
    taxonomies: list[dict[str, Any]],
) -> dict[str, Any]:
    kind, level = _KINDS[check.verdict]
    text = (
        f"{visible(check.rule.text, limit=_MAX)}: {check.verdict}. {told.estimate(shown)} "
        f"({told.span(result.plain())}) at {told.where(shown)}; {told.sample(shown)}; "
        f"{told.why(shown)}."
    )
    uri = check.rule.path or f"{result.run}/experiment.toml"
    found: dict[str, Any] = {
        "ruleId": f"ragassay/{check.rule.metric.name}",
        "ruleIndex": used.index(check.rule.metric.name),
        "kind": kind,
        "level": level,
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(uri, safe="/:")},
                    "region": {"startLine": max(1, check.rule.line)},
                }
            }
        ],
        "partialFingerprints": {
            "ragassayCheck/v1": digest([check.rule.text, shown["place"]])[:32]
        },
        "properties": {
            "estimate": check.estimate, "interval": shown["interval"], "n": check.n,
            "groups": check.groups, "moreQueries": check.more,
        },
    }  # fmt: skip
    taxa = [
        {"id": each["id"], "index": i, "toolComponent": {"name": one["name"], "index": t}}
        for t, one in enumerate(taxonomies)
        for i, each in enumerate(one["taxa"])
        if each["id"] in check.threats
    ]
    if taxa:
        found["taxa"] = taxa
    return found
