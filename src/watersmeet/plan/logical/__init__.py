"""The logical query: a tree of joins, the types of its expressions, and the bounds its conditions imply."""
