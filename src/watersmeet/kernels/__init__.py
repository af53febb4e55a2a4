"""The operators: what they emit and store, computed from new rows, stored rows and frontiers."""
