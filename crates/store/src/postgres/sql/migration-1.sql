-- The tables of schema version 1. Processes use them only through the functions in `functions/`.
--
-- Names, principals and ids are bytes, because they may contain what the type text cannot. There
-- are no foreign keys: every function that changes a session locks its row first, and each call
-- would check the keys once more.

-- The version of the schema. One row.
CREATE TABLE format (version integer NOT NULL);

-- A session, from its admission on. `stamp` identifies its version; it is empty until the first
-- commit.
--
-- Each command updates this row, but no indexed column of it. A quarter of each page is left free,
-- so the new row goes to the same page as the old one (HOT), no index is touched, and the next
-- access to the page removes the old row. `meta` is here and not in `part` for this reason: it
-- changes whenever the stamp does.
CREATE TABLE session (
  id bytea PRIMARY KEY,
  principal bytea NOT NULL,
  stamp bytea NOT NULL DEFAULT '',
  meta bytea,
  due bigint NOT NULL,
  closed boolean NOT NULL DEFAULT false
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05);
-- The sweep reads the sessions that are due in this order. Commands do not change `due`.
CREATE INDEX session_due ON session (due);

-- The rows of a session: facts, streams, calls, server requests, state. The primary key finds a row
-- by name and, by its first column, all rows of a session. Each call leaves one or two dead rows,
-- so autovacuum runs when a fiftieth of the rows is dead, instead of a fifth.
CREATE TABLE part (
  session bytea NOT NULL,
  name bytea NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY (session, name)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05,
        toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_threshold = 1000);

-- Events, by their position. They are inserted and deleted, never updated, so pages are filled
-- completely.
CREATE TABLE event (
  session bytea NOT NULL,
  stream bigint NOT NULL,
  seq bigint NOT NULL,
  size integer NOT NULL,
  class smallint NOT NULL,
  payload bytea NOT NULL,
  PRIMARY KEY (session, stream, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05,
        toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_threshold = 1000);

-- Nodes, by the time of their last heartbeat in milliseconds of this database's clock. Few rows
-- that change all the time: nearly empty pages keep all updates HOT.
CREATE TABLE node (
  id bigint PRIMARY KEY,
  beat bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- `last`: the last heartbeat of any node. `since`: the end of the last time without any heartbeats.
-- One row.
CREATE TABLE pulse (last bigint NOT NULL, since bigint NOT NULL)
  WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO pulse VALUES (0, 0);

-- The sessions in which a node may hold something, and as of which version. The primary key serves
-- both queries: all sessions of a node, and one session of some nodes.
CREATE TABLE presence (
  node bigint NOT NULL,
  session bytea NOT NULL,
  version bigint NOT NULL,
  PRIMARY KEY (node, session)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- The number of open sessions of each principal. No row if there is none.
CREATE TABLE tally (
  principal bytea PRIMARY KEY,
  open bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- The number of sessions, and of open sessions. One row, so that counting does not read all
-- sessions.
CREATE TABLE total (listed bigint NOT NULL, open bigint NOT NULL)
  WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO total VALUES (0, 0);

-- What was found in place of a session: kind 0 nothing, 1 the expected version, 2 another version,
-- which the other fields contain.
CREATE TYPE found AS (
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
