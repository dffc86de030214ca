//! A user with no more rights than the documentation says.

use std::ops::RangeInclusive;
use std::time::Duration;

use steadfast_session::command::Finished;
use steadfast_store::testing::server::{RedisCluster, RedisServer};
use steadfast_store::{RedisOptions, RedisStore, Store, StoreError};

use crate::common::{NOW, ONE, OTHER, begin_call, finish, id, message, open_session, run};
use crate::database::{ask, open};

/// As in `docs/stores.md`.
const RIGHTS: &str = "~steadfast:* ~{steadfast}:* &steadfast:news:* \
    +@read +@write +@scripting +@pubsub +@connection +time";

/// And what a cluster needs beside them.
const MORE_RIGHTS: &str = "+cluster|slots";

/// Nobody else may do anything from then on.
fn let_in(server: &RedisServer, users: &[(&str, &str)]) {
    for (name, rights) in users {
        let () = ask(server, &format!("ACL SETUSER {name} on >s3cret {rights}"));
    }
    let () = ask(server, "ACL SETUSER default off");
}

/// So many that each server of a cluster has some.
const SESSIONS: RangeInclusive<u8> = 1..=12;
const ALL: u8 = 12;

/// All that a store does.
async fn does_everything(options: RedisOptions) {
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
    assert!(store.sweep(NOW.plus(Duration::from_secs(7200)), 10).await.expect("the store answers") > 0);
    assert_eq!(store.bury_dead_nodes(NOW).await, Ok(0));
    store.answers().await.expect("the store answers");
    store.usage().await.expect("the store answers");
    store.leave(ONE, NOW).await.expect("the store answers");
}

/// How many of [`SESSIONS`] this user cannot ask for.
async fn refused(options: RedisOptions) -> u8 {
    let stranger = open(RedisOptions { patience: Duration::from_millis(50), ..options });
    let mut refused = 0;
    for n in SESSIONS {
        match stranger.facts(id(n)).await {
            Ok(_) => {}
            Err(StoreError::Unavailable(why)) if !why.contains("guess") => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    refused
}

#[tokio::test]
async fn a_user_with_few_rights_is_enough() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let_in(&server, &[("app", RIGHTS)]);
    let options =
        |password: &str| RedisOptions::new(format!("redis://app:{password}@127.0.0.1:{}", server.port()));
    does_everything(options("s3cret")).await;
    assert_eq!(refused(options("guess")).await, ALL);
}

#[tokio::test]
async fn a_user_of_a_cluster_needs_one_right_more() {
    let Some(mut cluster) = RedisCluster::start(&[]) else { return };
    let enough = format!("{RIGHTS} {MORE_RIGHTS}");
    for server in cluster.servers() {
        let_in(server, &[("app", &enough), ("poor", RIGHTS)]);
    }
    let urls = cluster.urls();
    let options = |user: &str, password: &str| {
        let user = format!("redis://{user}:{password}@");
        let urls = urls.iter().map(|url| url.replace("redis://", &user)).collect();
        RedisOptions { urls, cluster: true, ..RedisOptions::new("") }
    };
    // Who cannot learn where the slots are asks any server, and that may be the right one.
    assert_ne!(refused(options("poor", "s3cret")).await, 0);
    does_everything(options("app", "s3cret")).await;
    assert_eq!(refused(options("app", "guess")).await, ALL);
}
