"""The benchmark programs: how each is run, how its output is read, and what makes its result believable."""
