"""Sources and sinks.

A source gives a Spark DataFrame with the stream's declared columns and these hidden ones:

``_part``     STRING, where its frontiers come from: '' or a partition of a topic
``_seq``      BINARY, a position that a replay repeats, in byte order; rows that share one keep the order in which they
              are read (the lines of one block of a file)
``_tp_time``  TIMESTAMP, arrival time: the record's own, else that of the batch
``_bad``      STRING, NULL in a good row, else the reason (only where rows can be malformed)
``_raw``      STRING, the raw text of a bad row
``_text``     STRING, the raw text of every row (only where rows are text)
``_frontier`` BIGINT, a frontier stored by the stream's producer (only in derived streams)

A sink writes one batch's rows at a time, and writing a batch again must change nothing.
"""
