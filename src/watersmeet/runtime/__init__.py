"""The operators on Spark: frames, bucket steps, dataflow, running queries."""
