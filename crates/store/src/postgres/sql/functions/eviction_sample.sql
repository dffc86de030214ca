-- Returns open sessions with the first ids from `p_from` on, of one principal or (NULL) of all, and
-- how many sessions principals have. Ids are random, so these sessions are a random sample.
CREATE OR REPLACE FUNCTION eviction_sample(
  p_requester bytea, p_of bytea, p_from bytea, p_size bigint, p_max_principals bigint,
  OUT open bigint, OUT principals bigint, OUT own bigint, OUT largest bytea, OUT largest_open bigint,
  OUT ids bytea[], OUT their_principals bytea[], OUT held bigint[], OUT metas bytea[]
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
-- The plan must not depend on statistics, which come later than the first rows: there is an index
-- for each query.
SET enable_seqscan = off
SET enable_bitmapscan = off
-- `total` has no index, so the estimated cost is so high that the server would compile the plan.
SET jit = off
AS $$
BEGIN
  SELECT total.open INTO open FROM total;
  SELECT count(*) INTO principals FROM (SELECT FROM tally LIMIT p_max_principals) AS counted;
  SELECT tally.open INTO own FROM tally WHERE principal = p_requester;
  own := coalesce(own, 0);
  SELECT principal, tally.open INTO largest, largest_open FROM tally ORDER BY tally.open DESC LIMIT 1;
  SELECT array_agg(s.id), array_agg(s.principal), array_agg(coalesce(t.open, 0)), array_agg(s.meta)
  INTO ids, their_principals, held, metas
  FROM (
    (SELECT id, principal, meta FROM session
     WHERE p_of IS NULL AND id >= p_from AND NOT closed AND stamp <> '' ORDER BY id LIMIT p_size)
    UNION ALL
    (SELECT id, principal, meta FROM session
     WHERE p_of IS NULL AND id < p_from AND NOT closed AND stamp <> '' ORDER BY id LIMIT p_size)
    UNION ALL
    (SELECT id, principal, meta FROM session
     WHERE principal = p_of AND id >= p_from AND NOT closed AND stamp <> '' ORDER BY principal, id LIMIT p_size)
    UNION ALL
    (SELECT id, principal, meta FROM session
     WHERE principal = p_of AND id < p_from AND NOT closed AND stamp <> '' ORDER BY principal, id LIMIT p_size)
    LIMIT p_size
  ) AS s LEFT JOIN tally t ON t.principal = s.principal;
END
$$;
