//! The store works after the server has forgotten its scripts.

use steadfast_store::testing::server::fresh_name;

use crate::common::{FIRST, message, open_session, read, run, server_or_skip};
use crate::database::{ask, open, options};

#[tokio::test]
async fn scripts_are_sent_again_after_a_flush() {
    let server = server_or_skip!();
    let store = open(options(server, &fresh_name()));
    let session = open_session(&store, 1).await;
    for n in 0..20 {
        let () = ask(server, "SCRIPT FLUSH");
        run(&store, session, message(&n.to_string())).await;
    }
    assert_eq!(read(&store, session, FIRST).await.events.len(), 20);
}
