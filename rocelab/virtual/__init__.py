"""The virtual fabric: studies on modelled hardware, in virtual time. docs/simulator.md describes it."""
