"""Charts of results as SVG, for notebooks: lines and bars, without scripts."""
