//! Schemas that older releases have created are migrated with their data.

use bytes::Bytes;
use steadfast_session::command::{Finished, GetState, StateGot};
use steadfast_session::{CallNo, StateEntry, StreamNo};
use steadfast_store::Store as _;
use steadfast_store::testing::server::fresh_name;

use crate::common::{FIRST, finish, id, message, run, server_or_skip, texts};
use crate::database::{open, options};

/// Dumps of each earlier version, in the schema `golden`, with the same sessions. A dump never
/// changes.
const DUMPS: &[&str] = &[include_str!("dumps/version-1.sql"), include_str!("dumps/version-2.sql")];

/// The functions that processes of the older release continue to call after the migration.
const FUNCTIONS: &str = "SELECT proname, pg_get_function_identity_arguments(oid), pg_get_function_result(oid) \
                         FROM pg_proc WHERE pronamespace = 'golden'::regnamespace";

#[tokio::test]
async fn older_schemas_are_migrated_with_their_data() {
    let (server, fresh) = (server_or_skip!(), fresh_name());
    drop(open(options(server, &fresh)));
    for (version, dump) in (1..).zip(DUMPS) {
        server.ask("DROP SCHEMA IF EXISTS golden CASCADE");
        server.ask(dump);
        assert_eq!(server.ask("SELECT version FROM golden.format"), version.to_string());
        let before = server.ask(FUNCTIONS);
        let store = open(options(server, "golden"));
        assert_eq!(
            server.ask("SELECT version FROM golden.format"),
            (DUMPS.len() + 1).to_string(),
            "each version but the last has its dump"
        );
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
        let after = server.ask(FUNCTIONS);
        for function in before.lines() {
            assert!(
                after.lines().any(|line| line == function),
                "processes of version {version} call {function}"
            );
        }
        let text = |schema: &str| {
            let of = format!("FROM pg_proc WHERE pronamespace = '\"{schema}\"'::regnamespace");
            server.ask(&format!("SELECT proname, prosrc {of} ORDER BY proname, prosrc"))
        };
        assert_eq!(text("golden"), text(&fresh), "the functions are those of this release");
    }
}
