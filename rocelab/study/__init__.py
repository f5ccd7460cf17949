"""Studies: what a study file may say, the plan it makes, and the runner that carries the plan out."""
