"""Fabrics: where a study runs. `rocelab.fabric.base` has the types, `rocelab.fabric.emulated` the default."""
