-- How many bids of each bidder have arrived in each 10 seconds of the clock.  The stream bid_arrival has the rows of bid
-- and no WATERMARK, so its time is that of arrival.
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(TUMBLE(TABLE bid_arrival, DESCRIPTOR(_tp_time), INTERVAL '10' SECONDS))
GROUP BY bidder, window_start, window_end;
