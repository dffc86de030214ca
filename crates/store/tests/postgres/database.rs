//! The database of these tests: how to have one, open a store in it, and ask it directly.

use std::time::Duration;

use steadfast_session::{Rules, SessionId};

pub(crate) use steadfast_store::testing::server::PostgresServer as Server;
pub(crate) use steadfast_store::{PostgresOptions as Options, PostgresStore as Store};

pub(crate) fn options(server: &Server, schema: &str) -> Options {
    through(server.port(), schema)
}

/// The same, by way of another port.
pub(crate) fn through(port: u16, schema: &str) -> Options {
    parse(&format!("postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}"))
}

pub(crate) fn parse(url: &str) -> Options {
    Options::parse(url).expect("an address")
}

pub(crate) fn open(options: Options) -> Store {
    Store::open(Rules::default(), options).expect("the store opens")
}

/// A server that can be killed and has everything when it starts again.
pub(crate) fn durable_server() -> Option<Server> {
    Server::start(&[])
}

const OF_A_SESSION: [(&str, &str); 3] = [("session", "id"), ("part", "session"), ("event", "session")];

/// Keeps a session as it is now, beside it.
pub(crate) fn copy_session(server: &Server, schema: &str, session: SessionId) {
    for (table, key) in OF_A_SESSION {
        let id = literal(session);
        server.ask(&format!(
            "CREATE TABLE \"{schema}\".saved_{table} AS SELECT * FROM \"{schema}\".{table} WHERE {key} = {id}"
        ));
    }
}

/// Makes a session what it was then.
pub(crate) fn put_session_back(server: &Server, schema: &str, session: SessionId) {
    for (table, key) in OF_A_SESSION {
        server.ask(&format!("DELETE FROM \"{schema}\".{table} WHERE {key} = {}", literal(session)));
        server.ask(&format!("INSERT INTO \"{schema}\".{table} SELECT * FROM \"{schema}\".saved_{table}"));
    }
}

/// Whatever the database has written down of nodes is older by this much, as it is once its clock was set.
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
