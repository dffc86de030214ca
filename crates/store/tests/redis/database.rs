//! The Redis side of the tests in `tests/remote`: starts a server, opens a store, sends commands to
//! the server.

use std::time::Duration;

use redis::{Connection, FromRedisValue, RedisResult, Value};
use steadfast_session::{Rules, SessionId};

pub(crate) use steadfast_store::testing::server::RedisServer as Server;
pub(crate) use steadfast_store::{RedisOptions as Options, RedisStore as Store};

pub(crate) fn options(server: &Server, prefix: &str) -> Options {
    options_with_port(server.port(), prefix)
}

/// Returns options for a prefix by way of another port.
pub(crate) fn options_with_port(port: u16, prefix: &str) -> Options {
    Options { prefix: prefix.to_owned(), ..Options::new(format!("redis://127.0.0.1:{port}")) }
}

pub(crate) fn open(options: Options) -> Store {
    Store::open(Rules::default(), options).expect("the store opens")
}

/// Returns a server that keeps all data when it is killed and restarted.
pub(crate) fn durable_server() -> Option<Server> {
    Server::start(&["--appendonly", "yes", "--appendfsync", "always"])
}

/// Saves a copy of a session as it is now.
pub(crate) fn copy_session(server: &Server, prefix: &str, session: SessionId) {
    let key = format!("{prefix}:{{{}}}", session.text());
    let () = ask(server, &format!("COPY {key} saved:{key}"));
    let () = ask(server, &format!("COPY {key}:log saved:{key}:log"));
}

/// Restores the saved copy of a session.
pub(crate) fn restore_session(server: &Server, prefix: &str, session: SessionId) {
    let key = format!("{prefix}:{{{}}}", session.text());
    let () = ask(server, &format!("COPY saved:{key} {key} REPLACE"));
    let () = ask(server, &format!("COPY saved:{key}:log {key}:log REPLACE"));
}

/// Makes all heartbeats older by this much, as if the clock of the server had been set ahead.
pub(crate) fn set_clock_ahead(server: &Server, prefix: &str, by: Duration) {
    let script = "local beats = redis.call('ZRANGE', KEYS[1], 0, -1) \
                  for _, node in ipairs(beats) do redis.call('ZINCRBY', KEYS[1], -ARGV[1], node) end \
                  for _, name in ipairs({'last', 'since'}) do \
                    redis.call('HINCRBY', KEYS[2], name, -ARGV[1]) end";
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(2).arg(format!("{{{prefix}}}:nodes")).arg(format!("{{{prefix}}}:pulse"));
    let moved = connect(server).and_then(|mut connection| command.arg(by.as_millis()).query(&mut connection));
    let () = moved.expect("the server answers");
}

pub(crate) fn connect(server: &Server) -> RedisResult<Connection> {
    redis::Client::open(server.url())?.get_connection()
}

/// Sends a command, given as words separated by spaces, and returns the reply.
pub(crate) fn ask<T: FromRedisValue>(server: &Server, command: &str) -> T {
    let mut request = redis::Cmd::new();
    command.split(' ').for_each(|word| {
        request.arg(word);
    });
    let answer: RedisResult<Value> =
        connect(server).and_then(|mut connection| request.query(&mut connection));
    redis::from_redis_value(answer.expect("the server answers")).expect("an answer of this kind")
}
