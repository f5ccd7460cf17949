"""MPI programs on modelled hardware: SimGrid's SMPI runs ours, on a platform that the profiles give."""
