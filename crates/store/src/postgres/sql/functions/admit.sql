-- Counts a session and inserts its row, unless a limit is reached. Returns 1 if the session is
-- admitted, 2 if it exists already, 3 if the limit on all sessions is reached, 4 if the limit of
-- the principal is reached.
CREATE OR REPLACE FUNCTION admit(p_session bytea, p_principal bytea, p_due bigint, p_sessions bigint, p_own bigint)
RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM without_flush();
  PERFORM FROM session WHERE id = p_session;
  IF FOUND THEN
    RETURN 2;
  END IF;
  -- A session that is refused here writes nothing, so that a flood of refused sessions is cheap.
  -- The updates below make the final decision.
  PERFORM FROM total WHERE open >= p_sessions;
  IF FOUND THEN
    RETURN 3;
  END IF;
  PERFORM FROM tally WHERE principal = p_principal AND open >= p_own;
  IF FOUND OR p_own <= 0 THEN
    RETURN 4;
  END IF;

  INSERT INTO session (id, principal, due) VALUES (p_session, p_principal, p_due) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN 2;
  END IF;
  INSERT INTO tally (principal, open) VALUES (p_principal, 1)
  ON CONFLICT (principal) DO UPDATE SET open = tally.open + 1 WHERE tally.open < p_own;
  IF NOT FOUND THEN
    DELETE FROM session WHERE id = p_session;
    RETURN 4;
  END IF;
  UPDATE total SET open = open + 1, listed = listed + 1 WHERE open < p_sessions;
  IF NOT FOUND THEN
    DELETE FROM session WHERE id = p_session;
    UPDATE tally SET open = open - 1 WHERE principal = p_principal;
    DELETE FROM tally WHERE principal = p_principal AND open <= 0;
    RETURN 3;
  END IF;
  RETURN 1;
END
$$;
