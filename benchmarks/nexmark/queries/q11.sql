-- How many bids each bidder made in a session, which ends when the bidder has been silent for 10 seconds.  Final.
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECONDS))
GROUP BY bidder, window_start, window_end;
