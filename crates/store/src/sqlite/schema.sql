-- The tables of a session store. steadfast_session::tables explains the meaning of the rows.
--
-- All tables but `session` refer to a session by its surrogate key, because its id has 24 bytes.
-- Unsigned numbers are stored as the signed integers with the same bits.
--
-- Small rows with the key (session, number) are clustered on it (WITHOUT ROWID): one tree to change
-- instead of a table and an index. Rows with payloads are not, because large rows make a clustered
-- tree split and copy pages. They are appended to a rowid table and found by a narrow index.

-- The facts of a session, which never change. Separate from `meta`, so that a busy session does not
-- rewrite its `initialize` text.
CREATE TABLE session (
    key        INTEGER PRIMARY KEY,
    id         BLOB    NOT NULL UNIQUE, -- unique index: every command identifies its session by id
    principal  TEXT    NOT NULL,
    revision   TEXT    NOT NULL,
    initialize BLOB    NOT NULL,
    opened_at  INTEGER NOT NULL
) STRICT;
-- Used to choose sessions of one principal for eviction.
CREATE INDEX session_of_principal ON session (principal, id);

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
    -- Calls that were reassigned, 8 bytes each, and forwarded `Begin`s, four times 8 bytes each. NULL
    -- if there are none.
    taken           BLOB,
    check_at        INTEGER -- the entry of the session in `agenda`; NULL if there is none
) STRICT;

-- The sweep schedule: when each session is swept next. A table ordered by time instead of an index on
-- `meta`, because `meta` is written with every group of commands and therefore has no index.
CREATE TABLE agenda (
    check_at INTEGER NOT NULL,
    session  INTEGER NOT NULL,
    PRIMARY KEY (check_at, session)
) STRICT, WITHOUT ROWID;

-- The response that ends the stream of a POST is its last event and often its only one. If it is
-- small, it is stored here, so that a plain call changes one tree instead of three.
CREATE TABLE stream (
    session     INTEGER NOT NULL,
    no          INTEGER NOT NULL,
    open_calls  INTEGER, -- NULL on a standalone stream
    next_seq    INTEGER NOT NULL,
    connection  INTEGER, -- NULL while no reader is attached
    node        INTEGER, -- the node that serves the connection
    delivered   INTEGER NOT NULL,
    finished_at INTEGER,
    answer_size INTEGER, -- NULL if the last event is in `event`, like all other events
    answer      BLOB,
    PRIMARY KEY (session, no)
) STRICT, WITHOUT ROWID;

-- The events of all streams except small responses, in the order of writing. The payload is the last
-- column, so that loading the event index of a session reads no overflow pages.
CREATE TABLE event (
    rowno   INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    class   INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    payload BLOB    NOT NULL
) STRICT;
-- Used to read a stream from a position, and to delete the rows of a stream or of a session.
CREATE UNIQUE INDEX event_place ON event (session, stream, seq);

CREATE TABLE call (
    session     INTEGER NOT NULL,
    no          INTEGER NOT NULL,
    id          ANY     NOT NULL, -- an INTEGER or a TEXT, as the client sent it: 1 is not '1'
    stream      INTEGER NOT NULL,
    owner       INTEGER NOT NULL,
    sender      INTEGER NOT NULL, -- the node that received or forwarded the call, usually the owner itself
    attempt     INTEGER NOT NULL,
    answer_only INTEGER NOT NULL,
    again       INTEGER, -- whether the call is idempotent; NULL if the request is not stored
    request     BLOB,
    PRIMARY KEY (session, no)
) STRICT, WITHOUT ROWID;

-- Server requests. If the client's answer arrives at a node that does not own the request, the answer
-- is kept here until the owner collects it. That is rare and short.
CREATE TABLE ask (
    session INTEGER NOT NULL,
    no      INTEGER NOT NULL,
    call    INTEGER, -- NULL if the request belongs to no call
    stream  INTEGER NOT NULL,
    seq     INTEGER NOT NULL, -- the event of the request in that stream
    owner   INTEGER NOT NULL,
    kept_by INTEGER, -- the node that received the answer; NULL while there is none
    attempt INTEGER, -- the name that this node gave to the command
    answer  BLOB,
    PRIMARY KEY (session, no)
) STRICT, WITHOUT ROWID;

CREATE TABLE state (
    rowno   INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    value   BLOB    NOT NULL,
    UNIQUE (session, name) -- used to write one entry, and to load all entries of a session
) STRICT;

-- Nodes that have joined and have not left. Each holds a lock on a file of its own while its process
-- runs.
CREATE TABLE node (
    id        INTEGER PRIMARY KEY,
    joined_at INTEGER NOT NULL
) STRICT;

-- The nodes that may hold a call, a server request or a connection in a session. Written when a node
-- gets the first one, deleted with the session or the node. Indexes on the owners themselves would cost
-- each call two more tree changes.
CREATE TABLE presence (
    session INTEGER NOT NULL,
    node    INTEGER NOT NULL,
    PRIMARY KEY (session, node)
) STRICT, WITHOUT ROWID;
-- Used to find the sessions of a dead node.
CREATE INDEX presence_of_node ON presence (node);

-- The number of open sessions of each principal, so that admission need not count them.
CREATE TABLE tally (
    principal TEXT    PRIMARY KEY,
    sessions  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- Used to find the principal with the most sessions.
CREATE INDEX tally_of_sessions ON tally (sessions);

-- The number of open sessions, and the bytes that all sessions hold. One row.
CREATE TABLE total (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    sessions INTEGER NOT NULL,
    bytes    INTEGER NOT NULL
) STRICT;
INSERT INTO total VALUES (1, 0, 0);
