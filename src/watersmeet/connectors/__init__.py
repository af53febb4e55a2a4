"""Sources and sinks. ``registry`` maps a connector's name to its object; ``connector`` says what such an object offers.

A source frame is a Spark DataFrame with the stream's declared columns and these hidden ones:

``_seq``      BINARY, the row's position in its source, in byte order; a replay repeats it. Rows that share a position
              (the lines of one block of a file) keep the order in which they are read
``_tp_time``  TIMESTAMP, arrival time: the record's own, else the batch's

In a changing stream also:

``_tp_delta`` TINYINT, +1 for a row that holds, -1 for a retraction; NULL in a bad row

Where the source has them:

``_part``     STRING, the part of the source that the row belongs to (a partition of a topic). Each part has its own
              frontier. A source without parts has one frontier and no such column
``_bad``      STRING, why the row cannot be read; NULL in a good row
``_raw``      STRING, the text of a row that cannot be read; NULL in a good row
``_text``     STRING, the text of every row, for later checks that quarantine it
``_frontier`` BIGINT, in rows of a derived stream that report their producer's frontier and hold nothing else

A sink writes one batch of rows at a time. Writing a batch again must change nothing; Kafka's sink only marks repeats.
"""
