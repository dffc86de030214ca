//! Nodes whose clocks differ by what `docs/stores.md` calls harmless.

use std::time::Duration;

use steadfast::{Refusal, Timing};

use crate::asks::accepted;
use crate::support::{Backing, Host, Session, json};

use super::{Nodes, asking, heard};

crate::on_every_store!(
    a_node_with_another_clock_ends_nothing_of_its_neighbours,
    a_session_ends_earlier_by_no_more_than_clocks_differ,
);

/// How far one clock is ahead of the other.
const AHEAD: Duration = Duration::from_secs(10);

async fn lives(host: &Host, session: &Session) -> bool {
    !matches!(host.server().restore(session.session_id()).await, Err(Refusal::NoSession))
}

async fn a_node_with_another_clock_ends_nothing_of_its_neighbours(backing: Backing) {
    for is_other in [false, true] {
        let nodes = Nodes::start(backing).await;
        let ahead = if is_other { &nodes.other } else { &nodes.one };
        ahead.clock.advance(AHEAD);
        let (session, there) = nodes.open_session().await;
        let (mut stream, ask) = asking(&session, 1).await;
        for host in [&nodes.other, &nodes.one, &nodes.other] {
            host.sweep_after(Duration::ZERO).await;
        }
        assert!(stream.is_quiet().await, "the call goes on, and its ask is open");
        assert_eq!(there.answer(&ask, accepted("heard")).await.status, 202);
        assert_eq!(stream.message().await["result"]["content"][0]["text"], json!(heard("heard")));
        for host in [&nodes.other, &nodes.one] {
            host.sweep_after(Timing::default().grace - AHEAD * 2).await;
        }
        assert_eq!(there.say(2, "echo", json!({"text": "here"})).await, "here");
        assert_eq!(session.say(2, "echo", json!({"text": "here"})).await, "here");
    }
}

async fn a_session_ends_earlier_by_no_more_than_clocks_differ(backing: Backing) {
    let (nodes, moment) = (Nodes::start(backing).await, Duration::from_millis(1));
    let Timing { idle, touch, .. } = Timing::default();
    nodes.other.clock.advance(AHEAD);
    let (session, _) = nodes.open_session().await;
    nodes.other.sweep_after(idle + touch - AHEAD - moment).await;
    assert!(lives(&nodes.other, &session).await);
    nodes.other.sweep_after(moment).await;
    assert!(!lives(&nodes.other, &session).await);
}
