"""The operators as pure functions over Arrow rows, stored rows and frontiers."""
