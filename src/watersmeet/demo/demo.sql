-- Every flight that left New York in 2013, and the weather at its airports, as streams of files.

CREATE STREAM flights (
  ts TIMESTAMP, flight_id BIGINT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
  dep_delay INT, arr_delay INT, air_time INT, distance INT,
  WATERMARK FOR ts AS ts - INTERVAL '30' MINUTES
) WITH (connector = 'files', path = 'events/flights', format = 'parquet', max_files_per_trigger = '4');

CREATE STREAM weather (
  ts TIMESTAMP, origin STRING, temp DOUBLE, wind_speed DOUBLE, visib DOUBLE, precip DOUBLE,
  WATERMARK FOR ts AS ts - INTERVAL '2' HOURS
) WITH (connector = 'files', path = 'events/weather', format = 'json', max_files_per_trigger = '4');

CREATE STREAM turnarounds WITH (connector = 'files', path = 'results/turnarounds', format = 'parquet');
CREATE STREAM flight_weather WITH (connector = 'files', path = 'results/flight_weather', format = 'parquet');
CREATE STREAM flight_weather_changes
  WITH (connector = 'files', path = 'results/flight_weather_changes', format = 'parquet', changelog = 'true');

-- A self join: each flight with the next ones of the same aircraft within 12 hours.
INSERT INTO turnarounds
SELECT f.flight_id, f.tailnum, f.origin, f.dest, f.ts, n.flight_id AS next_flight_id, n.dest AS next_dest,
       n.ts AS next_ts
FROM flights f
JOIN flights n ON f.tailnum = n.tailnum AND n.ts > f.ts AND n.ts <= f.ts + INTERVAL '12' HOURS;

-- A left join: each flight with the last weather report at its airport, if there was one within the hour.
INSERT INTO flight_weather
SELECT f.flight_id, f.carrier, f.flight, f.origin, f.dest, f.ts, f.dep_delay, w.ts AS reported, w.temp, w.wind_speed,
       w.visib
FROM flights f
LEFT JOIN weather w ON f.origin = w.origin AND w.ts <= f.ts AND w.ts > f.ts - INTERVAL '1' HOUR
EMIT FINAL;

-- The same, told at once and corrected when a report comes in: a changelog.
INSERT INTO flight_weather_changes
SELECT f.flight_id, w.ts AS reported, w.temp
FROM flights f
LEFT JOIN weather w ON f.origin = w.origin AND w.ts <= f.ts AND w.ts > f.ts - INTERVAL '1' HOUR
EMIT CHANGELOG;
