-- The average of the last eleven winning prices of each seller, whenever one is known.  A changelog.  Flink cannot run it:
-- its OVER takes no corrections.  Of equal prices the earliest bid wins, as in query 9, and of winning bids of the same
-- time that of the smaller auction is the earlier; the reference leaves both open.
SELECT seller,
  avg(price) OVER (PARTITION BY seller ORDER BY bid_time, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS price
FROM (
  SELECT a.id, a.seller, b.price, b.date_time AS bid_time,
    ROW_NUMBER() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC, b.date_time) AS place
  FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
)
WHERE place <= 1;
