"""What came of an acceptance, for programs: JUnit XML, JSON, and text for Prometheus."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby

from rocelab.acceptance.judging import Check, Place
from rocelab.results import RunInfo


def violations(checks: Sequence[Check]) -> list[str]:
    """One line for each that does not pass."""
    return [f"{check.subject}: {check.violation}" for check in checks if not check.passed]


def junit(checks: Sequence[Check], info: RunInfo) -> str:
    """As CI systems read it: a suite for each threshold, a case for each check."""
    root = ET.Element("testsuites", name=f"rocelab accept, run {info.id}")
    for title, members in groupby(checks, key=lambda check: check.threshold):
        of_suite = list(members)
        failures = sum(not check.passed for check in of_suite)
        suite = ET.SubElement(root, "testsuite", name=title, tests=str(len(of_suite)), failures=str(failures))
        suite.set("timestamp", info.started_at)
        for check in of_suite:
            case = ET.SubElement(suite, "testcase", classname=title, name=check.subject)
            if check.violation is not None:
                ET.SubElement(case, "failure", message=check.violation).text = check.violation
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def as_json(checks: Sequence[Check], info: RunInfo) -> str:
    """Everything, for whatever reads JSON."""
    found = {
        "schema": 1,
        "run": info.id,
        "study": info.study,
        "passed": all(check.passed for check in checks),
        "checks": [
            {
                "threshold": check.threshold,
                "subject": check.subject,
                "passed": check.passed,
                "violation": check.violation,
                "measured": check.measured,
                "bound": check.bound,
                **({} if check.place is None else _labels(check.place)),
            }
            for check in checks
        ],
    }
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def prometheus(checks: Sequence[Check], info: RunInfo) -> str:
    """For the textfile collector of node_exporter; its names are those of Prometheus' own conventions."""
    lines = [
        *_head("rocelab_acceptance_passed", "Whether a measurement is within its bound."),
        *_lines("rocelab_acceptance_passed", checks, lambda check: float(check.passed)),
        *_head("rocelab_acceptance_measured", "What was measured, in the unit of the label."),
        *_lines("rocelab_acceptance_measured", checks, lambda check: check.measured),
        *_head("rocelab_acceptance_violations", "Checks that did not pass."),
        f"rocelab_acceptance_violations {sum(not check.passed for check in checks)}",
        *_head("rocelab_acceptance_time_seconds", "When the run began."),
        f"rocelab_acceptance_time_seconds {datetime.fromisoformat(info.started_at).timestamp():.3f}",
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, help_text: str) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]


def _lines(name: str, checks: Sequence[Check], value_of: object) -> list[str]:
    assert callable(value_of)
    found: dict[str, float] = {}
    for check in checks:
        value = value_of(check)
        if value is not None:
            labels = {"threshold": check.threshold, **({} if check.place is None else _labels(check.place))}
            text = ",".join(f'{label}="{_escaped(each)}"' for label, each in labels.items())
            # A measurement that has several bounds passes if it is within all.
            found[text] = min(value, found.get(text, value))
    return [f"{name}{{{labels}}} {value:.10g}" for labels, value in found.items()]


def _labels(place: Place) -> Mapping[str, str | int]:
    return {name: value for name, value in dataclasses.asdict(place).items() if value not in ("", 0)}


def _escaped(value: str | int) -> str:
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
