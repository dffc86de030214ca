//! Creating and migrating the schema: concurrent starts, rights, newer versions.

use steadfast_session::Rules;
use steadfast_store::testing::server::fresh_name;
use steadfast_store::{Store as _, StoreError};

use crate::common::{
    FIRST, NOW, ONE, begin_call, eventually, finish, message, open_session, run, server_or_skip, texts,
};
use crate::database::{Options, Server, Store, open, options, parse};

fn refusal(options: Options) -> String {
    match Store::open(Rules::default(), options) {
        Err(StoreError::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// Creates a user that can only log in.
fn user(server: &Server) -> String {
    let name = fresh_name();
    server.ask(&format!("CREATE ROLE \"{name}\" LOGIN"));
    name
}

fn as_user(server: &Server, user: &str, schema: &str) -> Options {
    parse(&format!("postgres://{user}@127.0.0.1:{}/postgres?schema={schema}", server.port()))
}

#[tokio::test]
async fn processes_that_start_at_once_create_one_schema() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let start = || {
        std::thread::spawn({
            let options = options(server, &schema);
            move || open(options)
        })
    };
    let starting: Vec<_> = (0..6).map(|_| start()).collect();
    let stores: Vec<Store> =
        starting.into_iter().map(|store| store.join().expect("the store opens")).collect();
    let session = open_session(&stores[0], 1).await;
    for store in &stores {
        run(store, session, message("hello")).await;
    }
    assert_eq!(texts(&stores[0], session, FIRST).await.len(), stores.len());
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    drop(open(options(server, &schema)));
    server.ask(&format!("UPDATE \"{schema}\".format SET version = 99"));
    let why = refusal(options(server, &schema));
    assert!(why.contains("version 99, made by a newer release"), "{why}");
    assert_eq!(server.ask(&format!("SELECT version FROM \"{schema}\".format")), "99");
}

#[tokio::test]
async fn a_schema_that_exists_is_enough() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let user = user(server);
    let why = refusal(as_user(server, &user, &schema));
    assert!(why.contains(&format!("CREATE SCHEMA \"{schema}\" AUTHORIZATION")), "{why}");
    server.ask(&format!("CREATE SCHEMA \"{schema}\" AUTHORIZATION \"{user}\""));
    open_session(&open(as_user(server, &user, &schema)), 1).await;
}

/// With the rights in `docs/stores.md`.
#[tokio::test]
async fn a_user_with_few_rights_is_enough() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    drop(open(options(server, &schema)));
    let user = user(server);
    server.ask(&format!(
        "GRANT USAGE ON SCHEMA \"{schema}\" TO \"{user}\"; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \"{schema}\" TO \"{user}\""
    ));
    let store = open(as_user(server, &user, &schema));
    store.join(ONE, NOW).await.unwrap();
    let session = open_session(&store, 1).await;
    let (_, call) = begin_call(&store, session, ONE, 1).await;
    run(&store, session, message("hello")).await;
    run(&store, session, finish(call, "answer")).await;
    assert!(store.sweep(NOW.plus(std::time::Duration::from_secs(8 * 24 * 3600)), 10).await.unwrap() > 0);
    assert_eq!(store.reap_dead_nodes(NOW).await, Ok(0));
    store.usage().await.unwrap();
    store.leave(ONE, NOW).await.unwrap();
}

#[tokio::test]
async fn a_schema_that_was_dropped_is_created_again() {
    let (server, schema) = (server_or_skip!(), fresh_name());
    let store = open(options(server, &schema));
    let session = open_session(&store, 1).await;
    server.ask(&format!("DROP SCHEMA \"{schema}\" CASCADE"));
    eventually("the schema", || async { store.facts(session).await.ok() }).await;
    open_session(&store, 2).await;
}

#[tokio::test]
async fn a_store_opens_before_its_server() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.kill();
    let store = open(options(&server, "t"));
    assert!(matches!(store.usage().await, Err(StoreError::Unavailable(_))));
    server.launch().expect("the server starts");
    eventually("the server", || async { store.usage().await.ok() }).await;
    open_session(&store, 1).await;
}
