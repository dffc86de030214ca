//! Sessions that older releases have written can be read.

use bytes::Bytes;
use steadfast_session::command::{Finished, GetState, StateGot};
use steadfast_session::{CallNo, StateEntry, StreamNo};
use steadfast_store::Store as _;
use steadfast_store::testing::server::RedisServer;

use crate::common::{FIRST, finish, id, message, run, texts};
use crate::database::{connect, open, options};

/// Everything under the prefix `golden` as a release wrote it: a command, a key, and bytes in
/// hexadecimal digits (`-` for none). A file never changes. Add one whenever the names or contents
/// of keys change.
const DUMPS: &[&str] = &[include_str!("stored_data/format-2.txt")];

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a byte");
    if hex == "-" { Vec::new() } else { (0..hex.len()).step_by(2).map(byte).collect() }
}

fn put(server: &RedisServer, dump: &str) {
    let mut connection = connect(server).expect("the server answers");
    for text in dump.lines() {
        let mut words = text.split(' ');
        let (command, key) = (words.next().expect("a command"), words.next().expect("a key"));
        let () = redis::cmd(command)
            .arg(key)
            .arg(words.map(bytes).collect::<Vec<_>>())
            .query(&mut connection)
            .expect("the server takes it");
    }
}

#[tokio::test]
async fn older_sessions_are_read_completely() {
    for dump in DUMPS {
        let Some(server) = RedisServer::start(&[]) else { return };
        put(&server, dump);
        let store = open(options(&server, "golden"));
        assert_eq!(texts(&store, id(1), FIRST).await, ["hello", "again", "last"]);
        assert_eq!(texts(&store, id(1), StreamNo(1)).await, ["answer"]);
        let finished = run(&store, id(1), finish(CallNo(1), "late")).await;
        assert_eq!(finished, Finished::Finished { stream: StreamNo(2), seq: 1 });
        let value = run(&store, id(1), GetState { key: "name".into() }).await;
        let expected = StateEntry { version: 1, bytes: Bytes::from_static(b"value") };
        assert_eq!(value, StateGot::SessionOpen(Some(expected)));
        run(&store, id(2), message("new")).await;
        assert_eq!(texts(&store, id(2), FIRST).await, ["new"]);
        assert_eq!(store.usage().await.expect("the store answers").sessions, 2);
    }
}
