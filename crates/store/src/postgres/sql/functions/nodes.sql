-- Who is alive, by the clock of this database, and who may hold something of which session.

-- Nodes show that they are alive. After a time in which nobody could, everybody gets the time again that a node has to show
-- itself: not the first who comes back buries all others.
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

-- Whether a node that was last heard then has been silent for too long, or has left: that one stands there with a time before all
-- times. While nobody at all is heard it was the database that was away, or its clock was set: whoever asks has not shown itself
-- either. Called by the functions below only, and so under their settings.
CREATE OR REPLACE FUNCTION is_gone(p_beat bigint, p_ttl bigint) RETURNS boolean
LANGUAGE sql VOLATILE
-- The pulse has one row and no index: as with the total.
SET enable_seqscan = on
AS $$
  SELECT p_beat < 0 OR (now - last <= p_ttl / 2 AND now - greatest(p_beat, since) > p_ttl) FROM pulse, millis() AS now
$$;

-- Whether a node is on the list and is not gone.
CREATE OR REPLACE FUNCTION alive(p_node bigint, p_ttl bigint) RETURNS boolean
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (SELECT FROM node WHERE id = p_node AND NOT is_gone(beat, p_ttl))
$$;

-- Nodes that have been silent for too long, and those that have left something.
CREATE OR REPLACE FUNCTION dead(p_ttl bigint) RETURNS SETOF bigint
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT id FROM node WHERE is_gone(beat, p_ttl)
$$;

-- A node may hold something of a session from a version on. One of the asker's own is on the list of nodes from now on.
--
-- The row of the node is held until this is done, so that `strike` either sees what is written here or is over by then.
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

-- A node holds nothing in some sessions, as of some versions. If it may hold nothing anywhere, and leaves or has been silent
-- for too long, it is struck off the list. If it leaves and may hold something, it counts as dead from now on. Gives whether it is
-- not on the list any more.
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
