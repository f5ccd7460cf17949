"""What the reference studies claim, as data, and the rules that hold a run against it."""

from rocelab.claims.judge import Evidence, Judgement, Verdict, judge
from rocelab.claims.model import Claim, ClaimError, all_claims, claims_by_id

__all__ = ["Claim", "ClaimError", "Evidence", "Judgement", "Verdict", "all_claims", "claims_by_id", "judge"]
