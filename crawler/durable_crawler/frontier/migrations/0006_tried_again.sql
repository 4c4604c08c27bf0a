-- Schema version 6: what failed is tried again when a restart is requested (restartRequestedAt), once for each request.

ALTER TABLE meta ADD COLUMN restart_request TEXT; -- the latest one that was followed

-- What is done stays done, unless its result was taken away, which only a failure can be.
DROP TRIGGER pages_moved;
CREATE TRIGGER pages_moved AFTER UPDATE OF state ON pages BEGIN
  SELECT RAISE(ABORT, 'a page that is done stays done')
    WHERE old.state = 'done' AND new.state <> 'done' AND EXISTS (SELECT 1 FROM results WHERE page_id = old.id);
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

CREATE TRIGGER results_taken_away BEFORE DELETE ON results BEGIN
  SELECT RAISE(ABORT, 'a result that is no failure stays') WHERE old.failed = 0;
  UPDATE counters SET failed = failed - 1, bytes = bytes - old.bytes;
  UPDATE tallies SET total = total - 1 WHERE kind = 'outcome' AND name = old.outcome;
  UPDATE tallies SET total = total - (SELECT value FROM json_each(old.refused) WHERE key = name)
   WHERE kind = 'refused' AND name IN (SELECT key FROM json_each(old.refused));
  UPDATE tallies SET total = total - coalesce(old.nofollow, 0) WHERE kind = 'refused' AND name = 'nofollow';
  UPDATE tallies SET total = total - old.dropped_links WHERE kind = 'refused' AND name = 'above_max_links';
  UPDATE tallies SET total = total - coalesce(old.noindex, 0) WHERE kind = 'asks' AND name = 'noindex';
END;
