-- The last bid of each bidder on each auction.  A changelog.
SELECT auction, bidder, price, channel, url, date_time, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place FROM bid)
WHERE place <= 1;
