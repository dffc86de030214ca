-- Gives a session, unless it still has the version that was seen. Stable: everything in here sees one moment.
CREATE OR REPLACE FUNCTION load(p_session bytea, p_seen bytea) RETURNS found
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
-- Which way to read must not depend on statistics that come later than the first rows: there is an index for each.
SET enable_seqscan = off
-- Only a plain scan marks what it finds dead, and each call leaves a row or two.
SET enable_bitmapscan = off
-- One plan is right for all values, and making one takes longer than the work.
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  result found;
BEGIN
  PERFORM FROM session WHERE id = p_session AND stamp = p_seen AND p_seen <> '';
  IF FOUND THEN
    result.kind := 1;
    RETURN result;
  END IF;
  SELECT * INTO result FROM snapshot(p_session);
  result.kind := coalesce(result.kind, 0);
  RETURN result;
END
$$;
