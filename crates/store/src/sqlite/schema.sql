-- The tables of a session, as rows. What a row means is said in steadfast_session::tables.
--
-- A session is known by its surrogate key everywhere but in its own row: its id has 24 bytes. Unsigned numbers
-- are kept as the signed integers with the same bits.
--
-- Small rows that are found by (session, number) are clustered on it (WITHOUT ROWID): one tree to change
-- instead of a table and an index. Rows with payloads are not, because large rows make a clustered tree split
-- and copy: they are appended to a rowid table and found by a narrow index.

-- What never changes. Apart from `meta`, so that a busy session does not rewrite its `initialize` text.
CREATE TABLE session (
    key        INTEGER PRIMARY KEY,
    id         BLOB    NOT NULL UNIQUE, -- unique index: every command names its session by id
    principal  TEXT    NOT NULL,
    revision   TEXT    NOT NULL,
    initialize BLOB    NOT NULL,
    opened_at  INTEGER NOT NULL
) STRICT;

-- What changes about the session as a whole.
CREATE TABLE meta (
    session         INTEGER PRIMARY KEY,
    last_active     INTEGER NOT NULL,
    detached_at     INTEGER,
    closed_reason   TEXT,
    closed_at       INTEGER,
    next_call       INTEGER NOT NULL,
    next_stream     INTEGER NOT NULL,
    next_ask        INTEGER NOT NULL,
    next_connection INTEGER NOT NULL,
    next_version    INTEGER NOT NULL,
    taken           BLOB, -- calls that were taken from their nodes, 8 bytes each, and those that were mailed, four times 8 bytes; NULL if there are none
    check_at        INTEGER -- where the session stands in `agenda`; NULL if nowhere
) STRICT;

-- When to look at which session again. A table of its own, in the order of time, rather than an index on
-- `meta`: `meta` is written with every group of commands and has therefore no index at all.
CREATE TABLE agenda (
    check_at INTEGER NOT NULL,
    session  INTEGER NOT NULL,
    PRIMARY KEY (check_at, session)
) STRICT, WITHOUT ROWID;

-- The answer that ends the stream of a POST is its last event and often its only one. If it is small it lives
-- here: a plain call then touches one tree instead of three.
CREATE TABLE stream (
    session     INTEGER NOT NULL,
    no          INTEGER NOT NULL,
    open_calls  INTEGER, -- NULL on a standalone stream
    next_seq    INTEGER NOT NULL,
    connection  INTEGER, -- NULL while nobody is attached
    node        INTEGER, -- the node that serves the connection
    delivered   INTEGER NOT NULL,
    finished_at INTEGER,
    answer_size INTEGER, -- NULL if the last event is in `event`, like all others
    answer      BLOB,
    PRIMARY KEY (session, no)
) STRICT, WITHOUT ROWID;

-- The logs of all streams but for small answers, in the order of writing. The payload is last, so that loading a session's index reads
-- none of its overflow pages.
CREATE TABLE event (
    rowno   INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    class   INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    payload BLOB    NOT NULL
) STRICT;
-- Reads a stream from a position, and finds the rows of a stream or a session to delete them.
CREATE UNIQUE INDEX event_place ON event (session, stream, seq);

CREATE TABLE call (
    session     INTEGER NOT NULL,
    no          INTEGER NOT NULL,
    id          ANY     NOT NULL, -- an INTEGER or a TEXT, as the client sent it: 1 is not '1'
    stream      INTEGER NOT NULL,
    owner       INTEGER NOT NULL,
    sender      INTEGER NOT NULL, -- the node that gave it to its owner, most often the owner itself
    attempt     INTEGER NOT NULL,
    answer_only INTEGER NOT NULL,
    again       INTEGER, -- whether the request may be done again; NULL if it is not kept
    request     BLOB,
    PRIMARY KEY (session, no)
) STRICT, WITHOUT ROWID;

-- An answer that came to another node than the one whose asker waits is kept with its ask: it is rare and soon gone.
CREATE TABLE ask (
    session INTEGER NOT NULL,
    no      INTEGER NOT NULL,
    call    INTEGER, -- NULL if no call caused it
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL, -- its event there
    owner   INTEGER NOT NULL,
    kept_by INTEGER, -- the node that the answer came to; NULL while there is none
    attempt INTEGER, -- that node's name for the command
    answer  BLOB,
    PRIMARY KEY (session, no)
) STRICT, WITHOUT ROWID;

CREATE TABLE state (
    rowno   INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    value   BLOB    NOT NULL,
    UNIQUE (session, name) -- finds one entry to write it, and all of a session to load them
) STRICT;

-- Nodes that have joined and not left. Each holds a lock on a file of its own for as long as its process lives.
CREATE TABLE node (
    id        INTEGER PRIMARY KEY,
    joined_at INTEGER NOT NULL
) STRICT;

-- Which nodes may hold a call, an ask or a connection of a session: written when a node first takes one, removed
-- with the session or the node. Indices on the owners themselves would cost each call two more tree changes.
CREATE TABLE presence (
    session INTEGER NOT NULL,
    node    INTEGER NOT NULL,
    PRIMARY KEY (session, node)
) STRICT, WITHOUT ROWID;
-- Finds the sessions of a node that is gone.
CREATE INDEX presence_of_node ON presence (node);

-- Open sessions by principal, so that admitting one counts nothing.
CREATE TABLE tally (
    principal TEXT    PRIMARY KEY,
    sessions  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Open sessions in all, and the bytes that all sessions hold: one row.
CREATE TABLE total (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    sessions INTEGER NOT NULL,
    bytes    INTEGER NOT NULL
) STRICT;
INSERT INTO total VALUES (1, 0, 0);
