-- Removes a session if it has the expected version or does not exist. Returns true if the session
-- does not exist any more.
CREATE OR REPLACE FUNCTION remove(p_session bytea, p_seen bytea) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
DECLARE
  old session;
BEGIN
  PERFORM without_flush();
  DELETE FROM session WHERE id = p_session AND stamp = p_seen RETURNING * INTO old;
  IF NOT FOUND THEN
    PERFORM FROM session WHERE id = p_session AND stamp <> '';
    RETURN NOT FOUND;
  END IF;
  DELETE FROM part WHERE session = p_session;
  DELETE FROM event WHERE session = p_session;
  PERFORM uncount(old.principal, NOT old.closed, true);
  RETURN true;
END
$$;
