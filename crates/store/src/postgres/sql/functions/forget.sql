-- Deletes the index entries of a session that does not exist, including those of the given nodes. A
-- session with a version is left alone. Idempotent.
CREATE OR REPLACE FUNCTION forget(p_session bytea, p_nodes bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  old session;
BEGIN
  PERFORM without_flush();
  DELETE FROM session WHERE id = p_session AND stamp = '' RETURNING * INTO old;
  IF FOUND THEN
    PERFORM uncount(old.principal, NOT old.closed, true);
  END IF;
  DELETE FROM presence WHERE node = ANY (p_nodes) AND session = p_session;
END
$$;
