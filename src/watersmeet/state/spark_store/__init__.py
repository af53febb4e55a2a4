"""Spark's state store, read without Spark: the files of its RocksDB provider.

    STATE/OPERATOR/PARTITION/VERSION.zip          a snapshot: which files of the next line hold it
    STATE/OPERATOR/PARTITION/SSTs/NAME.sst        sorted tables of RocksDB
    STATE/OPERATOR/PARTITION/VERSION.changelog    what the batch before VERSION put and deleted

A version is the newest snapshot that is not later, and the changelogs after it.  Values are found by key, so what is
read depends on what is asked for and not on the size of the state.
"""
