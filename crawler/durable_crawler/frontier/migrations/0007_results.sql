-- Schema version 7: what a crawl found, and not only whether it finished: links with their text, hashes, attempts.

ALTER TABLE results ADD COLUMN content_hash BLOB;    -- BLAKE2b-128 of the decoded body, where it was read
ALTER TABLE results ADD COLUMN canonical    TEXT;    -- what <link rel=canonical> names, where it is another URL
ALTER TABLE results ADD COLUMN waited_ms    INTEGER; -- of duration_ms: for its turns at the host, not for the server
ALTER TABLE results ADD COLUMN parse_ms     INTEGER;

-- What links say, each wording once: pages repeat their navigation. (Not unique: the program remembers the latest ones
-- only, and makes a wording anew that it has forgotten.)
CREATE TABLE anchors (
  id       INTEGER PRIMARY KEY,
  target   INTEGER NOT NULL REFERENCES pages (id),
  fragment TEXT    NOT NULL, -- as it stands in the reference, behind the #; empty without one
  text     TEXT    NOT NULL, -- white space collapsed, cut
  rel      TEXT    NOT NULL  -- lower case, words separated by one space
) STRICT;

-- The links of a page that is done, in document order. edges.py packs and reads them: (anchors.id, position).
CREATE TABLE edges (
  page_id INTEGER PRIMARY KEY REFERENCES pages (id),
  packed  BLOB    NOT NULL
) STRICT;

-- The ids of a page's elements (and names of its a elements): sorted hashes of 4 bytes, see edges.py.
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
