"""From statements to definitions and logical queries: every name is resolved here."""
