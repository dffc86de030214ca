//! The database of these tests: how to have one, open a store in it, and ask it directly.

use std::time::Duration;

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
    let key = format!("{prefix}:{{{}}}", session.text());
    let () = ask(server, &format!("COPY {key} saved:{key}"));
    let () = ask(server, &format!("COPY {key}:log saved:{key}:log"));
}

/// Makes a session what it was then.
pub(crate) fn put_session_back(server: &Server, prefix: &str, session: SessionId) {
    let key = format!("{prefix}:{{{}}}", session.text());
    let () = ask(server, &format!("COPY saved:{key} {key} REPLACE"));
    let () = ask(server, &format!("COPY saved:{key}:log {key}:log REPLACE"));
}

/// Whatever the server has written down of nodes is older by this much, as it is once its clock was set.
pub(crate) fn set_clock_ahead(server: &Server, prefix: &str, by: Duration) {
    let script = "local beats = redis.call('ZRANGE', KEYS[1], 0, -1) \
                  for _, node in ipairs(beats) do redis.call('ZINCRBY', KEYS[1], -ARGV[1], node) end \
                  for _, name in ipairs({'last', 'since'}) do \
                    redis.call('HINCRBY', KEYS[2], name, -ARGV[1]) end";
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(2).arg(format!("{{{prefix}}}:nodes")).arg(format!("{{{prefix}}}:pulse"));
    let moved = connect(server).and_then(|mut line| command.arg(by.as_millis()).query(&mut line));
    let () = moved.expect("the server answers");
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
