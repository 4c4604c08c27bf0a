-- Schema version 8: what was finished or failed last is found at once (law L15). Tallies have another kind from now on:
--   spent     milliseconds of all processes by what they went into (spent.py, board.Wait)

CREATE INDEX results_lately   ON results (finished_ms);
CREATE INDEX results_failures ON results (finished_ms) WHERE failed = 1;
