-- Bids with their auction of category 10, all columns.  All rows stay: an auction may come after its bids.
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time, b.extra AS bid_extra,
  a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_time, a.expires, a.seller, a.category,
  a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id
WHERE a.category = 10
SETTINGS join_max_buffered_bytes = 100000000000;
