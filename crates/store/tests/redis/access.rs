//! A user with no more rights than the documentation says.

use steadfast_session::command::Finished;
use steadfast_store::testing::server::RedisServer;
use steadfast_store::{RedisOptions, Store, StoreError};

use crate::common::{NOW, ONE, begin_call, finish, message, open_session, run};
use crate::database::{ask, open};

/// As in `docs/stores.md`.
const RIGHTS: &str = "~steadfast:* ~{steadfast}:* &steadfast:news:* \
    +@read +@write +@scripting +@pubsub +@connection +time";

#[tokio::test]
async fn a_user_with_few_rights_is_enough() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let () = ask(&server, &format!("ACL SETUSER app on >s3cret {RIGHTS}"));
    let () = ask(&server, "ACL SETUSER default off");
    let url = |password: &str| format!("redis://app:{password}@127.0.0.1:{}", server.port());
    let store = open(RedisOptions::new(url("s3cret")));
    store.join(ONE, NOW).await.unwrap();
    let session = open_session(&store, 1).await;
    let (_, call) = begin_call(&store, session, ONE, 1).await;
    run(&store, session, message("hello")).await;
    assert!(matches!(run(&store, session, finish(call, "answer")).await, Finished::Finished { .. }));
    assert!(store.sweep(NOW.plus(std::time::Duration::from_secs(7200)), 10).await.unwrap() > 0);
    assert_eq!(store.bury_dead_nodes(NOW).await, Ok(0));
    store.usage().await.unwrap();
    store.leave(ONE, NOW).await.unwrap();

    let patience = std::time::Duration::from_millis(50);
    let stranger = open(RedisOptions { patience, ..RedisOptions::new(url("guess")) });
    let refused = stranger.facts(session).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(why)) if !why.contains("guess")), "{refused:?}");
}
