//! The database of these tests: how to have one, open a store in it, and ask it directly.

use redis::{Connection, FromRedisValue, RedisResult, Value};
use steadfast_session::{Rules, SessionId};

pub(crate) use steadfast_store::testing::server::RedisServer as Server;
pub(crate) use steadfast_store::{RedisOptions as Options, RedisStore as Store};

pub(crate) fn options(server: &Server, prefix: &str) -> Options {
    through(server.port(), prefix)
}

/// The same, by way of another port.
pub(crate) fn through(port: u16, prefix: &str) -> Options {
    Options { prefix: prefix.to_owned(), ..Options::new(format!("redis://127.0.0.1:{port}")) }
}

pub(crate) fn open(options: Options) -> Store {
    Store::open(Rules::default(), options).expect("the store opens")
}

/// A server that can be killed and has everything when it starts again.
pub(crate) fn durable_server() -> Option<Server> {
    Server::start(&["--appendonly", "yes", "--appendfsync", "always"])
}

/// Keeps a session as it is now, beside it.
pub(crate) fn copy_session(server: &Server, prefix: &str, session: SessionId) {
    let key = format!("{prefix}:{{{}}}", session.expose());
    let () = ask(server, &format!("COPY {key} saved:{key}"));
    let () = ask(server, &format!("COPY {key}:log saved:{key}:log"));
}

/// Makes a session what it was then.
pub(crate) fn put_session_back(server: &Server, prefix: &str, session: SessionId) {
    let key = format!("{prefix}:{{{}}}", session.expose());
    let () = ask(server, &format!("COPY saved:{key} {key} REPLACE"));
    let () = ask(server, &format!("COPY saved:{key}:log {key}:log REPLACE"));
}

pub(crate) fn connect(server: &Server) -> RedisResult<Connection> {
    redis::Client::open(server.url())?.get_connection()
}

/// Sends a command, its words parted by blanks, and waits for the answer.
pub(crate) fn ask<T: FromRedisValue>(server: &Server, command: &str) -> T {
    let mut request = redis::Cmd::new();
    command.split(' ').for_each(|word| {
        request.arg(word);
    });
    let answer: RedisResult<Value> = connect(server).and_then(|mut line| request.query(&mut line));
    redis::from_redis_value(answer.expect("the server answers")).expect("an answer of this kind")
}
