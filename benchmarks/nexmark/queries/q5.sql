-- The auctions with most bids of the last 10 seconds, every 2 seconds; those with equally many are all there.
-- Final: each window once, when it has ended.
WITH counted AS (
  SELECT auction, count(*) AS num, window_start, window_end
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECONDS, INTERVAL '10' SECONDS))
  GROUP BY auction, window_start, window_end
), most AS (
  SELECT max(num) AS maxn, window_start, window_end FROM counted
  GROUP BY window_start, window_end
)
SELECT c.auction, c.num
FROM counted c JOIN most m
ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.maxn;
