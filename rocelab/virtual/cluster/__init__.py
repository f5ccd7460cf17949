"""Steps of simulated studies on the machines of a Dask cluster, instead of the processors of this one.

`work` is what a worker does, and knows nothing of Dask. `crew` is this end.
"""
