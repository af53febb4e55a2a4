"""Benchmarks: workloads for Watersmeet and its peers on the same data (``watersmeet bench``), and single kernels."""
