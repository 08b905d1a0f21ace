"""The gate's result as JUnit XML, which CI systems show as a list of tests.

Source: the JUnit format as read by Jenkins and GitLab (``testsuites``, ``testsuite``, ``testcase``
with ``failure`` or ``skipped``).

Deviations: an undecided check is ``skipped`` with the reason, since the format has no third
outcome; the exit code of the gate tells it from a pass.
"""

from __future__ import annotations

from xml.etree import ElementTree

from ragassay.gate.evaluation import GateResult
from ragassay.report import gate as told
from ragassay.report.text import visible

_MAX = 500


def junit(result: GateResult) -> str:
    """Write the result as JUnit XML, one test case for each check.

    Characters that XML does not allow are shown as code points, so that hostile names cannot
    break the file.
    """
    plain, counts = result.plain(), result.counts()
    totals = {
        "tests": str(len(result.checks)), "failures": str(counts["fail"]), "errors": "0",
        "skipped": str(counts["undecided"]),
    }  # fmt: skip
    root = ElementTree.Element("testsuites", {"name": "ragassay gate", **totals})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": visible(f"ragassay gate: {result.name}"), **totals, "time": "0"}
    )
    for check in plain["checks"]:
        case = ElementTree.SubElement(
            suite, "testcase",
            {
                "classname": visible(f"ragassay.gate.{check['rule']['metric']['name']}"),
                "name": f"{visible(check['rule']['text'], limit=_MAX)} ({told.where(check)})",
                "time": "0",
            },
        )  # fmt: skip
        text = (
            f"{told.estimate(check)} ({told.span(plain)}), {told.sample(check)}: {told.why(check)}"
        )
        if check["verdict"] == "fail":
            failure = ElementTree.SubElement(case, "failure", {"message": text, "type": "rule"})
            failure.text = text
        elif check["verdict"] == "undecided":
            ElementTree.SubElement(case, "skipped", {"message": f"undecided: {text}"})
        else:
            ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
