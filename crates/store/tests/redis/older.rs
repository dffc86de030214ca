//! Sessions that older releases have written.

use bytes::Bytes;
use steadfast_session::command::{Finished, GetState, StateGot};
use steadfast_session::{CallNo, StreamNo, Value};
use steadfast_store::Store as _;
use steadfast_store::testing::server::RedisServer;

use crate::common::{FIRST, finish, id, message, run, texts};
use crate::database::{connect, open, options};

/// Everything under the prefix `golden` as a release wrote it: a command, a key, and bytes in hexadecimal digits (`-` for none). Files
/// never change; one is added where keys, or names in them, are written in another way.
const DUMPS: &[&str] = &[include_str!("golden/format-2.txt")];

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a byte");
    if hex == "-" { Vec::new() } else { (0..hex.len()).step_by(2).map(byte).collect() }
}

fn put(server: &RedisServer, dump: &str) {
    let mut line = connect(server).expect("the server answers");
    for text in dump.lines() {
        let mut words = text.split(' ');
        let (command, key) = (words.next().expect("a command"), words.next().expect("a key"));
        let () = redis::cmd(command)
            .arg(key)
            .arg(words.map(bytes).collect::<Vec<_>>())
            .query(&mut line)
            .expect("the server takes it");
    }
}

#[tokio::test]
async fn they_are_read_with_all_that_is_in_them() {
    for dump in DUMPS {
        let Some(server) = RedisServer::start(&[]) else { return };
        put(&server, dump);
        let store = open(options(&server, "golden"));
        assert_eq!(texts(&store, id(1), FIRST).await, ["hello", "again", "last"]);
        assert_eq!(texts(&store, id(1), StreamNo(1)).await, ["answer"]);
        let finished = run(&store, id(1), finish(CallNo(1), "late")).await;
        assert_eq!(finished, Finished::Finished { stream: StreamNo(2), seq: 1 });
        let value = run(&store, id(1), GetState { key: "name".into() }).await;
        let expected = Value { version: 1, bytes: Bytes::from_static(b"value") };
        assert_eq!(value, StateGot::Got(Some(expected)));
        run(&store, id(2), message("new")).await;
        assert_eq!(texts(&store, id(2), FIRST).await, ["new"]);
        assert_eq!(store.usage().await.expect("the store answers").sessions, 2);
    }
}
