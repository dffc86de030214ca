-- Helpers for the other functions, which call them under their own settings.

-- The clock of this database, in milliseconds.
CREATE OR REPLACE FUNCTION millis() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- The current transaction need not be on disk when it is acknowledged. It is on disk before any
-- session that is committed after it, because the log has one order. So a crash loses no more of
-- the indexes than of the sessions, and a transaction that waits for the same row does not wait for
-- the disk.
CREATE OR REPLACE FUNCTION without_flush() RETURNS void LANGUAGE sql VOLATILE AS $$
  SELECT set_config('synchronous_commit', 'off', true)
$$;

-- Returns all of a session in one statement, so that everything belongs to one version.
CREATE OR REPLACE FUNCTION snapshot(p_session bytea) RETURNS SETOF found LANGUAGE sql STABLE AS $$
  SELECT 2, s.stamp, s.meta, p.names, p.parts, e.streams, e.seqs, e.sizes, e.classes, NULL::bytea[]
  FROM session s
  CROSS JOIN LATERAL (
    SELECT array_agg(name) AS names, array_agg(value) AS parts FROM part WHERE session = p_session
  ) p
  CROSS JOIN LATERAL (
    SELECT array_agg(stream) AS streams, array_agg(seq) AS seqs, array_agg(size) AS sizes, array_agg(class) AS classes
    FROM event WHERE session = p_session
  ) e
  WHERE s.id = p_session AND s.stamp <> ''
$$;

-- Stops counting a session. Locks are always taken in this order: session, principal, total.
CREATE OR REPLACE FUNCTION uncount(p_principal bytea, p_was_open boolean, p_is_gone boolean) RETURNS void
LANGUAGE plpgsql VOLATILE
-- `total` has one row and no index. Some callers disable sequential scans. The estimated cost would
-- then be so high that the server would JIT-compile the plan each time.
SET enable_seqscan = on
AS $$
DECLARE
  left_open bigint;
BEGIN
  IF p_was_open THEN
    UPDATE tally SET open = open - 1 WHERE principal = p_principal RETURNING open INTO left_open;
    IF left_open <= 0 THEN
      DELETE FROM tally WHERE principal = p_principal;
    END IF;
  END IF;
  UPDATE total SET open = open - p_was_open::integer, listed = listed - p_is_gone::integer;
END
$$;
