-- The ten highest bids of each auction, with their places.  A changelog: a bid that moves down changes its place.
SELECT *
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
WHERE place <= 10;
