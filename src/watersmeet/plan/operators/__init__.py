"""The operators, planned: one module for each, named as its kernel is.

A module has a subclass of ``PhysicalOperator`` and a function that builds it from a node and the feeds of its inputs.
"""
