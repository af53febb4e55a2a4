"""The first rows of each partition, over append-only streams and changelogs: the kernel, and its steps."""
