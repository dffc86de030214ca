-- Returns the number of sessions, and the `meta` rows of some. Ids are random, so the first ids are
-- a random sample.
CREATE OR REPLACE FUNCTION count_sessions(p_sample bigint, OUT listed bigint, OUT open bigint, OUT sample bytea[])
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT total.listed, total.open, sampled.metas
  FROM total, (
    SELECT array_agg(meta) AS metas
    FROM (SELECT meta FROM session WHERE stamp <> '' ORDER BY id LIMIT p_sample) AS first_ones
  ) AS sampled
$$;
