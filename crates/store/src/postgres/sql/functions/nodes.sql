-- Which nodes are alive, by the clock of this database, and in which sessions they may hold
-- something.

-- Records the heartbeat of nodes. If no node could send heartbeats for a while, every node gets the
-- full time again (`since`). Otherwise the first node that reaches the database again would reap
-- all others.
CREATE OR REPLACE FUNCTION beat(p_nodes bigint[], p_ttl bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  now bigint := millis();
BEGIN
  PERFORM without_flush();
  UPDATE pulse SET since = CASE WHEN now - last > p_ttl / 2 THEN now ELSE since END, last = now;
  INSERT INTO node (id, beat) SELECT id, now FROM unnest(p_nodes) AS id
  ON CONFLICT (id) DO UPDATE SET beat = excluded.beat;
END
$$;

-- Returns true if a node with this last heartbeat has sent none for too long, or has left: then the
-- time is negative. While no node sends heartbeats, the database was down or its clock was changed:
-- the node that asks has not sent one either. Then only nodes that have left are gone. Only the
-- functions below call this, under their own settings.
CREATE OR REPLACE FUNCTION is_gone(p_beat bigint, p_ttl bigint) RETURNS boolean
LANGUAGE sql VOLATILE
-- `pulse` has one row and no index, like `total`.
SET enable_seqscan = on
AS $$
  SELECT p_beat < 0 OR (now - last <= p_ttl / 2 AND now - greatest(p_beat, since) > p_ttl) FROM pulse, millis() AS now
$$;

-- Returns true if a node is on the list of nodes and is not gone.
CREATE OR REPLACE FUNCTION alive(p_node bigint, p_ttl bigint) RETURNS boolean
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (SELECT FROM node WHERE id = p_node AND NOT is_gone(beat, p_ttl))
$$;

-- Returns the nodes that have sent no heartbeat for too long, and those that have left and still
-- hold something.
CREATE OR REPLACE FUNCTION dead(p_ttl bigint) RETURNS SETOF bigint
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT id FROM node WHERE is_gone(beat, p_ttl)
$$;

-- Records that a node may hold something in a session, as of a version and later. If `p_own`, the
-- node belongs to the caller and is put back on the list of nodes if it is not there.
--
-- The row of the node is locked until the end of the transaction. So `strike` either sees the
-- presence, or has ended before.
CREATE OR REPLACE FUNCTION present(p_session bytea, p_node bigint, p_version bigint, p_own boolean) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM without_flush();
  IF p_own THEN
    LOOP
      PERFORM FROM node WHERE id = p_node FOR KEY SHARE;
      EXIT WHEN FOUND;
      INSERT INTO node (id, beat) VALUES (p_node, millis()) ON CONFLICT DO NOTHING;
      EXIT WHEN FOUND;
    END LOOP;
  END IF;
  INSERT INTO presence (node, session, version) VALUES (p_node, p_session, p_version)
  ON CONFLICT (node, session) DO UPDATE SET version = excluded.version WHERE presence.version < excluded.version;
END
$$;

CREATE OR REPLACE FUNCTION sessions_of(p_node bigint, p_batch bigint) RETURNS SETOF bytea
LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
  SELECT session FROM presence WHERE node = p_node ORDER BY session LIMIT p_batch
$$;

-- Removes a node from the list of nodes (delists it). First deletes its presence in sessions,
-- unless it was recorded for a later version. The node is delisted if no presence is left and it
-- leaves or has sent no heartbeat for too long. If it leaves and a presence is left, it counts as
-- dead from now on. Returns true if the node is not on the list any more.
CREATE OR REPLACE FUNCTION strike(
  p_node bigint, p_sessions bytea[], p_versions bigint[], p_leaves boolean, p_ttl bigint
) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET enable_seqscan = off
AS $$
DECLARE
  last_beat bigint;
BEGIN
  PERFORM without_flush();
  SELECT beat INTO last_beat FROM node WHERE id = p_node FOR UPDATE;
  DELETE FROM presence USING unnest(p_sessions, p_versions) AS done (session, version)
  WHERE presence.node = p_node AND presence.session = done.session AND presence.version <= done.version;
  PERFORM FROM presence WHERE node = p_node LIMIT 1;
  IF FOUND THEN
    IF p_leaves THEN
      UPDATE node SET beat = -1 WHERE id = p_node;
    END IF;
    RETURN false;
  END IF;
  IF NOT p_leaves AND NOT is_gone(coalesce(last_beat, -1), p_ttl) THEN
    RETURN false;
  END IF;
  DELETE FROM node WHERE id = p_node;
  RETURN true;
END
$$;
