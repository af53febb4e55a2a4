-- All bids, as they are.
SELECT auction, bidder, price, date_time, extra FROM bid;
