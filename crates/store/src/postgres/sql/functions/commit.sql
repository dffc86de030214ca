-- Commits to a session if it has the expected version `p_seen` (empty if it must not have a version
-- yet). Otherwise returns the session. If `p_next` is NULL, nothing is written.
--
-- A concurrent commit to the same session waits at the first statement, and then sees the new
-- version.
CREATE OR REPLACE FUNCTION commit(
  p_session bytea, p_seen bytea, p_next bytea, p_meta bytea,
  p_names bytea[], p_parts bytea[], p_drop bytea[],
  p_streams bigint[], p_seqs bigint[], p_sizes integer[], p_classes smallint[], p_payloads bytea[],
  p_forget_streams bigint[], p_forget_seqs bigint[]
) RETURNS found
LANGUAGE plpgsql VOLATILE
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
  IF p_next IS NULL THEN
    PERFORM FROM session WHERE id = p_session AND stamp = p_seen;
  ELSE
    UPDATE session SET stamp = p_next, meta = coalesce(p_meta, meta) WHERE id = p_session AND stamp = p_seen;
  END IF;
  IF NOT FOUND THEN
    SELECT * INTO result FROM snapshot(p_session);
    result.kind := coalesce(result.kind, 0);
    RETURN result;
  END IF;

  IF cardinality(p_names) > 0 THEN
    INSERT INTO part (session, name, value)
    SELECT p_session, put.name, put.value FROM unnest(p_names, p_parts) AS put (name, value)
    ON CONFLICT (session, name) DO UPDATE SET value = excluded.value;
  END IF;
  IF cardinality(p_drop) > 0 THEN
    DELETE FROM part WHERE session = p_session AND name = ANY (p_drop);
  END IF;
  IF cardinality(p_streams) > 0 THEN
    INSERT INTO event (session, stream, seq, size, class, payload)
    SELECT p_session, added.* FROM unnest(p_streams, p_seqs, p_sizes, p_classes, p_payloads) AS added;
  END IF;
  IF cardinality(p_forget_streams) > 0 THEN
    DELETE FROM event USING unnest(p_forget_streams, p_forget_seqs) AS dropped (stream, seq)
    WHERE event.session = p_session AND event.stream = dropped.stream AND event.seq = dropped.seq;
  END IF;
  result.kind := 1;
  RETURN result;
END
$$;
