"""Tables of the documents about claims: what a source says, how it is judged, and what kept runs come to."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from rocelab.claims import (
    Claim,
    Judgement,
    SourceTable,
    TableRow,
    Verdict,
    all_claims,
    claims_by_id,
    in_source,
    null_words,
    tables_of,
)
from rocelab.report.model import RunModel
from rocelab.stats import SIMULATED

#: Where the runs that are kept have no samples for a claim.
_OPEN: Final = "no run is kept; each run judges it"


def claims(source: str, kept: Sequence[RunModel]) -> str:
    """Every claim of a source: where it stands, what it says, what is scaled, and the verdicts of kept runs."""
    rows = []
    for claim in _of(source):
        judged = _judged(claim, kept)
        verdicts = "; ".join(f"{each.verdict_words} ({where}{_held(each)})" for where, each in judged)
        rows.append((claim.id, claim.where, claim.text, _scaled(claim, judged), verdicts or _OPEN))
    return _table(("claim", "where", "what it says", "scaled", "verdict"), rows)


def rules(source: str, _kept: Sequence[RunModel]) -> str:
    """Every claim of a source: how its words are read, by what rule it is judged, and what would contradict it."""
    rows = [(claim.id, claim.reading, " ".join(_rules(claim)), claim.against) for claim in _of(source)]
    return _table(("claim", "read as", "rule", "contradicted by"), rows)


def changes(rows: str, kept: Sequence[RunModel]) -> str:
    """The verdicts of before, from the rows of a CSV, beside those of the same simulated samples now."""
    simulated = [model for model in kept if model.info.fabric == SIMULATED]
    known = {claim.id: claim for claim in all_claims()}
    shown = []
    for row in csv.DictReader(rows.splitlines()):
        now = "; ".join(each.verdict_words for _, each in _judged(known[row["claim"]], simulated))
        shown.append((row["claim"], row["before"], now, row["why"]))
    return _table(("claim", "verdict before", "verdict now", "what changed in the rule"), shown)


def _of(source: str) -> list[Claim]:
    found = [claim for claim in all_claims() if claim.source.id == source]
    if not found:
        names = ", ".join(dict.fromkeys(claim.source.id for claim in all_claims()))
        raise SystemExit(f"there is no source {source!r}; there are {names}")
    return found


def _judged(claim: Claim, kept: Sequence[RunModel]) -> list[tuple[str, Judgement]]:
    """What the runs come to that were made for the claim, and where; together, if none can judge it alone."""
    models = [model for model in kept if claim.id in model.info.claims]
    judged = [(_fabric(model), model.judged(claim)) for model in models]
    if len(models) > 1 and all(each.verdict is Verdict.NOT_CHECKABLE for _, each in judged):
        together = functools.reduce(RunModel.beside, models)
        return [(" and ".join(where for where, _ in judged), together.judged(claim))]
    return judged


def _fabric(model: RunModel) -> str:
    return "simulated" if model.info.fabric == SIMULATED else f"measured, {model.info.study}"


def _held(judged: Judgement) -> str:
    """In how many draws it holds, where the run has draws."""
    certainty = judged.certainty
    if certainty is None or certainty.drawn != "all":
        return ""
    return f"; holds in {certainty.held} of {certainty.count} draws"


def draws(model: RunModel) -> str:
    """Every claim of a simulated run: in how many draws it holds, and what the null model does."""
    rows = []
    for judged in model.judgements:
        certainty = judged.certainty
        if certainty is None:
            continue
        held = f"{certainty.held} of {certainty.count}" if certainty.drawn == "all" else "not drawn"
        passes = "passes" if certainty.null_passes else "fails" if certainty.is_decided else "not held against it"
        rows.append((judged.claim.id, certainty.as_they_are, held, judged.verdict_words, passes))
    table = _table(("claim", "profiles as they are", "draws in which it holds", "verdict", "null model"), rows)
    return f"{table}\n\n{null_words(model.judgements)}"


def _scaled(claim: Claim, judged: Sequence[tuple[str, Judgement]]) -> str:
    if judged:
        return "; ".join(dict.fromkeys(words for _, each in judged for words in each.scaled)) or "nothing"
    sizes = ", ".join(f"{scale.what} {in_source(scale)}" for scale in claim.scales)
    return f"as the study has it; in the source: {sizes}" if sizes else "nothing"


def _rules(claim: Claim) -> Iterator[str]:
    yield claim.rule_text
    if claim.mpi is not None:
        yield f"Through MPI: {claim.mpi.rule_text}"
    if claim.virtual is not None:
        yield f"Simulated: {claim.virtual.rule_text}"
    given = claim.by_construction or (claim.virtual.by_construction if claim.virtual is not None else "")
    if given:
        yield f"By construction, where it holds: {given}"
    for other in claim.otherwise:
        yield f"Other reading, told beside the verdict: {other.reading}."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in lines)


def columns(model: RunModel) -> str:
    """The tables of the sources of a run's claims: seconds, and what each column is to the one that calibrates."""
    made = []
    for table in tables_of(claims_by_id(model.info.claims)):
        head = (table.unit, *(column.name for column in table.columns))
        made.append(_table(head, [(row.name, *_cells(model, table, row)) for row in table.rows]))
    return "\n\n".join(made)


def _cells(model: RunModel, table: SourceTable, row: TableRow) -> Iterator[str]:
    of_row = [sample for sample in model.samples if (sample.test, sample.metric) == (row.test, table.metric)]
    here = {sample.interconnect: sample.value for sample in of_row if sample.value is not None}
    calibrated = next((sample.params.get("calibrated_on") for sample in of_row), None)
    at = next((index for index, column in enumerate(table.columns) if column.interconnect == calibrated), None)
    for index, column in enumerate(table.columns):
        value = here.get(column.interconnect)
        if value is None or at is None:
            yield "none"
        elif index == at:
            yield f"{value:.2f}, calibrated"
        else:
            fixed = here[table.columns[at].interconnect]
            source = row.values[index] / row.values[at] - 1
            yield f"{value:.2f}: {100 * (value / fixed - 1):+.1f} %, source {100 * source:+.1f} %"


CLAIM_TABLES: Final[Mapping[str, Callable[[str, Sequence[RunModel]], str]]] = {"claims": claims, "rules": rules}
"""What a document may ask for of a source, by name."""
