-- Bids beside a table of 10,000 rows, as it is when they come.  The table is a Parquet file; the reference has CSV.
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bid b JOIN side_input FOR SYSTEM_TIME AS OF PROCTIME() s ON b.auction % 10000 = s.key;
