-- A schema of version 2 as its release made it, with two sessions in it: `pg_dump --schema=golden --no-owner --inserts`, without the
-- settings and remarks that it adds.
SET check_function_bodies = false;

CREATE SCHEMA golden;

CREATE TYPE golden.found AS (
	kind integer,
	stamp bytea,
	meta bytea,
	names bytea[],
	parts bytea[],
	streams bigint[],
	seqs bigint[],
	sizes integer[],
	classes smallint[],
	payloads bytea[]
);

CREATE FUNCTION golden.admit(p_session bytea, p_principal bytea, p_due bigint, p_sessions bigint, p_own bigint) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'golden'
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

CREATE FUNCTION golden.alive(p_node bigint, p_ttl bigint) RETURNS boolean
    LANGUAGE sql
    SET search_path TO 'golden'
    AS $$
  SELECT EXISTS (SELECT FROM node WHERE id = p_node AND NOT is_gone(beat, p_ttl))
$$;

CREATE FUNCTION golden.beat(p_nodes bigint[], p_ttl bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'golden'
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

CREATE FUNCTION golden.commit(p_session bytea, p_seen bytea, p_next bytea, p_meta bytea, p_names bytea[], p_parts bytea[], p_drop bytea[], p_streams bigint[], p_seqs bigint[], p_sizes integer[], p_classes smallint[], p_payloads bytea[], p_forget_streams bigint[], p_forget_seqs bigint[]) RETURNS golden.found
    LANGUAGE plpgsql
    SET search_path TO 'golden'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
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

CREATE FUNCTION golden.count_sessions(p_sample bigint, OUT listed bigint, OUT open bigint, OUT sample bytea[]) RETURNS record
    LANGUAGE sql STABLE
    SET search_path TO 'golden'
    AS $$
  SELECT total.listed, total.open, sampled.metas
  FROM total, (
    SELECT array_agg(meta) AS metas
    FROM (SELECT meta FROM session WHERE stamp <> '' ORDER BY id LIMIT p_sample) AS first_ones
  ) AS sampled
$$;

CREATE FUNCTION golden.dead(p_ttl bigint) RETURNS SETOF bigint
    LANGUAGE sql
    SET search_path TO 'golden'
    AS $$
  SELECT id FROM node WHERE is_gone(beat, p_ttl)
$$;

CREATE FUNCTION golden.due(p_now bigint, p_batch bigint) RETURNS TABLE(id bytea, principal bytea, at bigint)
    LANGUAGE sql STABLE
    SET search_path TO 'golden'
    SET enable_seqscan TO 'off'
    AS $$
  SELECT session.id, session.principal, session.due FROM session WHERE session.due <= p_now
  ORDER BY session.due LIMIT p_batch
$$;

CREATE FUNCTION golden.forget(p_session bytea, p_nodes bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'golden'
    AS $$
DECLARE
  old session;
BEGIN
  PERFORM without_flush();
  DELETE FROM session WHERE id = p_session AND stamp = '' RETURNING * INTO old;
  IF FOUND THEN
    PERFORM uncount(old.principal, NOT old.closed, true);
  END IF;
  DELETE FROM presence WHERE node = ANY (p_nodes) AND session = p_session;
END
$$;

CREATE FUNCTION golden.is_gone(p_beat bigint, p_ttl bigint) RETURNS boolean
    LANGUAGE sql
    SET enable_seqscan TO 'on'
    AS $$
  SELECT p_beat < 0 OR (now - last <= p_ttl / 2 AND now - greatest(p_beat, since) > p_ttl) FROM pulse, millis() AS now
$$;

CREATE FUNCTION golden.load(p_session bytea, p_seen bytea) RETURNS golden.found
    LANGUAGE plpgsql STABLE
    SET search_path TO 'golden'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
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

CREATE FUNCTION golden.millis() RETURNS bigint
    LANGUAGE sql
    AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

CREATE FUNCTION golden.payloads(p_session bytea, p_seen bytea, p_streams bigint[], p_seqs bigint[]) RETURNS golden.found
    LANGUAGE plpgsql STABLE
    SET search_path TO 'golden'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  result found;
BEGIN
  PERFORM FROM session WHERE id = p_session AND stamp = p_seen;
  IF FOUND THEN
    result.kind := 1;
    SELECT array_agg(event.payload ORDER BY wanted.at) INTO result.payloads
    FROM unnest(p_streams, p_seqs) WITH ORDINALITY AS wanted (stream, seq, at)
    LEFT JOIN event ON event.session = p_session AND event.stream = wanted.stream AND event.seq = wanted.seq;
    RETURN result;
  END IF;
  SELECT * INTO result FROM snapshot(p_session);
  result.kind := coalesce(result.kind, 0);
  RETURN result;
END
$$;

CREATE FUNCTION golden.present(p_session bytea, p_node bigint, p_version bigint, p_own boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'golden'
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

CREATE FUNCTION golden.release(p_session bytea) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'golden'
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

CREATE FUNCTION golden.remove(p_session bytea, p_seen bytea) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'golden'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
  old session;
BEGIN
  PERFORM without_flush();
  DELETE FROM session WHERE id = p_session AND stamp = p_seen RETURNING * INTO old;
  IF NOT FOUND THEN
    PERFORM FROM session WHERE id = p_session AND stamp <> '';
    RETURN NOT FOUND;
  END IF;
  DELETE FROM part WHERE session = p_session;
  DELETE FROM event WHERE session = p_session;
  PERFORM uncount(old.principal, NOT old.closed, true);
  RETURN true;
END
$$;

CREATE FUNCTION golden.reschedule(p_session bytea, p_seen bigint, p_at bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'golden'
    AS $$
BEGIN
  PERFORM without_flush();
  UPDATE session SET due = p_at WHERE id = p_session AND due = p_seen;
END
$$;

CREATE FUNCTION golden.schedule(p_session bytea, p_at bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'golden'
    AS $$
BEGIN
  PERFORM without_flush();
  UPDATE session SET due = p_at WHERE id = p_session AND due > p_at;
END
$$;

CREATE FUNCTION golden.sessions_of(p_node bigint, p_batch bigint) RETURNS SETOF bytea
    LANGUAGE sql STABLE
    SET search_path TO 'golden'
    SET enable_seqscan TO 'off'
    AS $$
  SELECT session FROM presence WHERE node = p_node ORDER BY session LIMIT p_batch
$$;

CREATE FUNCTION golden.snapshot(p_session bytea) RETURNS SETOF golden.found
    LANGUAGE sql STABLE
    AS $$
  SELECT 2, s.stamp, s.meta, p.names, p.parts, e.streams, e.seqs, e.sizes, e.classes, NULL::bytea[]
  FROM session s
  CROSS JOIN LATERAL (
    SELECT array_agg(name) AS names, array_agg(value) AS parts FROM part WHERE session = p_session
  ) p
  CROSS JOIN LATERAL (
    SELECT array_agg(stream) AS streams, array_agg(seq) AS seqs, array_agg(size) AS sizes, array_agg(class) AS classes
    FROM event WHERE session = p_session
  ) e
  WHERE s.id = p_session AND s.stamp <> ''
$$;

CREATE FUNCTION golden.strike(p_node bigint, p_sessions bytea[], p_versions bigint[], p_leaves boolean, p_ttl bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'golden'
    SET enable_seqscan TO 'off'
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

CREATE FUNCTION golden.tell(p_channels text[], p_told text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'golden'
    AS $$
BEGIN
  PERFORM without_flush();
  PERFORM pg_notify(channel, p_told) FROM unnest(p_channels) AS channel;
END
$$;

CREATE FUNCTION golden.uncount(p_principal bytea, p_was_open boolean, p_is_gone boolean) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'on'
    AS $$
DECLARE
  left_open bigint;
BEGIN
  IF p_was_open THEN
    UPDATE tally SET open = open - 1 WHERE principal = p_principal RETURNING open INTO left_open;
    IF left_open <= 0 THEN
      DELETE FROM tally WHERE principal = p_principal;
    END IF;
  END IF;
  UPDATE total SET open = open - p_was_open::integer, listed = listed - p_is_gone::integer;
END
$$;

CREATE FUNCTION golden.without_flush() RETURNS void
    LANGUAGE sql
    AS $$
  SELECT set_config('synchronous_commit', 'off', true)
$$;

CREATE TABLE golden.event (
    session bytea NOT NULL,
    stream bigint NOT NULL,
    seq bigint NOT NULL,
    size integer NOT NULL,
    class smallint NOT NULL,
    payload bytea NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.05', toast.autovacuum_vacuum_scale_factor='0.05', toast.autovacuum_vacuum_threshold='1000');

CREATE TABLE golden.format (
    version integer NOT NULL
);

CREATE TABLE golden.node (
    id bigint NOT NULL,
    beat bigint NOT NULL
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');

CREATE TABLE golden.part (
    session bytea NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.05', toast.autovacuum_vacuum_scale_factor='0.05', toast.autovacuum_vacuum_threshold='1000');

CREATE TABLE golden.presence (
    node bigint NOT NULL,
    session bytea NOT NULL,
    version bigint NOT NULL
)
WITH (fillfactor='90', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='1000');

CREATE TABLE golden.pulse (
    last bigint NOT NULL,
    since bigint NOT NULL
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');

CREATE TABLE golden.session (
    id bytea NOT NULL,
    principal bytea NOT NULL,
    stamp bytea DEFAULT '\x'::bytea NOT NULL,
    meta bytea,
    due bigint NOT NULL,
    closed boolean DEFAULT false NOT NULL
)
WITH (fillfactor='75', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000', autovacuum_analyze_scale_factor='0.05');

CREATE TABLE golden.tally (
    principal bytea NOT NULL,
    open bigint NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='500');

CREATE TABLE golden.total (
    listed bigint NOT NULL,
    open bigint NOT NULL
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='500');

INSERT INTO golden.event VALUES ('\x010101010101010101010101010101010101010101010101', 0, 1, 69, 1, '\x68656c6c6f');
INSERT INTO golden.event VALUES ('\x010101010101010101010101010101010101010101010101', 0, 2, 69, 1, '\x616761696e');
INSERT INTO golden.event VALUES ('\x010101010101010101010101010101010101010101010101', 0, 3, 68, 1, '\x6c617374');

INSERT INTO golden.format VALUES (2);

INSERT INTO golden.node VALUES (7, 1794836596434);
INSERT INTO golden.node VALUES (-8, 1794836596443);

INSERT INTO golden.part VALUES ('\x010101010101010101010101010101010101010101010101', '\x66', '\x02000a323032352d31312d3235bf017b2270726f746f636f6c56657273696f6e223a22323032352d31312d3235222c226361706162696c6974696573223a7b22726f6f7473223a7b226c6973744368616e676564223a747275657d2c2273616d706c696e67223a7b7d2c22656c696369746174696f6e223a7b7d7d2c22636c69656e74496e666f223a7b226e616d65223a226578616d706c652d636c69656e74222c227469746c65223a224578616d706c6520436c69656e74222c2276657273696f6e223a22312e322e33227d7dc0843d');
INSERT INTO golden.part VALUES ('\x010101010101010101010101010101010101010101010101', '\x7331', '\x020100020100070001c0843d014606616e73776572');
INSERT INTO golden.part VALUES ('\x010101010101010101010101010101010101010101010101', '\x7332', '\x02010101010107000000');
INSERT INTO golden.part VALUES ('\x010101010101010101010101010101010101010101010101', '\x6331', '\x020004020707020000');
INSERT INTO golden.part VALUES ('\x010101010101010101010101010101010101010101010101', '\x766e616d65', '\x02010576616c7565');
INSERT INTO golden.part VALUES ('\x020202020202020202020202020202020202020202020202', '\x66', '\x02000a323032352d31312d3235bf017b2270726f746f636f6c56657273696f6e223a22323032352d31312d3235222c226361706162696c6974696573223a7b22726f6f7473223a7b226c6973744368616e676564223a747275657d2c2273616d706c696e67223a7b7d2c22656c696369746174696f6e223a7b7d7d2c22636c69656e74496e666f223a7b226e616d65223a226578616d706c652d636c69656e74222c227469746c65223a224578616d706c6520436c69656e74222c2276657273696f6e223a22312e322e33227d7dc0843d');
INSERT INTO golden.part VALUES ('\x010101010101010101010101010101010101010101010101', '\x7330', '\x02000400000000');

INSERT INTO golden.presence VALUES (7, '\x010101010101010101010101010101010101010101010101', 1);
INSERT INTO golden.presence VALUES (-8, '\x010101010101010101010101010101010101010101010101', 1);
INSERT INTO golden.presence VALUES (7, '\x020202020202020202020202020202020202020202020202', 1);
INSERT INTO golden.presence VALUES (-8, '\x020202020202020202020202020202020202020202020202', 1);

INSERT INTO golden.pulse VALUES (1794836596443, 1794836596434);

INSERT INTO golden.session VALUES ('\x020202020202020202020202020202020202020202020202', '\x', '\x0000000000000001df1892fa70f63b27', '\x0200c0843d00000001000000d082ab010207f8ffffffffffffffff0100', 2802000, false);
INSERT INTO golden.session VALUES ('\x010101010101010101010101010101010101010101010101', '\x', '\x0000000000000008c668a6892919e92c2cae6c61187fd9d7a8e0f1f72ead98ee6fc9c45ae5ba5225435a003aba791bb8', '\x029402c0843d0000020300020198f6530207f8ffffffffffffffff0100', 1375000, false);

INSERT INTO golden.tally VALUES ('\x', 2);

INSERT INTO golden.total VALUES (2, 2);

ALTER TABLE ONLY golden.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (session, stream, seq);

ALTER TABLE ONLY golden.node
    ADD CONSTRAINT node_pkey PRIMARY KEY (id);

ALTER TABLE ONLY golden.part
    ADD CONSTRAINT part_pkey PRIMARY KEY (session, name);

ALTER TABLE ONLY golden.presence
    ADD CONSTRAINT presence_pkey PRIMARY KEY (node, session);

ALTER TABLE ONLY golden.session
    ADD CONSTRAINT session_pkey PRIMARY KEY (id);

ALTER TABLE ONLY golden.tally
    ADD CONSTRAINT tally_pkey PRIMARY KEY (principal);

CREATE INDEX session_due ON golden.session USING btree (due);
