-- How many sessions there are, and the row of some of them. Ids are drawn by chance, so the first ones are as good as any.
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
