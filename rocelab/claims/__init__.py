"""What the reference studies claim, as data, and the rules that hold a run against it."""

from rocelab.claims.certainty import Certainty
from rocelab.claims.drawing import judge_with_draws, null_words
from rocelab.claims.finding import Evidence, Number, Verdict
from rocelab.claims.improvements import improvements
from rocelab.claims.judge import Judgement, judge, simulated_tests, unreachable
from rocelab.claims.model import (
    Claim,
    ClaimError,
    FigureSeries,
    Improvement,
    SourceFigure,
    SourceTable,
    SummaryFigure,
    TableRow,
    all_claims,
    claims_by_id,
    figures_of,
    summaries_of,
    tables_of,
)
from rocelab.claims.numbers import linearity
from rocelab.claims.scale import in_source

__all__ = [
    "Certainty",
    "Claim",
    "ClaimError",
    "Evidence",
    "FigureSeries",
    "Improvement",
    "Judgement",
    "Number",
    "SourceFigure",
    "SourceTable",
    "SummaryFigure",
    "TableRow",
    "Verdict",
    "all_claims",
    "claims_by_id",
    "figures_of",
    "improvements",
    "in_source",
    "judge",
    "judge_with_draws",
    "linearity",
    "null_words",
    "simulated_tests",
    "summaries_of",
    "tables_of",
    "unreachable",
]
