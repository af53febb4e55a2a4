"""Durable state: segments and their manifest, and the working set that is made from them."""
