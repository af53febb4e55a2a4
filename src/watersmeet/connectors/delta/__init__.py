"""Delta tables: as sources, read by the workers, and as sinks."""
