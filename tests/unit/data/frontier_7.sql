-- A frontier of schema version 7 after an unclean end: a page in each state, and one that the spec did not cover.
INSERT INTO meta (one, canonicalisation, created_ms, epoch, spec, clean) VALUES (1, 1, 1800000000000, 7, 'earlier', 0);
INSERT INTO hosts (id, authority, closed_until_ms, gap_ms, failures, openings)
VALUES (1, 'a.example', 0, 500, 0, 0), (2, 'b.example', 0, 0, 0, 0);
INSERT INTO pages (id, hash_high, hash_low, url, host_id, depth, state) VALUES (1, 7740685750381465375, 5220597203606577407, 'https://a.example/', 1, 0, 'pending');
INSERT INTO pages (id, hash_high, hash_low, url, host_id, depth, state) VALUES (2, 970412896783642765, -8639834892651713894, 'https://a.example/leased', 1, 1, 'pending');
INSERT INTO pages (id, hash_high, hash_low, url, host_id, depth, state) VALUES (3, -7278349877173300738, 8190776494848642061, 'https://a.example/deferred', 1, 1, 'pending');
INSERT INTO pages (id, hash_high, hash_low, url, host_id, depth, state) VALUES (4, 8419115904052653001, 5758525651528331250, 'https://a.example/done', 1, 1, 'pending');
INSERT INTO pages (id, hash_high, hash_low, url, host_id, depth, state, left_out) VALUES (5, -9008727019197256491, -27448945287681131, 'https://b.example/closed', 2, 1, 'excluded', 'authority');
UPDATE pages SET state = 'leased', counted = 1, attempts = 1, token = '0123456789abcdef0123456789abcdef', epoch = 7,
                 lease_until_ms = 1800000100000 WHERE id = 2;
UPDATE pages SET state = 'deferred', counted = 1, retries = 1, due_ms = 1800000300000 WHERE id = 3;
UPDATE pages SET state = 'done', counted = 1 WHERE id = 4;
INSERT INTO results (page_id, outcome, status, failed, finished_ms, dropped_links, refused, nofollow, noindex)
VALUES (4, 'ok', 200, 0, 1800000000500, 7, '{"scheme":3}', 2, 1);
INSERT INTO robots (origin, body, failures, expires_ms, answered_ms)
VALUES ('https://a.example', CAST('User-agent: *' AS BLOB), 0, 1800000400000, 1800000000000);
