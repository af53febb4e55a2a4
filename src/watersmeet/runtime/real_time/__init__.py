"""Queries in real time: Spark runs all stages at once for an epoch, and rows pass through them as they come.

    topic ─ read, decode, pack ─┐
    topic ─ read, decode, pack ─┴─ streaming shuffle by bucket ─ operator ─ … ─ operator ─ SELECT list ─ sink

The plan, the frames, the kernels and the state's segments are those of micro-batches; only the tasks differ.  A task
lasts for an epoch.  It keeps its state in memory and writes it when its input ends, before Spark commits the epoch
(epochs.py).
"""
