-- People of three states who sell in category 10.  All rows stay: a person may come after the auction.
SELECT p.name, p.city, p.state, a.id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
SETTINGS join_max_buffered_bytes = 100000000000;
