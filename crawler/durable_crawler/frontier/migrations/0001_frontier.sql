-- Schema version 1 of the frontier. The invariants stand here, so that no program can store what must not be.
--
-- A page is in exactly one state:
--   pending      can be claimed
--   leased       somebody works on it: token, epoch and lease_until_ms are set, and only then
--   deferred     waits for a retry until due_ms, which is set only then
--   done         has a row in results
--   quarantined  was claimed three times without an outcome; it may be what kills the process
-- Times are milliseconds since the epoch, UTC.

CREATE TABLE meta (
  one              INTEGER PRIMARY KEY CHECK (one = 1),
  canonicalisation INTEGER NOT NULL,                  -- version of the rules that made pages.url
  created_ms       INTEGER NOT NULL,
  epoch            INTEGER NOT NULL CHECK (epoch >= 0) -- raised by each start; an older start can write nothing
) STRICT;

CREATE TABLE hosts (
  id              INTEGER PRIMARY KEY,
  authority       TEXT    NOT NULL UNIQUE,
  closed_until_ms INTEGER NOT NULL DEFAULT 0 -- no request before this time: survives a crash, so a restart cannot hammer
) STRICT;

CREATE TABLE pages (
  id             INTEGER PRIMARY KEY,
  hash_high      INTEGER NOT NULL, -- BLAKE2b-128 of url in two halves: half the size of an index on the text
  hash_low       INTEGER NOT NULL,
  url            TEXT    NOT NULL,
  host_id        INTEGER NOT NULL REFERENCES hosts (id),
  found_on       INTEGER REFERENCES pages (id), -- the page that linked here first; none for a seed
  depth          INTEGER NOT NULL CHECK (depth >= 0),
  state          TEXT    NOT NULL DEFAULT 'pending'
                 CHECK (state IN ('pending', 'leased', 'deferred', 'done', 'quarantined')),
  counted        INTEGER NOT NULL DEFAULT 0 CHECK (counted IN (0, 1)), -- against scope.maxPages, at the first claim
  attempts       INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),     -- claims since the last outcome
  retries        INTEGER NOT NULL DEFAULT 0 CHECK (retries >= 0),      -- outcomes that were worth another attempt
  token          TEXT,
  epoch          INTEGER,
  lease_until_ms INTEGER,
  due_ms         INTEGER,
  CHECK ((state = 'leased') = (token IS NOT NULL)),
  CHECK ((state = 'leased') = (epoch IS NOT NULL)),
  CHECK ((state = 'leased') = (lease_until_ms IS NOT NULL)),
  CHECK ((state = 'deferred') = (due_ms IS NOT NULL)),
  CHECK (state IN ('pending', 'done') OR counted = 1)
) STRICT;

CREATE UNIQUE INDEX pages_identity ON pages (hash_high, hash_low);
-- Partial, so that what is done costs a claim nothing.
CREATE INDEX pages_pending  ON pages (host_id, id)     WHERE state = 'pending';
CREATE INDEX pages_leased   ON pages (lease_until_ms)  WHERE state = 'leased';
CREATE INDEX pages_deferred ON pages (due_ms)          WHERE state = 'deferred';

CREATE TABLE results (
  page_id       INTEGER PRIMARY KEY REFERENCES pages (id), -- a second result for a page cannot be stored
  outcome       TEXT    NOT NULL,
  status        INTEGER,
  final_url     TEXT,                       -- where it differs from pages.url
  content_type  TEXT    NOT NULL DEFAULT '',
  bytes         INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0),
  title         TEXT    NOT NULL DEFAULT '',
  links         INTEGER NOT NULL DEFAULT 0, -- distinct links on the page, in scope or not
  dropped_links INTEGER NOT NULL DEFAULT 0, -- above scope.maxLinksPerPage
  hops          TEXT,                       -- JSON: [[url, status, location], ...] where it was redirected
  error         TEXT    NOT NULL DEFAULT '',
  failed        INTEGER NOT NULL CHECK (failed IN (0, 1)),
  finished_ms   INTEGER NOT NULL,
  duration_ms   INTEGER NOT NULL DEFAULT 0
) STRICT;

-- One row that is right in every snapshot, so that counting costs nothing however large the frontier is.
CREATE TABLE counters (
  one         INTEGER PRIMARY KEY CHECK (one = 1),
  pending     INTEGER NOT NULL DEFAULT 0 CHECK (pending >= 0),
  leased      INTEGER NOT NULL DEFAULT 0 CHECK (leased >= 0),
  deferred    INTEGER NOT NULL DEFAULT 0 CHECK (deferred >= 0),
  done        INTEGER NOT NULL DEFAULT 0 CHECK (done >= 0),
  quarantined INTEGER NOT NULL DEFAULT 0 CHECK (quarantined >= 0),
  counted     INTEGER NOT NULL DEFAULT 0 CHECK (counted >= 0),
  reclaimable INTEGER NOT NULL DEFAULT 0 CHECK (reclaimable >= 0), -- pending and counted: claims that cost no budget
  failed      INTEGER NOT NULL DEFAULT 0 CHECK (failed >= 0),
  bytes       INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0)
) STRICT;
INSERT INTO counters (one) VALUES (1);

CREATE TRIGGER pages_added AFTER INSERT ON pages BEGIN
  SELECT RAISE(ABORT, 'a page begins pending') WHERE new.state <> 'pending' OR new.counted <> 0;
  UPDATE counters SET pending = pending + 1;
END;

CREATE TRIGGER pages_moved AFTER UPDATE OF state ON pages BEGIN
  SELECT RAISE(ABORT, 'a page that is done stays done') WHERE old.state = 'done' AND new.state <> 'done';
  UPDATE counters SET
    pending     = pending     + (new.state = 'pending')     - (old.state = 'pending'),
    leased      = leased      + (new.state = 'leased')      - (old.state = 'leased'),
    deferred    = deferred    + (new.state = 'deferred')    - (old.state = 'deferred'),
    done        = done        + (new.state = 'done')        - (old.state = 'done'),
    quarantined = quarantined + (new.state = 'quarantined') - (old.state = 'quarantined'),
    counted     = counted     + new.counted                 - old.counted,
    reclaimable = reclaimable + (new.state = 'pending' AND new.counted) - (old.state = 'pending' AND old.counted);
END;

CREATE TRIGGER results_added AFTER INSERT ON results BEGIN
  SELECT RAISE(ABORT, 'a result belongs to a page that is done')
    WHERE (SELECT state FROM pages WHERE id = new.page_id) <> 'done';
  UPDATE counters SET failed = failed + new.failed, bytes = bytes + new.bytes;
END;
