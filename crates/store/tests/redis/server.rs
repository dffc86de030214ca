//! Asking the server directly.

use redis::{Connection, FromRedisValue, RedisResult, Value};
use steadfast_store::testing::server::RedisServer;

pub(crate) fn connect(server: &RedisServer) -> RedisResult<Connection> {
    redis::Client::open(server.url())?.get_connection()
}

/// Sends a command, its words parted by blanks, and waits for the answer.
pub(crate) fn ask<T: FromRedisValue>(server: &RedisServer, command: &str) -> T {
    let mut request = redis::Cmd::new();
    command.split(' ').for_each(|word| {
        request.arg(word);
    });
    let answer: RedisResult<Value> = connect(server).and_then(|mut line| request.query(&mut line));
    redis::from_redis_value(answer.expect("the server answers")).expect("an answer of this kind")
}
