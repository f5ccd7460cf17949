"""rocelab: what would RDMA buy you? Benchmarks of Soft RoCE, TCP and RDMA hardware, and the report on them."""

__version__ = "0.2.0"
