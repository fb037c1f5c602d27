-- Incidents and findings of a fleet, as `mitra send` inserts them (to = "clickhouse"). Printed by
-- `mitra send --schema clickhouse`; for ClickHouse 18.16 and newer.
--
-- Each record is inserted into mitra_records, which keeps nothing: materialised views pass it on. A record that is inserted
-- twice is two rows with one sorting key, until ClickHouse merges their parts. FINAL merges them as it reads, so that of each
-- key the row with the highest `seen` is left: read the tables with FINAL, or one of the views of top lists, which do.
--
-- Times are whole seconds, in UTC. NULL is what was not measured, an empty name what is not known. `seen` is how far the
-- recording went when it was explained.

CREATE TABLE IF NOT EXISTS mitra_records (
    event String,
    host String,
    id String,
    onset DateTime('UTC'),
    ended Nullable(DateTime('UTC')),
    seen DateTime('UTC'),
    root String,
    unexplained UInt8,
    culprit String,
    culprit_kind String,
    culprit_name String,
    culprit_group String,
    confidence Nullable(Float64),
    strength Nullable(Float64),
    cost_seconds Nullable(Float64),
    line String,
    mitra String,
    label_names Array(String),
    label_values Array(String)
) ENGINE = Null;

-- An incident goes on while `ended` is NULL. `cost_seconds` is lost time: task-seconds, or what clients waited if that is more.
-- `onset` is no part of the key: it moves when the clock of the host is set, and `id` stays, which begins with the first onset.
CREATE TABLE IF NOT EXISTS mitra_incidents (
    host String,
    onset DateTime('UTC'),
    id String,
    ended Nullable(DateTime('UTC')),
    seen DateTime('UTC'),
    root String,
    unexplained UInt8,
    culprit String,
    culprit_kind String,
    culprit_name String,
    culprit_group String,
    confidence Nullable(Float64),
    strength Nullable(Float64),
    cost_seconds Nullable(Float64),
    line String,
    mitra String,
    label_names Array(String),
    label_values Array(String)
) ENGINE = ReplacingMergeTree(seen) PARTITION BY toYYYYMM(onset) ORDER BY (host, id);

CREATE MATERIALIZED VIEW IF NOT EXISTS mitra_incidents_from_records TO mitra_incidents AS
SELECT host, onset, id, ended, seen, root, unexplained, culprit, culprit_kind, culprit_name, culprit_group, confidence, strength,
    cost_seconds, line, mitra, label_names, label_values
FROM mitra_records WHERE event = 'mitra.incident';

-- One row for a finding and day.
CREATE TABLE IF NOT EXISTS mitra_findings (
    host String,
    day Date,
    id String,
    seen DateTime('UTC'),
    root String,
    culprit String,
    culprit_kind String,
    culprit_name String,
    culprit_group String,
    line String,
    mitra String,
    label_names Array(String),
    label_values Array(String)
) ENGINE = ReplacingMergeTree(seen) PARTITION BY toYYYYMM(day) ORDER BY (host, day, id);

CREATE MATERIALIZED VIEW IF NOT EXISTS mitra_findings_from_records TO mitra_findings AS
SELECT host, toDate(seen, 'UTC') AS day, id, seen, root, culprit, culprit_kind, culprit_name, culprit_group, line, mitra, label_names,
    label_values
FROM mitra_records WHERE event = 'mitra.finding';

-- What top lists need of incidents, ordered by day, so that a day of all hosts is read without the other days. The rows are not
-- added up as they come: a record that is inserted twice would count twice.
CREATE TABLE IF NOT EXISTS mitra_incident_days (
    day Date,
    host String,
    id String,
    seen DateTime('UTC'),
    root String,
    unexplained UInt8,
    culprit_kind String,
    culprit_name String,
    culprit_group String,
    cost_seconds Nullable(Float64)
) ENGINE = ReplacingMergeTree(seen) PARTITION BY toYYYYMM(day) ORDER BY (day, host, id);

CREATE MATERIALIZED VIEW IF NOT EXISTS mitra_incident_days_from_records TO mitra_incident_days AS
SELECT toDate(onset, 'UTC') AS day, host, id, seen, root, unexplained, culprit_kind, culprit_name, culprit_group, cost_seconds
FROM mitra_records WHERE event = 'mitra.incident';

CREATE VIEW IF NOT EXISTS mitra_top_roots AS
SELECT day, root, unexplained, count() AS incidents, uniqExact(host) AS hosts, sum(cost_seconds) AS lost_seconds
FROM mitra_incident_days FINAL GROUP BY day, root, unexplained;

CREATE VIEW IF NOT EXISTS mitra_top_culprits AS
SELECT day, culprit_kind, culprit_name, culprit_group, count() AS incidents, uniqExact(host) AS hosts,
    sum(cost_seconds) AS lost_seconds
FROM mitra_incident_days FINAL GROUP BY day, culprit_kind, culprit_name, culprit_group;

-- How long rows are kept. Before 19.6 ClickHouse knows no TTL of a table and refuses these: there, drop partitions (months).
ALTER TABLE mitra_incidents MODIFY TTL onset + INTERVAL 400 DAY;
ALTER TABLE mitra_findings MODIFY TTL day + INTERVAL 400 DAY;
ALTER TABLE mitra_incident_days MODIFY TTL day + INTERVAL 400 DAY;
