-- Schema version 7: what a crawl found, and not only whether it finished: links with their text, hashes, attempts.

ALTER TABLE results ADD COLUMN content_hash BLOB;    -- BLAKE2b-128 of the decoded body, where it was read
ALTER TABLE results ADD COLUMN canonical    TEXT;    -- what <link rel=canonical> names, where it is another URL
ALTER TABLE results ADD COLUMN waited_ms    INTEGER; -- of duration_ms: for its turns at the host, not for the server
ALTER TABLE results ADD COLUMN parse_ms     INTEGER;

-- 1 for a page outside of the crawl that was asked for all the same, whether it is there (audit.externalLinks).
ALTER TABLE pages ADD COLUMN verified INTEGER CHECK (verified = 1);
CREATE INDEX pages_external ON pages (host_id, id) WHERE left_out = 'authority';
CREATE INDEX pages_verified ON pages (id)          WHERE verified = 1;

-- As before; and what was only verified may become a page of the crawl, which is read.
DROP TRIGGER results_taken_away;
CREATE TRIGGER results_taken_away BEFORE DELETE ON results BEGIN
  SELECT RAISE(ABORT, 'a result that is no failure stays')
    WHERE old.failed = 0 AND (SELECT verified FROM pages WHERE id = old.page_id) IS NULL;
  UPDATE counters SET failed = failed - old.failed, bytes = bytes - old.bytes;
  UPDATE tallies SET total = total - 1 WHERE kind = 'outcome' AND name = old.outcome;
  UPDATE tallies SET total = total - (SELECT value FROM json_each(old.refused) WHERE key = name)
   WHERE kind = 'refused' AND name IN (SELECT key FROM json_each(old.refused));
  UPDATE tallies SET total = total - coalesce(old.nofollow, 0) WHERE kind = 'refused' AND name = 'nofollow';
  UPDATE tallies SET total = total - old.dropped_links WHERE kind = 'refused' AND name = 'above_max_links';
  UPDATE tallies SET total = total - coalesce(old.noindex, 0) WHERE kind = 'asks' AND name = 'noindex';
END;

-- The links of a page that is done, in document order; edges.py packs and reads them. What a link says is told by the
-- first page that says it, and has a number by which later pages name it: those of this page count from its id.
CREATE TABLE edges (
  id      INTEGER PRIMARY KEY,
  page_id INTEGER NOT NULL REFERENCES pages (id),
  packed  BLOB    NOT NULL
) STRICT;

-- The ids of a page's elements (and names of its a elements): sorted hashes of 3 bytes, see edges.py.
CREATE TABLE fragments (
  page_id INTEGER PRIMARY KEY REFERENCES pages (id),
  hashes  BLOB    NOT NULL
) STRICT;

-- Attempts that were worth another one; the last of a page is its result.
CREATE TABLE attempts (
  id          INTEGER PRIMARY KEY,
  page_id     INTEGER NOT NULL REFERENCES pages (id),
  ended_ms    INTEGER NOT NULL,
  duration_ms INTEGER NOT NULL,
  outcome     TEXT    NOT NULL,
  status      INTEGER,
  error       TEXT    NOT NULL,
  due_ms      INTEGER NOT NULL -- when the next one may begin
) STRICT;
CREATE INDEX attempts_page ON attempts (page_id);

-- What was finished or failed last is found at once (law L15). Tallies have another kind from now on:
--   spent     milliseconds of all processes by what they went into (spent.py, board.Wait)
CREATE INDEX results_lately   ON results (finished_ms);
CREATE INDEX results_failures ON results (finished_ms) WHERE failed = 1;
