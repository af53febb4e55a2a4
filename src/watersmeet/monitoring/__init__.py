"""What shows a running query to others: the live page with its JSON, and metrics for Prometheus."""
