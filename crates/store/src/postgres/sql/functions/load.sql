-- Returns a session unless it has the version that the caller knows. STABLE: all statements see the
-- same snapshot.
CREATE OR REPLACE FUNCTION load(p_session bytea, p_seen bytea) RETURNS found
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
-- The plan must not depend on statistics, which come later than the first rows: there is an index
-- for each query.
SET enable_seqscan = off
-- Only a plain index scan marks dead rows in the index, and each call leaves one or two of them.
SET enable_bitmapscan = off
-- One plan is right for all values, and planning takes longer than execution.
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
