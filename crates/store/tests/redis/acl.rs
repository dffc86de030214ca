//! Redis users with exactly the rights that the documentation lists.

use std::ops::RangeInclusive;
use std::time::Duration;

use steadfast_session::command::Finished;
use steadfast_store::testing::server::{RedisCluster, RedisServer};
use steadfast_store::{RedisOptions, RedisStore, Store, StoreError};

use crate::common::{NOW, ONE, OTHER, begin_call, finish, id, message, open_session, run};
use crate::database::{ask, open};

/// The rights in `docs/stores.md`.
const RIGHTS: &str = "~steadfast:* ~{steadfast}:* &steadfast:news:* \
    +@read +@write +@scripting +@pubsub +@connection +time";

/// What a cluster needs in addition.
const CLUSTER_RIGHTS: &str = "+cluster|slots";

/// Creates these users and disables the default user.
fn create_users(server: &RedisServer, users: &[(&str, &str)]) {
    for (name, rights) in users {
        let () = ask(server, &format!("ACL SETUSER {name} on >s3cret {rights}"));
    }
    let () = ask(server, "ACL SETUSER default off");
}

/// Enough that each server of a cluster has some.
const SESSIONS: RangeInclusive<u8> = 1..=12;
const ALL: u8 = 12;

/// Uses every operation of a store.
async fn use_every_operation(options: RedisOptions) {
    let (store, other): (RedisStore, RedisStore) = (open(options.clone()), open(options));
    store.join(ONE, NOW).await.expect("the store answers");
    other.join(OTHER, NOW).await.expect("the store answers");
    for n in SESSIONS {
        let session = open_session(&store, n).await;
        let (_, call) = begin_call(&store, session, ONE, 1).await;
        run(&other, session, message("hello")).await;
        assert!(matches!(run(&store, session, finish(call, "answer")).await, Finished::Finished { .. }));
    }
    assert_eq!(store.is_alive(OTHER).await, Ok(true));
    assert!(
        store.sweep(NOW.plus(Duration::from_secs(8 * 24 * 3600)), 10).await.expect("the store answers") > 0
    );
    assert_eq!(store.reap_dead_nodes(NOW).await, Ok(0));
    store.ping().await.expect("the store answers");
    store.usage().await.expect("the store answers");
    store.leave(ONE, NOW).await.expect("the store answers");
}

/// Returns how many of [`SESSIONS`] this user cannot access.
async fn count_refused(options: RedisOptions) -> u8 {
    let stranger = open(RedisOptions { retry_window: Duration::from_millis(50), ..options });
    let mut count_refused = 0;
    for n in SESSIONS {
        match stranger.facts(id(n)).await {
            Ok(_) => {}
            Err(StoreError::Unavailable(why)) if !why.contains("guess") => count_refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    count_refused
}

#[tokio::test]
async fn a_user_with_few_rights_is_enough() {
    let Some(server) = RedisServer::start(&[]) else { return };
    create_users(&server, &[("app", RIGHTS)]);
    let options =
        |password: &str| RedisOptions::new(format!("redis://app:{password}@127.0.0.1:{}", server.port()));
    use_every_operation(options("s3cret")).await;
    assert_eq!(count_refused(options("guess")).await, ALL);
}

#[tokio::test]
async fn a_cluster_user_needs_one_more_right() {
    let Some(mut cluster) = RedisCluster::start(&[]) else { return };
    let enough = format!("{RIGHTS} {CLUSTER_RIGHTS}");
    for server in cluster.servers() {
        create_users(server, &[("app", &enough), ("poor", RIGHTS)]);
    }
    let urls = cluster.urls();
    let options = |user: &str, password: &str| {
        let user = format!("redis://{user}:{password}@");
        let urls = urls.iter().map(|url| url.replace("redis://", &user)).collect();
        RedisOptions { urls, cluster: true, ..RedisOptions::new("") }
    };
    // Without the right to read the slot map, the client asks any server, which may be the right
    // one.
    assert_ne!(count_refused(options("poor", "s3cret")).await, 0);
    use_every_operation(options("app", "s3cret")).await;
    assert_eq!(count_refused(options("app", "guess")).await, ALL);
}
