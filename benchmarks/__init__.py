"""Workloads that Watersmeet and its peers run over the same data (``watersmeet bench``), and kernels alone."""
