"""A windowed join whose state has limits: rows are evicted where it would exceed them."""
