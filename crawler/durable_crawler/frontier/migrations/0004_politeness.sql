-- Schema version 4: politeness survives a crash (law L9), not only the time until which a host is left alone.

ALTER TABLE hosts ADD COLUMN gap_ms   INTEGER NOT NULL DEFAULT 0 CHECK (gap_ms >= 0);   -- what incidents made of it
ALTER TABLE hosts ADD COLUMN failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0); -- connections, in a row
ALTER TABLE hosts ADD COLUMN openings INTEGER NOT NULL DEFAULT 0 CHECK (openings >= 0); -- of its circuit, in a row

CREATE TABLE robots (
  id          INTEGER PRIMARY KEY,
  origin      TEXT    NOT NULL UNIQUE,                 -- scheme, host and port: a robots.txt holds for exactly these
  body        BLOB    NOT NULL,                        -- empty where there is none, and all is allowed
  failures    INTEGER NOT NULL CHECK (failures >= 0),  -- to reach it, in a row
  expires_ms  INTEGER NOT NULL,                        -- not asked again before
  answered_ms INTEGER NOT NULL                         -- when the body was what the origin said; 0 if it never did
) STRICT;

ALTER TABLE results ADD COLUMN refused  TEXT;    -- JSON: links that were none, or looked like a trap, by reason
ALTER TABLE results ADD COLUMN nofollow INTEGER; -- links that the site does not want to be followed
ALTER TABLE results ADD COLUMN noindex  INTEGER; -- 1 where the page does not want to be found
