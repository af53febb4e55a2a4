-- Bids with their day and minute, for files.  The reference writes a folder of CSV for each minute; the sink of this
-- project writes files of each batch in one folder.
SELECT auction, bidder, price, date_time, extra,
  date_format(date_time, 'yyyy-MM-dd') AS dt, date_format(date_time, 'HH:mm') AS hm
FROM bid;
