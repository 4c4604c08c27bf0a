-- Every statement that the frontier runs, by name. Those of a flush work on sets (json_each), so that the number of
-- statements does not grow with the number of pages (only with every 5,000 links, and with what is rare: a robots.txt, a
-- dead host), and the same shapes carry over to PostgreSQL.

-- name: begin
BEGIN IMMEDIATE;

-- name: commit
COMMIT;

-- name: epoch
-- Read inside each flush: whoever finds another epoch than its own has been replaced.
SELECT epoch FROM meta;

-- name: spend
-- [cause, milliseconds] that went by since the last time.
INSERT INTO tallies
SELECT 'spent', value ->> 0, value ->> 1 FROM json_each(:spent) WHERE (SELECT epoch FROM meta) = :epoch
    ON CONFLICT DO UPDATE SET total = total + excluded.total;

-- name: new_epoch
UPDATE meta SET epoch = epoch + 1, clean = 0, spec = :spec RETURNING epoch;

-- name: identity
SELECT canonicalisation, spec, clean FROM meta;

-- name: create
INSERT INTO meta (one, canonicalisation, created_ms, epoch, clean) VALUES (1, :canonicalisation, :now, 0, 1);

-- name: closed
-- The last write of an orderly end; until then the frontier counts as killed.
UPDATE meta SET clean = 1 WHERE epoch = :epoch;

-- name: recover
-- At a start, nobody holds a lease: they all belong to older epochs, whose processes can write nothing any more.
-- A page that was claimed :limit times without an outcome may be what killed them.
UPDATE pages
   SET state = CASE WHEN attempts >= :limit THEN 'quarantined' ELSE 'pending' END,
       token = NULL, epoch = NULL, lease_until_ms = NULL
 WHERE state = 'leased'
RETURNING id;

-- name: clamp_due
-- Stored times of a clock that was ahead: no page waits longer than any backoff can be.
UPDATE pages SET due_ms = :latest WHERE state = 'deferred' AND due_ms > :latest;

-- name: clamp_closed
UPDATE hosts SET closed_until_ms = :latest WHERE closed_until_ms > :latest;

-- name: restart_request
SELECT restart_request FROM meta;

-- name: keep_restart_request
UPDATE meta SET restart_request = :request;

-- name: take_failures_away
-- Once for each request; then the pages without a result, and those set aside, are as if they had just been found.
DELETE FROM results WHERE failed = 1;

-- name: try_again
UPDATE pages SET state = 'pending', attempts = 0, retries = 0
 WHERE state = 'quarantined' OR (state = 'done' AND NOT EXISTS (SELECT 1 FROM results WHERE page_id = pages.id))
RETURNING id;

-- name: forgive_hosts
-- A host that was given up is asked again; one that asked to be left alone is left alone.
UPDATE hosts SET failures = 0, openings = 0 WHERE failures > 0 OR openings > 0;

-- name: forgive_robots
-- One that was never reached is as if it had not been asked for: a row without failures would say that all is allowed.
DELETE FROM robots WHERE failures > 0;

-- name: add_hosts
INSERT INTO hosts (authority) SELECT value FROM json_each(:authorities) WHERE true ON CONFLICT DO NOTHING;

-- name: hosts
-- Approved hosts with their gates, and whether anything can be claimed on them.
SELECT id, authority, closed_until_ms, gap_ms, failures, openings,
       EXISTS (SELECT 1 FROM pages WHERE host_id = hosts.id AND state = 'pending') AS stocked
  FROM hosts
 WHERE authority IN (SELECT value FROM json_each(:authorities));

-- name: readmit
-- What an edited spec covers again, or for the first time. objection() is scope.Scope's: why it does not cover a page.
UPDATE pages SET state = 'pending', left_out = NULL WHERE state = 'excluded' AND objection(url, depth) IS NULL;

-- name: exclude
-- What an edited spec no longer covers, or not for the same reason. It is kept, and the next edit may take it back in.
-- To be run after readmit, which leaves no excluded page without an objection.
UPDATE pages SET state = 'excluded', due_ms = NULL, left_out = objection(url, depth)
 WHERE state IN ('pending', 'deferred', 'excluded') AND objection(url, depth) IS NOT left_out;

-- name: put_back_external
-- What was to be verified and was not: it is left out again, until the crawl's own pages are done.
UPDATE pages SET state = 'excluded', left_out = 'authority', due_ms = NULL, verified = NULL
 WHERE verified = 1 AND state IN ('pending', 'deferred');

-- name: forget_verified
-- Of pages that an edited spec covers: they have been looked at, and not read. objection() is scope.Scope's.
DELETE FROM results
 WHERE page_id IN (SELECT id FROM pages WHERE verified = 1 AND objection(url, depth) IS NULL);

-- name: read_verified
UPDATE pages SET state = 'pending', verified = NULL, attempts = 0, retries = 0
 WHERE verified = 1 AND objection(url, depth) IS NULL;

-- name: verified
-- How many pages outside of the crawl were admitted, and how many of them claimed.
SELECT count(*), coalesce(sum(counted), 0) FROM pages WHERE verified = 1;

-- name: external_hosts
-- The next :limit hosts with links to them that were not verified yet.
SELECT DISTINCT host_id FROM pages WHERE left_out = 'authority' LIMIT :limit;

-- name: admit_external
UPDATE pages SET state = 'pending', left_out = NULL, verified = 1
 WHERE id IN (SELECT id FROM pages
               WHERE left_out = 'authority' AND host_id IN (SELECT value FROM json_each(:hosts)) LIMIT :limit)
RETURNING host_id;

-- name: hosts_by_id
SELECT id, authority, closed_until_ms, gap_ms, failures, openings
  FROM hosts
 WHERE id IN (SELECT value FROM json_each(:hosts));

-- name: add_pages
-- [hash_high, hash_low, url, host_id, depth, found_on], all of them covered by the spec. What is known is left as it is,
-- except that a shorter way may be found to a page that is not done, or to one that was too deep.
INSERT INTO pages (hash_high, hash_low, url, host_id, depth, found_on, state)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, 'pending'
  FROM json_each(:pages) WHERE true
ON CONFLICT (hash_high, hash_low) DO UPDATE
   SET url = excluded.url,
       depth = min(pages.depth, excluded.depth),
       state = CASE pages.state WHEN 'excluded' THEN 'pending' ELSE pages.state END,
       left_out = NULL
 WHERE pages.url <> excluded.url
    OR pages.state = 'excluded'
    OR (pages.state <> 'done' AND excluded.depth < pages.depth)
RETURNING host_id;

-- name: leave_out
-- [hash_high, hash_low, url, authority, depth, found_on, why]: links that the spec does not cover, kept for when it does.
INSERT INTO pages (hash_high, hash_low, url, host_id, depth, found_on, state, left_out)
SELECT value ->> 0, value ->> 1, value ->> 2, hosts.id, value ->> 4, value ->> 5, 'excluded', value ->> 6
  FROM json_each(:pages) JOIN hosts ON hosts.authority = value ->> 3 WHERE true
ON CONFLICT (hash_high, hash_low) DO UPDATE
   SET url = excluded.url, depth = min(pages.depth, excluded.depth), left_out = excluded.left_out
 WHERE pages.url <> excluded.url
    OR (pages.state = 'excluded' AND excluded.depth < pages.depth);

-- name: page_ids
-- [hash_high, hash_low] by their places in the list.
SELECT link.key, pages.id, pages.depth
  FROM json_each(:links) AS link CROSS JOIN pages
    ON pages.hash_high = link.value ->> 0 AND pages.hash_low = link.value ->> 1;

-- name: last_edges
SELECT id, packed FROM edges ORDER BY id DESC LIMIT 1;

-- name: add_edges
-- [id, page, begin, length] of :packed, which holds those of all pages one after the other; begins count from 1.
INSERT INTO edges (id, page_id, packed)
SELECT value ->> 0, value ->> 1, substr(:packed, value ->> 2, value ->> 3) FROM json_each(:pages);

-- name: add_fragments
-- [page, begin, length] as above. To SQLite, a part of nothing is NULL.
INSERT INTO fragments (page_id, hashes)
SELECT value ->> 0, coalesce(substr(:packed, value ->> 1, value ->> 2), x'') FROM json_each(:pages);

-- name: finish
-- [id, token]. Names page, state, epoch, token and a lease that has not run out: what is not returned was lost.
UPDATE pages
   SET state = 'done', token = NULL, epoch = NULL, lease_until_ms = NULL, attempts = 0
  FROM json_each(:leases) AS lease
 WHERE pages.id = lease.value ->> 0 AND pages.token = lease.value ->> 1
   AND pages.state = 'leased' AND pages.epoch = :epoch AND pages.lease_until_ms > :now
RETURNING pages.id;

-- name: record
INSERT INTO results (page_id, outcome, status, final_url, content_type, bytes, title, links, dropped_links,
                     hops, error, failed, finished_ms, duration_ms, refused, nofollow, noindex,
                     waited_ms, parse_ms, canonical, content_hash)
SELECT value ->> '$.page', value ->> '$.outcome', value ->> '$.status', value ->> '$.final_url',
       value ->> '$.content_type', value ->> '$.bytes', value ->> '$.title', value ->> '$.links',
       value ->> '$.dropped_links', value ->> '$.hops', value ->> '$.error', value ->> '$.failed',
       :now, value ->> '$.duration_ms', value ->> '$.refused', value ->> '$.nofollow', value ->> '$.noindex',
       value ->> '$.waited_ms', value ->> '$.parse_ms', value ->> '$.canonical',
       substr(:hashes, value ->> '$.hash', 16)
  FROM json_each(:results);

-- name: defer
-- [id, token, due_ms]. A retry is a settled attempt: the claims without an outcome start anew.
UPDATE pages
   SET state = 'deferred', due_ms = lease.value ->> 2, retries = retries + 1, attempts = 0,
       token = NULL, epoch = NULL, lease_until_ms = NULL
  FROM json_each(:leases) AS lease
 WHERE pages.id = lease.value ->> 0 AND pages.token = lease.value ->> 1
   AND pages.state = 'leased' AND pages.epoch = :epoch AND pages.lease_until_ms > :now
RETURNING pages.id;

-- name: note_attempts
-- [page, outcome, status, error, duration_ms, due_ms]
INSERT INTO attempts (page_id, outcome, status, error, duration_ms, due_ms, ended_ms)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, :now FROM json_each(:attempts);

-- name: pace_hosts
-- [host_id, closed_until_ms, gap_ms, failures, openings]. A gate is only ever moved further away.
UPDATE hosts SET closed_until_ms = max(closed_until_ms, host.value ->> 1),
                 gap_ms = host.value ->> 2, failures = host.value ->> 3, openings = host.value ->> 4
  FROM json_each(:hosts) AS host
 WHERE hosts.id = host.value ->> 0;

-- name: close_hosts
-- [host_id, until_ms]: only the gate.
UPDATE hosts SET closed_until_ms = max(closed_until_ms, gate.value ->> 1)
  FROM json_each(:gates) AS gate
 WHERE hosts.id = gate.value ->> 0;

-- name: close_pending
-- Of the pages of a dead host, :limit at a time; those in flight settle by themselves.
UPDATE pages SET state = 'done'
 WHERE id IN (SELECT id FROM pages WHERE host_id = :host AND state = 'pending' LIMIT :limit)
RETURNING id;

-- name: close_deferred
UPDATE pages SET state = 'done', due_ms = NULL
 WHERE id IN (SELECT id FROM pages WHERE host_id = :host AND state = 'deferred' LIMIT :limit)
RETURNING id;

-- name: record_closed
INSERT INTO results (page_id, outcome, failed, error, finished_ms)
SELECT value, :outcome, 1, :error, :now FROM json_each(:pages);

-- name: robots
SELECT origin, body, failures, expires_ms, answered_ms FROM robots WHERE origin = :origin;

-- name: keep_robots
INSERT INTO robots (origin, body, failures, expires_ms, answered_ms)
VALUES (:origin, :body, :failures, :expires_ms, :answered_ms)
ON CONFLICT (origin) DO UPDATE
   SET body = excluded.body, failures = excluded.failures,
       expires_ms = excluded.expires_ms, answered_ms = excluded.answered_ms;

-- name: release
-- [id, token]. Given back unworked: no attempt is charged.
UPDATE pages
   SET state = 'pending', attempts = attempts - 1, token = NULL, epoch = NULL, lease_until_ms = NULL
  FROM json_each(:leases) AS lease
 WHERE pages.id = lease.value ->> 0 AND pages.token = lease.value ->> 1
   AND pages.state = 'leased' AND pages.epoch = :epoch
RETURNING pages.id, pages.host_id;

-- name: renew
-- [id, token]
UPDATE pages SET lease_until_ms = :until
  FROM json_each(:leases) AS lease
 WHERE pages.id = lease.value ->> 0 AND pages.token = lease.value ->> 1
   AND pages.state = 'leased' AND pages.epoch = :epoch AND pages.lease_until_ms > :now
RETURNING pages.id;

-- name: expire
-- Leases that nobody renewed in time, of this very process (it was stopped, or too slow).
UPDATE pages
   SET state = CASE WHEN attempts >= :limit THEN 'quarantined' ELSE 'pending' END,
       token = NULL, epoch = NULL, lease_until_ms = NULL
 WHERE state = 'leased' AND lease_until_ms <= :now
RETURNING host_id;

-- name: promote
UPDATE pages SET state = 'pending', due_ms = NULL WHERE state = 'deferred' AND due_ms <= :now RETURNING host_id;

-- name: claim
-- [host_id, slots]. Walks the pending pages of each host in the order of their discovery, as many as it has slots, and
-- takes :limit in all; a page that was never claimed costs one of :budget. Those that were claimed before are walked by
-- themselves and go first: new pages that the budget does not allow must not stand in their way.
WITH RECURSIVE wanted (host_id, slots) AS (
  SELECT value ->> 0, value ->> 1 FROM json_each(:wants) WHERE value ->> 1 > 0
),
again (host_id, slots, id) AS (
  SELECT host_id, slots,
         (SELECT min(id) FROM pages WHERE host_id = wanted.host_id AND state = 'pending' AND counted = 1)
    FROM wanted
  UNION ALL
  SELECT host_id, slots - 1,
         (SELECT min(id) FROM pages
           WHERE host_id = again.host_id AND state = 'pending' AND counted = 1 AND id > again.id)
    FROM again
   WHERE slots > 1 AND id IS NOT NULL
),
any_pending (host_id, slots, id) AS (
  SELECT host_id, slots, (SELECT min(id) FROM pages WHERE host_id = wanted.host_id AND state = 'pending')
    FROM wanted
  UNION ALL
  SELECT host_id, slots - 1,
         (SELECT min(id) FROM pages WHERE host_id = any_pending.host_id AND state = 'pending' AND id > any_pending.id)
    FROM any_pending
   WHERE slots > 1 AND id IS NOT NULL
),
picked (id, counted, slots, place) AS (
  SELECT pages.id, pages.counted, wanted.slots,
         row_number() OVER (PARTITION BY pages.host_id ORDER BY pages.counted DESC, pages.id)
    FROM (SELECT id FROM again UNION SELECT id FROM any_pending) AS walked
    JOIN pages ON pages.id = walked.id
    JOIN wanted ON wanted.host_id = pages.host_id
),
affordable (id) AS (
  SELECT id FROM (
    SELECT id, counted, sum(1 - counted) OVER (ORDER BY counted DESC, id) AS cost
      FROM picked
     WHERE place <= slots
  )
  WHERE counted = 1 OR cost <= :budget
  LIMIT :limit
)
UPDATE pages
   SET state = 'leased', token = lower(hex(randomblob(16))), epoch = :epoch, lease_until_ms = :until,
       attempts = attempts + 1, counted = 1
 WHERE id IN (SELECT id FROM affordable)
RETURNING id, token, url, host_id, depth, attempts, retries;

-- name: snapshot
SELECT pending, leased, deferred, done, quarantined, excluded, counted, reclaimable, failed, bytes,
       (SELECT min(due_ms) FROM pages WHERE state = 'deferred') AS next_due_ms
  FROM counters;

-- name: seed_results
-- How the seeds fared, for the summary of a crawl that fetched nothing.
SELECT pages.url, results.outcome, results.status, results.final_url, results.hops
  FROM pages JOIN results ON results.page_id = pages.id
 WHERE pages.depth = 0
 ORDER BY pages.id
 LIMIT :limit;

-- name: usable_pages
SELECT EXISTS (SELECT 1 FROM results WHERE outcome = 'ok' OR (outcome = 'not_html')) AS any;

-- name: checkpoint
-- Without waiting for readers: what they still need is checkpointed the next time.
PRAGMA wal_checkpoint(PASSIVE);

-- name: last_checkpoint
PRAGMA wal_checkpoint(TRUNCATE);

-- name: finished_urls
SELECT url FROM pages WHERE state = 'done';

-- name: broken_invariants
-- What the schema cannot say row by row. Empty, always: the crash tests ask after every kill.
WITH kept AS (SELECT kind, name, total FROM tallies WHERE total > 0 AND kind <> 'spent'),
counted (kind, name, total) AS (
  SELECT 'outcome', outcome, count(*) FROM results GROUP BY outcome
  UNION ALL SELECT 'left_out', left_out, count(*) FROM pages WHERE left_out IS NOT NULL GROUP BY left_out
  UNION ALL SELECT 'refused', key, sum(value) FROM results, json_each(refused) GROUP BY key
  UNION ALL SELECT 'refused', 'nofollow', sum(nofollow) FROM results
  UNION ALL SELECT 'refused', 'above_max_links', sum(dropped_links) FROM results
  UNION ALL SELECT 'asks', 'noindex', sum(noindex) FROM results
)
SELECT 'page done without result' FROM pages WHERE state = 'done' AND id NOT IN (SELECT page_id FROM results)
UNION SELECT 'result of a page that is not done'
        FROM results JOIN pages ON pages.id = page_id WHERE state <> 'done'
UNION SELECT 'counters differ from the rows'
        FROM counters
       WHERE pending     <> (SELECT count(*) FROM pages WHERE state = 'pending')
          OR leased      <> (SELECT count(*) FROM pages WHERE state = 'leased')
          OR deferred    <> (SELECT count(*) FROM pages WHERE state = 'deferred')
          OR done        <> (SELECT count(*) FROM pages WHERE state = 'done')
          OR quarantined <> (SELECT count(*) FROM pages WHERE state = 'quarantined')
          OR excluded    <> (SELECT count(*) FROM pages WHERE state = 'excluded')
          OR counted     <> (SELECT count(*) FROM pages WHERE counted)
          OR reclaimable <> (SELECT count(*) FROM pages WHERE counted AND state = 'pending')
          OR failed      <> (SELECT count(*) FROM results WHERE failed)
          OR bytes       <> (SELECT coalesce(sum(bytes), 0) FROM results)
UNION SELECT 'tallies differ from the rows' FROM (SELECT * FROM kept EXCEPT SELECT * FROM counted)
UNION SELECT 'tallies differ from the rows' FROM (SELECT * FROM counted WHERE total > 0 EXCEPT SELECT * FROM kept)
UNION SELECT 'tallies do not add up' FROM counters
       WHERE done <> (SELECT coalesce(sum(total), 0) FROM tallies WHERE kind = 'outcome')
          OR excluded <> (SELECT coalesce(sum(total), 0) FROM tallies WHERE kind = 'left_out')
                         + (SELECT count(*) FROM pages WHERE state = 'excluded' AND left_out IS NULL)
UNION SELECT 'lease of an epoch that has not begun' FROM pages, meta WHERE pages.epoch > meta.epoch
UNION SELECT 'links of a page without a result' FROM edges WHERE page_id NOT IN (SELECT page_id FROM results)
UNION SELECT 'ids of a page without a result' FROM fragments WHERE page_id NOT IN (SELECT page_id FROM results)
UNION SELECT 'links of a page twice' FROM edges GROUP BY page_id HAVING count(*) > 1
UNION SELECT 'page found on a page that is not done'
        FROM pages JOIN pages AS parent ON parent.id = pages.found_on WHERE parent.state <> 'done';

-- name: tallies
SELECT name, total FROM tallies WHERE kind = :kind AND total > 0 ORDER BY total DESC, name;

-- name: liveness
-- Whether the last owner closed the frontier, and until when it holds its leases, if any.
SELECT clean, (SELECT max(lease_until_ms) FROM pages WHERE state = 'leased') FROM meta;

-- name: waiting_hosts
-- The :limit hosts with the most pending pages, and how many wait in all. Walks the three partial indexes: its time grows
-- with what is pending and deferred, not with what is done.
WITH waiting (host_id, pending, deferred, leased, due_ms) AS (
  SELECT host_id, count(*), 0, 0, NULL FROM pages WHERE state = 'pending' GROUP BY host_id
  UNION ALL
  SELECT host_id, 0, count(*), 0, min(due_ms) FROM pages WHERE state = 'deferred' GROUP BY host_id
  UNION ALL
  SELECT host_id, 0, 0, count(*), NULL FROM pages WHERE state = 'leased' GROUP BY host_id
),
ranked AS (
  SELECT host_id, sum(pending) AS pending, sum(deferred) AS deferred, sum(leased) AS leased, min(due_ms) AS due_ms,
         count(*) OVER () AS hosts
    FROM waiting
   GROUP BY host_id
   ORDER BY sum(pending) DESC, sum(deferred) DESC, host_id
   LIMIT :limit
)
SELECT authority, pending, deferred, leased, due_ms, closed_until_ms, gap_ms, failures, openings, hosts
  FROM ranked JOIN hosts ON hosts.id = host_id
 ORDER BY pending DESC, deferred DESC, host_id;

-- name: finished_lately
-- Without those that were closed together with their dead host, which says nothing about speed.
SELECT authority, finished_ms, duration_ms, coalesce(waited_ms, 0), coalesce(parse_ms, 0)
  FROM (SELECT * FROM results ORDER BY finished_ms DESC LIMIT :limit) AS latest
  JOIN pages ON pages.id = page_id JOIN hosts ON hosts.id = host_id
 WHERE outcome <> 'host_dead';

-- name: failed_lately
SELECT url, outcome, status, error, finished_ms
  FROM (SELECT * FROM results WHERE failed = 1 ORDER BY finished_ms DESC LIMIT :limit) AS latest
  JOIN pages ON pages.id = page_id
 ORDER BY finished_ms DESC, page_id DESC;

-- name: robots_bodies
SELECT origin, body FROM robots WHERE failures = 0 AND origin IN (SELECT value FROM json_each(:origins));

-- name: robots_states
-- Without the bodies, of which only the length matters here.
SELECT origin, length(body), failures, expires_ms, answered_ms FROM robots
 WHERE origin IN (SELECT value FROM json_each(:origins))
 ORDER BY origin;

-- name: quarantined
SELECT url, attempts FROM pages WHERE state = 'quarantined' ORDER BY id LIMIT :limit;
