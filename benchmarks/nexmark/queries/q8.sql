-- People who came and sold within the same 10 seconds.  Final: each once, when these have ended.
SELECT p.id, p.name, p.window_start AS stime
FROM (
  SELECT id, name, window_start, window_end
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECONDS))
  GROUP BY id, name, window_start, window_end
) p JOIN (
  SELECT seller, window_start, window_end
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(date_time), INTERVAL '10' SECONDS))
  GROUP BY seller, window_start, window_end
) a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end;
