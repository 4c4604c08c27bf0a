-- Schema version 5: why a page was left out is kept, and what is told of a crawl as a whole costs no scan.

-- A name of scope.LeftOut; unknown (NULL) for a page that an older version left out, until it is opened next.
ALTER TABLE pages ADD COLUMN left_out TEXT CHECK (left_out IS NULL OR state = 'excluded');

CREATE INDEX pages_quarantined ON pages (id) WHERE state = 'quarantined';

-- Sums by name, right in every snapshot as the counters are (law L15). Kinds:
--   outcome   pages that are done
--   left_out  pages that the spec does not cover
--   refused   links that were not followed: no URL of a crawl, a trap, left out by a pattern, nofollow, above the cap
--   asks      pages that ask for something: noindex
CREATE TABLE tallies (
  kind  TEXT    NOT NULL,
  name  TEXT    NOT NULL,
  total INTEGER NOT NULL CHECK (total >= 0),
  PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

INSERT INTO tallies SELECT 'outcome', outcome, count(*) FROM results GROUP BY outcome;
INSERT INTO tallies
SELECT 'refused', key, sum(value) FROM results, json_each(refused) WHERE refused IS NOT NULL GROUP BY key;
INSERT INTO tallies SELECT 'refused', 'nofollow', sum(nofollow) FROM results HAVING sum(nofollow) > 0;
INSERT INTO tallies
SELECT 'refused', 'above_max_links', sum(dropped_links) FROM results HAVING sum(dropped_links) > 0;
INSERT INTO tallies SELECT 'asks', 'noindex', sum(noindex) FROM results HAVING sum(noindex) > 0;

CREATE TRIGGER results_tallied AFTER INSERT ON results BEGIN
  INSERT INTO tallies VALUES ('outcome', new.outcome, 1) ON CONFLICT DO UPDATE SET total = total + 1;
END;

-- Apart from the above, since most results have none of these.
CREATE TRIGGER refusals_tallied AFTER INSERT ON results
WHEN new.refused IS NOT NULL OR new.nofollow > 0 OR new.dropped_links > 0 OR new.noindex > 0 BEGIN
  INSERT INTO tallies SELECT 'refused', key, value FROM json_each(new.refused) WHERE true
      ON CONFLICT DO UPDATE SET total = total + excluded.total;
  INSERT INTO tallies SELECT 'refused', 'nofollow', new.nofollow WHERE new.nofollow > 0
      ON CONFLICT DO UPDATE SET total = total + excluded.total;
  INSERT INTO tallies SELECT 'refused', 'above_max_links', new.dropped_links WHERE new.dropped_links > 0
      ON CONFLICT DO UPDATE SET total = total + excluded.total;
  INSERT INTO tallies SELECT 'asks', 'noindex', 1 WHERE new.noindex > 0
      ON CONFLICT DO UPDATE SET total = total + excluded.total;
END;

CREATE TRIGGER pages_left_out AFTER INSERT ON pages WHEN new.left_out IS NOT NULL BEGIN
  INSERT INTO tallies VALUES ('left_out', new.left_out, 1) ON CONFLICT DO UPDATE SET total = total + 1;
END;

CREATE TRIGGER pages_left_out_moved AFTER UPDATE OF left_out ON pages WHEN new.left_out IS NOT old.left_out BEGIN
  UPDATE tallies SET total = total - 1 WHERE kind = 'left_out' AND name = old.left_out;
  INSERT INTO tallies SELECT 'left_out', new.left_out, 1 WHERE new.left_out IS NOT NULL
      ON CONFLICT DO UPDATE SET total = total + 1;
END;
