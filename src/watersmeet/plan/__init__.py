"""From a bound query to operators: conditions, windows, columns, EXPLAIN."""
