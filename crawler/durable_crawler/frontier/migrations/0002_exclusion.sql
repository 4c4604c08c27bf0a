-- Schema version 2: pages that were left out are kept, so that an edited spec can take them in; an unclean end is known.
--
-- New state:
--   excluded     known, but outside of the spec: its authority is not approved, or it is too deep
-- SQLite cannot change a CHECK: the tables are made anew and the rows carried over.

DROP TRIGGER pages_added;
DROP TRIGGER pages_moved;
DROP TRIGGER results_added;

ALTER TABLE meta ADD COLUMN spec TEXT NOT NULL DEFAULT '';  -- what the spec admitted when the frontier was opened last
ALTER TABLE meta ADD COLUMN clean INTEGER NOT NULL DEFAULT 0 CHECK (clean IN (0, 1)); -- closed, not killed

CREATE TABLE pages_2 (
  id             INTEGER PRIMARY KEY,
  hash_high      INTEGER NOT NULL, -- BLAKE2b-128 of url in two halves: half the size of an index on the text
  hash_low       INTEGER NOT NULL,
  url            TEXT    NOT NULL,
  host_id        INTEGER NOT NULL REFERENCES hosts (id),
  found_on       INTEGER REFERENCES pages_2 (id), -- the page that linked here first; none for a seed
  depth          INTEGER NOT NULL CHECK (depth >= 0),
  state          TEXT    NOT NULL
                 CHECK (state IN ('pending', 'leased', 'deferred', 'done', 'quarantined', 'excluded')),
  counted        INTEGER NOT NULL DEFAULT 0 CHECK (counted IN (0, 1)), -- against scope.maxPages, at the first claim
  attempts       INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),     -- claims since the last outcome
  retries        INTEGER NOT NULL DEFAULT 0 CHECK (retries >= 0),      -- outcomes that were worth another attempt
  token          TEXT CHECK (length(token) = 32),
  epoch          INTEGER,
  lease_until_ms INTEGER,
  due_ms         INTEGER,
  CHECK ((state = 'leased') = (token IS NOT NULL)),
  CHECK ((state = 'leased') = (epoch IS NOT NULL)),
  CHECK ((state = 'leased') = (lease_until_ms IS NOT NULL)),
  CHECK ((state = 'deferred') = (due_ms IS NOT NULL)),
  CHECK (state IN ('pending', 'excluded', 'done') OR counted = 1), -- done unclaimed: closed with its whole host
  CHECK (state <> 'leased' OR attempts > 0)
) STRICT;

INSERT INTO pages_2
SELECT id, hash_high, hash_low, url, host_id, found_on, depth,
       CASE WHEN id IN (SELECT page_id FROM results WHERE outcome = 'out_of_scope') THEN 'excluded' ELSE state END,
       counted, attempts, retries, token, epoch, lease_until_ms, due_ms
  FROM pages;
DELETE FROM results WHERE outcome = 'out_of_scope';
DROP TABLE pages;
ALTER TABLE pages_2 RENAME TO pages;

CREATE UNIQUE INDEX pages_identity ON pages (hash_high, hash_low);
-- Partial, so that what is done costs a claim nothing.
CREATE INDEX pages_pending  ON pages (host_id, id)     WHERE state = 'pending';
CREATE INDEX pages_leased   ON pages (lease_until_ms)  WHERE state = 'leased';
CREATE INDEX pages_deferred ON pages (due_ms)          WHERE state = 'deferred';

DROP TABLE counters;
-- One row that is right in every snapshot, so that counting costs nothing however large the frontier is.
CREATE TABLE counters (
  one         INTEGER PRIMARY KEY CHECK (one = 1),
  pending     INTEGER NOT NULL CHECK (pending >= 0),
  leased      INTEGER NOT NULL CHECK (leased >= 0),
  deferred    INTEGER NOT NULL CHECK (deferred >= 0),
  done        INTEGER NOT NULL CHECK (done >= 0),
  quarantined INTEGER NOT NULL CHECK (quarantined >= 0),
  excluded    INTEGER NOT NULL CHECK (excluded >= 0),
  counted     INTEGER NOT NULL CHECK (counted >= 0),
  reclaimable INTEGER NOT NULL CHECK (reclaimable >= 0), -- pending and counted: claims that cost no budget
  failed      INTEGER NOT NULL CHECK (failed >= 0),
  bytes       INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT;
INSERT INTO counters
SELECT 1,
       count(*) FILTER (WHERE state = 'pending'),
       count(*) FILTER (WHERE state = 'leased'),
       count(*) FILTER (WHERE state = 'deferred'),
       count(*) FILTER (WHERE state = 'done'),
       count(*) FILTER (WHERE state = 'quarantined'),
       count(*) FILTER (WHERE state = 'excluded'),
       count(*) FILTER (WHERE counted),
       count(*) FILTER (WHERE counted AND state = 'pending'),
       (SELECT count(*) FROM results WHERE failed),
       (SELECT coalesce(sum(bytes), 0) FROM results)
  FROM pages;

CREATE TRIGGER pages_added AFTER INSERT ON pages BEGIN
  SELECT RAISE(ABORT, 'a page begins pending or excluded')
    WHERE new.state NOT IN ('pending', 'excluded') OR new.counted <> 0;
  UPDATE counters SET pending = pending + (new.state = 'pending'), excluded = excluded + (new.state = 'excluded');
END;

CREATE TRIGGER pages_moved AFTER UPDATE OF state ON pages BEGIN
  SELECT RAISE(ABORT, 'a page that is done stays done') WHERE old.state = 'done' AND new.state <> 'done';
  UPDATE counters SET
    pending     = pending     + (new.state = 'pending')     - (old.state = 'pending'),
    leased      = leased      + (new.state = 'leased')      - (old.state = 'leased'),
    deferred    = deferred    + (new.state = 'deferred')    - (old.state = 'deferred'),
    done        = done        + (new.state = 'done')        - (old.state = 'done'),
    quarantined = quarantined + (new.state = 'quarantined') - (old.state = 'quarantined'),
    excluded    = excluded    + (new.state = 'excluded')    - (old.state = 'excluded'),
    counted     = counted     + new.counted                 - old.counted,
    reclaimable = reclaimable + (new.state = 'pending' AND new.counted) - (old.state = 'pending' AND old.counted);
END;

-- A page is known by the hash of its URL; should two URLs ever have the same, nothing of it is stored.
CREATE TRIGGER pages_compared BEFORE UPDATE OF url ON pages WHEN new.url <> old.url BEGIN
  SELECT RAISE(ABORT, 'two URLs have the same 128-bit hash');
END;

CREATE TRIGGER results_added AFTER INSERT ON results BEGIN
  SELECT RAISE(ABORT, 'a result belongs to a page that is done')
    WHERE (SELECT state FROM pages WHERE id = new.page_id) <> 'done';
  UPDATE counters SET failed = failed + new.failed, bytes = bytes + new.bytes;
END;

CREATE TRIGGER results_kept BEFORE UPDATE ON results BEGIN
  SELECT RAISE(ABORT, 'a result is written once');
END;
