"""Checkpoints read without Spark: what a query's state holds, whether its files are whole, and copies of it."""
