-- Schema version 3: a retry is found at once, however many new pages of its host the page limit does not allow.

CREATE INDEX pages_reclaimable ON pages (host_id, id) WHERE state = 'pending' AND counted = 1;
