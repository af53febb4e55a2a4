"""Streaming SQL joins for PySpark."""
