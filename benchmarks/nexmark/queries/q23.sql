-- Bids, their bidder as a person, and the auctions that this person sells.  All rows stay.
SELECT b.bidder, b.price, b.channel, b.url, b.extra AS bid_extra,
  p.id AS person_id, p.name, p.email_address, p.credit_card, p.city, p.state, p.extra AS person_extra,
  a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_time, a.expires, a.seller, a.category,
  a.extra AS auction_extra
FROM bid b JOIN person p ON p.id = b.bidder JOIN auction a ON a.seller = b.bidder
SETTINGS join_max_buffered_bytes = 100000000000;
