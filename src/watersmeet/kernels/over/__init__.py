"""Window functions over the rows of partitions, and their first rows: the kernel, and its steps."""
