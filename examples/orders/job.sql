CREATE STREAM orders (
  id INT, customer STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS
) WITH (connector = 'files', path = 'data/orders', format = 'json');

CREATE STREAM payments (
  order_id INT, amount DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS
) WITH (connector = 'files', path = 'data/payments', format = 'json');

CREATE STREAM results (id INT, customer STRING, amount DOUBLE)
  WITH (connector = 'files', path = 'data/results', format = 'json');

INSERT INTO results
SELECT o.id, o.customer, p.amount
FROM orders o LEFT JOIN payments p ON o.id = p.order_id WITHIN INTERVAL '10' MINUTES;
