-- The index of Mitra: the state of one machine (or of a few) over time.
--
-- Times are nanoseconds since 1970, days are counted from 1970-01-01 (UTC). `sqlite3 index.sqlite` shows it:
--   SELECT * FROM history WHERE file = '/etc/fstab';
--   SELECT * FROM setting WHERE name = 'sysctl.vm.swappiness';

-- Each machine, and when it was last looked at. A change happened after `before_ns`.
CREATE TABLE host (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    looked_ns INTEGER NOT NULL,
    before_ns INTEGER
);

-- The days on which a host was looked at. A document is shown on no other day.
CREATE TABLE day (
    host INTEGER NOT NULL,
    day INTEGER NOT NULL,
    PRIMARY KEY (host, day)
) WITHOUT ROWID;

-- The path of each file; `@` and a name for what a collector says.
CREATE TABLE file (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

-- What documents say. Equal contents are stored once, however many hosts and days have them. No id is used twice.
CREATE TABLE content (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key BLOB NOT NULL UNIQUE,       -- the first 16 bytes of SHA-256 over kind, hash and about
    kind TEXT NOT NULL,
    hash BLOB,                      -- SHA-256 of the text
    bytes INTEGER,                  -- of the text, uncompressed; NULL where there is none
    base INTEGER,                   -- the content whose text this one was compressed with,
    dictionary INTEGER,             -- or the dictionary; NULL where it stands for itself
    text BLOB,                      -- Zstandard
    about                           -- flags, link, facts, what was withheld: JSON, as a BLOB compressed by Zstandard
);
CREATE INDEX content_of_hash ON content (hash) WHERE hash IS NOT NULL;
CREATE INDEX content_of_base ON content (base) WHERE base IS NOT NULL;

-- What the texts of a machine have in common: trained on its first texts, so that short ones become shorter.
CREATE TABLE dictionary (
    id INTEGER PRIMARY KEY,
    bytes BLOB NOT NULL
);

-- The names of fields, as in docs/fields.md.
CREATE TABLE field (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

-- Their values, each once. A word is TEXT, a number REAL, a moment INTEGER.
CREATE TABLE fact (
    id INTEGER PRIMARY KEY,
    field INTEGER NOT NULL,
    value NOT NULL,
    UNIQUE (field, value)
);

-- Which contents have which values.
CREATE TABLE has (
    fact INTEGER NOT NULL,
    content INTEGER NOT NULL,
    PRIMARY KEY (fact, content)
) WITHOUT ROWID;

-- One state of one document: since when, until when (NULL while it lasts), with which content.
CREATE TABLE state (
    id INTEGER PRIMARY KEY,
    host INTEGER NOT NULL,
    file INTEGER NOT NULL,
    content INTEGER NOT NULL,
    since_ns INTEGER NOT NULL,
    until_ns INTEGER,
    known_before_ns INTEGER,        -- when the host was last looked at before; NULL where the host was new
    first_day INTEGER NOT NULL,     -- the first and the last day on which it is the document of the day;
    last_day INTEGER,               -- the last lies before the first where another state followed on that day
    gone INTEGER NOT NULL,          -- 1: the file was not there any more; the content is that of the state before
    volatile INTEGER NOT NULL,      -- 1: it changes all the time; of each day the last state is kept
    event INTEGER NOT NULL,         -- 1: it happened once, and belongs to its day
    size INTEGER, mode INTEGER, uid INTEGER, gid INTEGER, user TEXT, "group" TEXT,
    inode INTEGER, mtime_ns INTEGER, ctime_ns INTEGER
);
CREATE UNIQUE INDEX state_of_document ON state (host, file, since_ns);
-- With all that a question about days wants of a state.
CREATE INDEX state_of_content ON state (content, host, file, first_day, last_day);

-- The words of each text (rowid = content.id). The analysis of words is Mitra's: what is stored here are its words, with
-- blanks between them, so every character but the blank belongs to a word. Questions read its pages: see vocabulary.rs.
CREATE VIRTUAL TABLE word USING fts5(
    text, content = '', contentless_delete = 1, detail = none,
    tokenize = "ascii tokenchars '$TOKENCHARS'"
);
-- Every word (`term`), and in how many contents it is (`doc`).
CREATE VIRTUAL TABLE words USING fts5vocab(word, row);

-- For people.
CREATE VIEW history AS
SELECT host.name AS host, file.name AS file,
       strftime('%Y-%m-%dT%H:%M:%SZ', state.since_ns / 1000000000, 'unixepoch') AS since,
       strftime('%Y-%m-%dT%H:%M:%SZ', state.until_ns / 1000000000, 'unixepoch') AS until,
       content.kind, state.gone, state.size, printf('%04o', state.mode) AS mode, state.user, state."group", lower(hex(content.hash)) AS hash
FROM state JOIN host ON host.id = state.host JOIN file ON file.id = state.file JOIN content ON content.id = state.content
ORDER BY host.name, file.name, state.since_ns;

CREATE VIEW setting AS
SELECT field.name, fact.value, host.name AS host, file.name AS file,
       strftime('%Y-%m-%dT%H:%M:%SZ', state.since_ns / 1000000000, 'unixepoch') AS since,
       strftime('%Y-%m-%dT%H:%M:%SZ', state.until_ns / 1000000000, 'unixepoch') AS until
FROM field JOIN fact ON fact.field = field.id JOIN has ON has.fact = fact.id JOIN state ON state.content = has.content AND NOT state.gone
     JOIN host ON host.id = state.host JOIN file ON file.id = state.file
ORDER BY field.name, host.name, state.since_ns;
