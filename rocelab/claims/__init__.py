"""What the reference studies claim, as data, and the rules that hold a run against it."""

from rocelab.claims.finding import Evidence, Verdict
from rocelab.claims.judge import Judgement, judge, unreachable
from rocelab.claims.model import (
    Claim,
    ClaimError,
    FigureSeries,
    SourceFigure,
    SourceTable,
    all_claims,
    claims_by_id,
    figures_of,
    tables_of,
)
from rocelab.claims.numbers import linearity
from rocelab.claims.scale import in_source

__all__ = [
    "Claim",
    "ClaimError",
    "Evidence",
    "FigureSeries",
    "Judgement",
    "SourceFigure",
    "SourceTable",
    "Verdict",
    "all_claims",
    "claims_by_id",
    "figures_of",
    "in_source",
    "judge",
    "linearity",
    "tables_of",
    "unreachable",
]
