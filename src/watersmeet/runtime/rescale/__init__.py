"""Another number of buckets for a stopped query, with all its state.

    change.py       what changes: the operators before and after, checked against the checkpoint
    division.py     the work of one task: the state of a bucket, divided (engine/rescale.py)
    spark_state.py  micro-batches: a new checkpoint of Spark, with the new buckets' state and the old offsets
    epoch_state.py  real time: the new buckets' files of the last epoch
    running.py      whether the query runs
    switch.py       all of it in order; plan.json is written last, and that moment decides

Everything is written beside the state that there is.  Until plan.json names it, it does not exist: a change that is
broken off leaves folders that the next one deletes.
"""
