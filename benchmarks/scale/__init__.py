"""What a query costs with more buckets and more executors."""
