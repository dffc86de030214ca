-- Stops counting a session that has closed. Idempotent.
CREATE OR REPLACE FUNCTION release(p_session bytea) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  its_principal bytea;
BEGIN
  PERFORM without_flush();
  UPDATE session SET closed = true WHERE id = p_session AND NOT closed RETURNING principal INTO its_principal;
  IF FOUND THEN
    PERFORM uncount(its_principal, true, false);
  END IF;
END
$$;
