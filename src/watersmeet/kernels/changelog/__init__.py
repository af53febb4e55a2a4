"""Joins over rows that come and go: results come at once, and go with the rows that they are made of."""
