-- The average of the winning prices of each category.  A bid counts from its auction's start until that expires.
-- A changelog.  The average is a DOUBLE; in the reference it is rounded down.
SELECT category, avg(final) AS final
FROM (
  SELECT a.id, a.category, max(b.price) AS final
  FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category;
