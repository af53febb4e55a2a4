"""Formats of values: how raw values become rows, and rows values."""
