"""What users set: options of WITH, settings of a query, references to secrets."""
