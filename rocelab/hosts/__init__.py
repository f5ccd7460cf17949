"""The fabric `hosts`: machines of their own, reached by ssh or Slurm, with whatever network they have.

`inventory` says which hosts there are, `sessions` reaches them and starts an `agent` on each, `facts` is what a host
says of itself. `fabric` and `launcher` make of it what studies run on.
"""
