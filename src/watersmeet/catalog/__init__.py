"""Streams and tables, and the file that keeps them."""
