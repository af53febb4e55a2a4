"""The operators: what comes out and what is stored, from new rows, stored rows and frontiers."""
