-- The highest bids of each 10 seconds.  BETWEEN takes both ends: a bid at the end of a window may be that of the window
-- before as well.  Final: once the window has ended.
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bid b JOIN (
  SELECT max(price) AS maxprice, window_end
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECONDS)) GROUP BY window_start, window_end
) m ON b.price = m.maxprice AND b.date_time BETWEEN m.window_end - INTERVAL '10' SECONDS AND m.window_end;
