//! Bad input: whatever is wrong with a request, the answer says so, and nothing has changed.

mod support;

mod bad_input {
    pub(crate) mod batches;
    mod cors;
    mod hang_ups;
    pub(crate) mod head;
    pub(crate) mod json;
    mod limits;
    pub(crate) mod mirrored;
    mod principals;
    pub(crate) mod row;
    mod secrets;
    pub(crate) mod sessions;
    pub(crate) mod stateless;
    pub(crate) mod world;
}

use bad_input::row::Row;
use bad_input::world::World;
use bad_input::{batches, head, json, mirrored, sessions, stateless};
use support::Backing;

async fn check(backing: Backing, rows: Vec<Row>) {
    let mut world = World::new(backing).await;
    for row in &rows {
        world.check(row).await;
    }
    world.finish().await;
}

async fn bodies(backing: Backing) {
    check(backing, json::rows()).await;
}

async fn heads(backing: Backing) {
    check(backing, head::rows()).await;
}

async fn sessions_events_and_asks(backing: Backing) {
    check(backing, sessions::rows()).await;
}

async fn batches(backing: Backing) {
    check(backing, batches::rows()).await;
}

async fn stateless_requests(backing: Backing) {
    check(backing, stateless::rows()).await;
}

async fn mirrored_headers(backing: Backing) {
    check(backing, mirrored::rows()).await;
}

on_every_store!(bodies, heads, sessions_events_and_asks, batches, stateless_requests, mirrored_headers);

#[test]
fn the_table_is_long() {
    let rows =
        [json::rows(), head::rows(), sessions::rows(), batches::rows(), stateless::rows(), mirrored::rows()]
            .concat();
    println!("{} rows", rows.len());
    assert!(rows.len() >= 100);
}
