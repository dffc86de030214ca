//! The PostgreSQL side of the tests in `tests/remote`: starts a server, opens a store, queries the
//! database.

use std::time::Duration;

use steadfast_session::{Rules, SessionId};

pub(crate) use steadfast_store::testing::server::PostgresServer as Server;
pub(crate) use steadfast_store::{PostgresOptions as Options, PostgresStore as Store};

pub(crate) fn options(server: &Server, schema: &str) -> Options {
    options_with_port(server.port(), schema)
}

/// Returns options for a schema by way of another port.
pub(crate) fn options_with_port(port: u16, schema: &str) -> Options {
    parse(&format!("postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}"))
}

pub(crate) fn parse(url: &str) -> Options {
    Options::parse(url).expect("an address")
}

pub(crate) fn open(options: Options) -> Store {
    Store::open(Rules::default(), options).expect("the store opens")
}

/// Returns a server that keeps all data when it is killed and restarted.
pub(crate) fn durable_server() -> Option<Server> {
    Server::start(&[])
}

const OF_A_SESSION: [(&str, &str); 3] = [("session", "id"), ("part", "session"), ("event", "session")];

/// Saves a copy of a session as it is now.
pub(crate) fn copy_session(server: &Server, schema: &str, session: SessionId) {
    for (table, key) in OF_A_SESSION {
        let id = literal(session);
        server.ask(&format!(
            "CREATE TABLE \"{schema}\".saved_{table} AS SELECT * FROM \"{schema}\".{table} WHERE {key} = {id}"
        ));
    }
}

/// Restores the saved copy of a session.
pub(crate) fn restore_session(server: &Server, schema: &str, session: SessionId) {
    for (table, key) in OF_A_SESSION {
        server.ask(&format!("DELETE FROM \"{schema}\".{table} WHERE {key} = {}", literal(session)));
        server.ask(&format!("INSERT INTO \"{schema}\".{table} SELECT * FROM \"{schema}\".saved_{table}"));
    }
}

/// Makes all heartbeats older by this much, as if the clock of the database had been set ahead.
pub(crate) fn set_clock_ahead(server: &Server, schema: &str, by: Duration) {
    let by = by.as_millis();
    server.ask(&format!(
        "UPDATE \"{schema}\".pulse SET last = last - {by}, since = since - {by}; \
         UPDATE \"{schema}\".node SET beat = beat - {by}"
    ));
}

fn literal(session: SessionId) -> String {
    let hex: String = session.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("'\\x{hex}'")
}
