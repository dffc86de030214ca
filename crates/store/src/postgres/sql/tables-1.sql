-- What is in a schema of version 1. Everything that a process says to it goes through the functions beside this file.
--
-- Names, principals and ids are bytes: they may hold what no text of PostgreSQL can. There are no foreign keys: every
-- function that changes a session has its row in hand first, and keys would be checked once more with each call.

-- The version of all of this. One row.
CREATE TABLE format (version integer NOT NULL);

-- A session, from the moment it is admitted. Its stamp says which version it has: nothing until it is made.
--
-- Each command writes this row anew, and nothing of it that an index has: with a quarter of each page left free, the new row
-- goes beside the old one (HOT), no index is touched, and the next visitor of the page takes the old one away.
-- `meta` is here and not among the parts for the same reason: it changes whenever the stamp does.
CREATE TABLE session (
  id bytea PRIMARY KEY,
  principal bytea NOT NULL,
  stamp bytea NOT NULL DEFAULT '',
  meta bytea,
  due bigint NOT NULL,
  closed boolean NOT NULL DEFAULT false
) WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05);
-- The sweep asks for those whose time has come, in this order. Commands do not change it.
CREATE INDEX session_due ON session (due);

-- The rows of a session: what never changes of it, streams, calls, asks, state. The key finds one by name and, by its first
-- half, all of a session. Each call leaves a dead row or two here, so it is cleaned when a fiftieth is dead, not a fifth.
CREATE TABLE part (
  session bytea NOT NULL,
  name bytea NOT NULL,
  value bytea NOT NULL,
  PRIMARY KEY (session, name)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05,
        toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_threshold = 1000);

-- Events, found by their place. They are written once and removed, never changed: pages are filled to the brim.
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

-- Processes, by when they were last heard, in milliseconds of this database's clock. Few rows that change all the time: nearly
-- empty pages, so that all of it stays HOT.
CREATE TABLE node (
  id bigint PRIMARY KEY,
  beat bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- When anybody was last heard, and since when there was no long silence of all. One row.
CREATE TABLE pulse (last bigint NOT NULL, since bigint NOT NULL)
  WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO pulse VALUES (0, 0);

-- In which sessions a process may hold something, from which version on. The key answers both questions that are asked: all
-- sessions of a node, and one session of some nodes.
CREATE TABLE presence (
  node bigint NOT NULL,
  session bytea NOT NULL,
  version bigint NOT NULL,
  PRIMARY KEY (node, session)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- How many open sessions each principal has; none, no row.
CREATE TABLE tally (
  principal bytea PRIMARY KEY,
  open bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- How many sessions there are, and how many of them are open. One row: counting them each time would read them all.
CREATE TABLE total (listed bigint NOT NULL, open bigint NOT NULL)
  WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
INSERT INTO total VALUES (0, 0);

-- What was found in a session's place: 0 nothing, 1 the version that was seen, 2 another, and that is here.
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
