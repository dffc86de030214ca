//! All SQL statements except the schema. Each is prepared once per connection.

use rusqlite::{Connection, Statement};

macro_rules! statements {
    ($(#[$doc:meta])* $set:ident { $($name:ident = $statements:expr;)+ }) => {
        $(#[$doc])*
        pub(super) struct $set<'c> { $(pub(super) $name: Statement<'c>,)+ }

        impl<'c> $set<'c> {
            pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
                Ok(Self { $($name: connection.prepare($statements)?,)+ })
            }
        }
    };
}

statements! {
    /// The statements of the writer.
    ///
    /// They use `REPLACE` on purpose: on a table without further indexes it overwrites the row in
    /// one descent of the tree, whereas `INSERT … ON CONFLICT DO UPDATE` first searches and then
    /// writes.
    WriterStatements {
        begin = "BEGIN IMMEDIATE";
        commit = "COMMIT";
        rollback = "ROLLBACK";
        data_version = "PRAGMA data_version";
        forwarded = "SELECT session.id, call.no, call.owner FROM call JOIN session ON session.key = call.session
            WHERE call.sender <> call.owner AND call.request IS NOT NULL ORDER BY call.session";

        find_session = "SELECT key, principal, revision, initialize, opened_at FROM session WHERE id = ?1";
        load_meta = META;
        load_streams = "SELECT no, open_calls, next_seq, connection, node, delivered, finished_at, answer_size, answer
            FROM stream WHERE session = ?1 ORDER BY no";
        load_events = "SELECT stream, seq, class, size FROM event WHERE session = ?1 ORDER BY stream, seq";
        load_calls = "SELECT no, id, stream, owner, sender, attempt, answer_only, again, request
            FROM call WHERE session = ?1";
        load_server_requests = "SELECT no, call, stream, seq, owner, kept_by, attempt, answer FROM ask WHERE session = ?1";
        load_state = "SELECT name, version, value FROM state WHERE session = ?1";

        add_session = "INSERT INTO session (id, principal, revision, initialize, opened_at)
            VALUES (?1, ?2, ?3, ?4, ?5)";
        put_meta = "REPLACE INTO meta VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        put_stream = "REPLACE INTO stream VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        drop_streams = "DELETE FROM stream WHERE session = ?1 AND no BETWEEN ?2 AND ?3";
        add_event = "INSERT INTO event (session, stream, seq, class, size, payload)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        drop_event = "DELETE FROM event WHERE session = ?1 AND stream = ?2 AND seq = ?3";
        drop_events_of_streams = "DELETE FROM event WHERE session = ?1 AND stream BETWEEN ?2 AND ?3";
        put_call = "REPLACE INTO call VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        drop_call = "DELETE FROM call WHERE session = ?1 AND no = ?2";
        put_server_request = "REPLACE INTO ask VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        drop_server_request = "DELETE FROM ask WHERE session = ?1 AND no = ?2";
        put_state = "REPLACE INTO state (session, name, version, value) VALUES (?1, ?2, ?3, ?4)";
        drop_state = "DELETE FROM state WHERE session = ?1 AND name = ?2";

        remove_session = "DELETE FROM session WHERE key = ?1";
        remove_meta = "DELETE FROM meta WHERE session = ?1";
        remove_streams = "DELETE FROM stream WHERE session = ?1";
        remove_events = "DELETE FROM event WHERE session = ?1";
        remove_calls = "DELETE FROM call WHERE session = ?1";
        remove_server_requests = "DELETE FROM ask WHERE session = ?1";
        remove_state = "DELETE FROM state WHERE session = ?1";
        remove_presence = "DELETE FROM presence WHERE session = ?1";

        put_agenda = "INSERT INTO agenda VALUES (?1, ?2)";
        drop_agenda = "DELETE FROM agenda WHERE check_at = ?1 AND session = ?2";
        due = "SELECT agenda.check_at, session.key, session.id FROM agenda JOIN session ON key = agenda.session
            WHERE check_at <= ?1 ORDER BY check_at LIMIT ?2";

        sessions = "SELECT sessions FROM total";
        bytes = "SELECT bytes FROM total";
        sessions_of = SESSIONS_OF;
        admit = "INSERT INTO tally VALUES (?1, 1) ON CONFLICT DO UPDATE SET sessions = sessions + 1";
        release = "UPDATE tally SET sessions = sessions - 1 WHERE principal = ?1";
        forget_principal = "DELETE FROM tally WHERE principal = ?1 AND sessions <= 0";
        add_to_total = "UPDATE total SET sessions = sessions + ?1, bytes = bytes + ?2";

        add_presence = "INSERT OR IGNORE INTO presence VALUES (?1, ?2)";
        sessions_of_node = "SELECT id FROM presence JOIN session ON key = presence.session WHERE node = ?1
            AND (EXISTS (SELECT 1 FROM call WHERE call.session = key AND owner = ?1)
              OR EXISTS (SELECT 1 FROM ask WHERE ask.session = key AND owner = ?1)
              OR EXISTS (SELECT 1 FROM stream WHERE stream.session = key AND stream.node = ?1))
            ORDER BY key";
        nodes = "SELECT id FROM node";
        node = "SELECT 1 FROM node WHERE id = ?1";
        add_node = "INSERT OR IGNORE INTO node VALUES (?1, ?2)";
        drop_node = "DELETE FROM node WHERE id = ?1";
        drop_presence_of_node = "DELETE FROM presence WHERE node = ?1";
    }
}

const META: &str = "SELECT last_active, detached_at, closed_reason, closed_at,
    next_call, next_stream, next_ask, next_connection, next_version, taken, check_at
    FROM meta WHERE session = ?1";

const SESSIONS_OF: &str = "SELECT sessions FROM tally WHERE principal = ?1";

/// Selects open sessions for an eviction sample. Starts a range of ids, which are random.
macro_rules! sample {
    ($range:literal) => {
        concat!(
            "SELECT id, session.principal, next_call, max(last_active, ifnull(detached_at, 0)), sessions
            FROM session JOIN meta ON meta.session = key LEFT JOIN tally ON tally.principal = session.principal
            WHERE closed_at IS NULL AND ",
            $range,
            " ORDER BY id LIMIT ?2"
        )
    };
}

statements! {
    /// The statements of a reader.
    ReaderStatements {
        begin = "BEGIN";
        end = "COMMIT";
        find = "SELECT key, next_stream FROM session JOIN meta ON meta.session = key WHERE id = ?1";
        stream = "SELECT open_calls, next_seq, finished_at, answer_size, answer FROM stream
            WHERE session = ?1 AND no = ?2";
        events = "SELECT seq, class, size, payload FROM event
            WHERE session = ?1 AND stream = ?2 AND seq > ?3 ORDER BY seq";
        facts = "SELECT principal, revision, initialize, opened_at FROM session
            JOIN meta ON meta.session = key WHERE id = ?1 AND closed_at IS NULL";
        find_open = "SELECT key, detached_at FROM session JOIN meta ON meta.session = key WHERE id = ?1 AND closed_at IS NULL";
        calls_of_node = "SELECT no, id, stream, answer_only, CASE WHEN sender <> owner THEN request END, again
            FROM call WHERE session = ?1 AND owner = ?2 ORDER BY no";
        server_requests_of_node = "SELECT no, answer FROM ask WHERE session = ?1 AND owner = ?2 ORDER BY no";
        connections_of_node = "SELECT no, connection FROM stream
            WHERE session = ?1 AND node = ?2 AND finished_at IS NULL ORDER BY no";
        node = "SELECT 1 FROM node WHERE id = ?1";
        usage = "SELECT sessions, bytes FROM total";
        sessions_of = SESSIONS_OF;
        largest_principal = "SELECT principal, sessions FROM tally ORDER BY sessions DESC LIMIT 1";
        count_principals = "SELECT count(*) FROM (SELECT 1 FROM tally LIMIT ?1)";
        sample_from = sample!("id >= ?1");
        sample_up_to = sample!("id < ?1");
        sample_of_from = sample!("session.principal = ?3 AND id >= ?1");
        sample_of_up_to = sample!("session.principal = ?3 AND id < ?1");
    }
}
