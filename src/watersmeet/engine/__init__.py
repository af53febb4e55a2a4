"""One bucket's work without Spark: rows packed into frames, frames through an operator, frames back into rows."""
