"""Durable state: segments and their manifest, and the working set that is built from them."""
