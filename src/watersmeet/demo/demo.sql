-- Every flight out of New York in 2013 and the weather at its airports as streams of files, and the aircraft as a table.
-- The event time of a flight is its scheduled departure, which cancelled flights have too (they have no dep_delay).

CREATE STREAM flights (
  ts TIMESTAMP, flight_id BIGINT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
  dep_delay INT, arr_delay INT, air_time INT, distance INT,
  WATERMARK FOR ts AS ts - INTERVAL '30' MINUTES
) WITH (connector = 'files', path = 'events/flights', format = 'parquet', max_files_per_trigger = '6');

CREATE STREAM weather (
  ts TIMESTAMP, origin STRING, temp DOUBLE, wind_speed DOUBLE, visib DOUBLE, precip DOUBLE,
  WATERMARK FOR ts AS ts - INTERVAL '2' HOURS
) WITH (connector = 'files', path = 'events/weather', format = 'json', max_files_per_trigger = '6');

CREATE STREAM turnarounds WITH (connector = 'files', path = 'results/turnarounds', format = 'parquet');
CREATE STREAM flight_weather WITH (connector = 'files', path = 'results/flight_weather', format = 'parquet');
CREATE STREAM flight_weather_changes
  WITH (connector = 'files', path = 'results/flight_weather_changes', format = 'parquet', changelog = 'true');

CREATE STREAM weather_at_departure
  WITH (connector = 'files', path = 'results/weather_at_departure', format = 'parquet');
CREATE STREAM next_flights WITH (connector = 'files', path = 'results/next_flights', format = 'parquet');
CREATE STREAM flight_planes WITH (connector = 'files', path = 'results/flight_planes', format = 'parquet');

CREATE TABLE planes (tailnum STRING, year INT, manufacturer STRING, model STRING, seats INT)
  WITH (connector = 'files', path = 'events/planes');

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

-- The same, emitted at once and corrected when a report arrives: a changelog.
INSERT INTO flight_weather_changes
SELECT f.flight_id, w.ts AS reported, w.temp
FROM flights f
LEFT JOIN weather w ON f.origin = w.origin AND w.ts <= f.ts AND w.ts > f.ts - INTERVAL '1' HOUR
EMIT CHANGELOG;

-- A temporal join: each flight with the weather report valid at its departure, however old.
INSERT INTO weather_at_departure
SELECT f.flight_id, f.carrier, f.flight, f.origin, f.ts, f.dep_delay, w.ts AS reported, w.temp, w.wind_speed, w.visib
FROM flights f
LEFT JOIN weather FOR SYSTEM_TIME AS OF f.ts w ON f.origin = w.origin;

-- An ASOF join: each flight with the next flight of the same aircraft, if it departs again within 12 hours.
INSERT INTO next_flights
SELECT f.flight_id, f.tailnum, f.origin, f.dest, f.ts, n.flight_id AS next_flight_id, n.dest AS next_dest,
       n.ts AS next_ts
FROM flights f
LEFT ASOF JOIN flights n MATCH_CONDITION (f.ts < n.ts AND n.ts - f.ts <= INTERVAL '12' HOURS) ON f.tailnum = n.tailnum;

-- A lookup: each flight, when it is processed, with its aircraft. The registry does not have all of them.
INSERT INTO flight_planes
SELECT f.flight_id, f.tailnum, f.ts, p.year AS built, p.manufacturer, p.model, p.seats
FROM flights f
LEFT JOIN planes FOR SYSTEM_TIME AS OF PROCTIME() p ON f.tailnum = p.tailnum;
