-- When to sweep which session. No change has to reach the disk before it is acknowledged: if it is
-- lost, the session is swept earlier.

-- Schedules the next sweep of a session, unless it is scheduled earlier.
CREATE OR REPLACE FUNCTION schedule(p_session bytea, p_at bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM without_flush();
  UPDATE session SET due = p_at WHERE id = p_session AND due > p_at;
END
$$;

-- Moves the next sweep of a session, if it is still scheduled for the given time.
CREATE OR REPLACE FUNCTION reschedule(p_session bytea, p_seen bigint, p_at bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM without_flush();
  UPDATE session SET due = p_at WHERE id = p_session AND due = p_seen;
END
$$;

CREATE OR REPLACE FUNCTION due(p_now bigint, p_batch bigint) RETURNS TABLE (id bytea, principal bytea, at bigint)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
  SELECT session.id, session.principal, session.due FROM session WHERE session.due <= p_now
  ORDER BY session.due LIMIT p_batch
$$;
