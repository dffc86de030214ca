-- What the functions beside this file share. It is called by them only, and so under their settings.

-- The clock of this database, in milliseconds.
CREATE OR REPLACE FUNCTION millis() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- What is changed in this transaction need not be on disk when it is answered. It is there before any session that is committed
-- after it: the log has one order. So a crash loses no more of the lists than of what they list, and nobody who waits for
-- the same row waits for a disk.
CREATE OR REPLACE FUNCTION without_flush() RETURNS void LANGUAGE sql VOLATILE AS $$
  SELECT set_config('synchronous_commit', 'off', true)
$$;

-- All of a session, in one statement: that is what makes it a session of one version.
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

-- A session counts no more. The order of locks is that of all: the session, its principal, the total.
CREATE OR REPLACE FUNCTION uncount(p_principal bytea, p_was_open boolean, p_is_gone boolean) RETURNS void
LANGUAGE plpgsql VOLATILE
-- The total has one row and no index. Where callers forbid to read whole tables its price would be beyond all bounds, and the
-- server would compile the plan each time.
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
