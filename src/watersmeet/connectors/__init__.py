"""Sources and sinks.

A source gives a Spark DataFrame with the stream's declared columns and these hidden ones:

``_seq``      BINARY, the row's place in its source, which a replay repeats; in byte order.  Rows that share one (the
              lines of one block of a file) keep the order in which they are read
``_tp_time``  TIMESTAMP, arrival time: the record's own, else that of the batch

of a stream that changes also:

``_tp_delta`` TINYINT, +1 for a row that holds, -1 for one that does not any more; NULL in a bad row

and, where the source has them:

``_part``     STRING, which of the source's parts the row belongs to (a partition of a topic); each part has a frontier
              of its own.  A source without parts has one frontier and no such column
``_bad``      STRING, why the row cannot be read; NULL in a good row
``_raw``      STRING, the text of a row that cannot be read; NULL in a good row
``_text``     STRING, the text of every row, for whoever finds another reason to set it aside
``_frontier`` BIGINT, in rows of a derived stream that tell how far its producer has come, and hold nothing else

A sink writes one batch's rows at a time, and writing a batch again must change nothing (Kafka's can only mark what it
repeats).
"""
