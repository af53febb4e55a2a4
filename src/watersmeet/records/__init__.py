"""Records of a source, decoded in the workers: many records at once, from bytes to Arrow columns."""
