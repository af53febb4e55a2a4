"""What `watersmeet demo` runs: real data, written out as event files, and the joins over it."""
