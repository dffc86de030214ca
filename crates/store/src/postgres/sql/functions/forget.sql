-- A session is gone: it stands nowhere any more, nor among what these nodes may hold. A session that somebody has made is left
-- alone. Said twice, it changes nothing.
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
