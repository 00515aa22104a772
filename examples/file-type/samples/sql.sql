-- Readings of the gauges, and the view that the report is made of.
CREATE TABLE gauges (
    id INTEGER PRIMARY KEY,
    name VARCHAR(80) NOT NULL UNIQUE
);

CREATE TABLE readings (
    gauge_id INTEGER NOT NULL REFERENCES gauges (id) ON DELETE CASCADE,
    taken_at TIMESTAMP NOT NULL,
    level_cm NUMERIC(6, 1) NOT NULL CHECK (level_cm >= 0),
    PRIMARY KEY (gauge_id, taken_at)
);

INSERT INTO gauges (id, name) VALUES (1, 'upper bridge'), (2, 'old mill');
INSERT INTO readings VALUES (1, '2026-05-01 06:00:00', 142.0), (2, '2026-05-01 06:00:00', 97.0);

SELECT g.name, COUNT(*) AS readings, AVG(r.level_cm) AS mean_level
FROM gauges AS g
LEFT JOIN readings AS r ON r.gauge_id = g.id
WHERE r.taken_at BETWEEN '2026-05-01' AND '2026-06-01'
GROUP BY g.name
HAVING COUNT(*) > 0
ORDER BY mean_level DESC
LIMIT 10;
