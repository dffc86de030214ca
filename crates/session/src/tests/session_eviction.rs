//! Eviction of a session.

use super::fixture::{Action, Fixture};
use crate::command::{Evict, Evicted, GetState, StateGot};
use crate::{CloseReason, LastUse, Lifecycle};

impl Fixture {
    fn evict(&mut self, seen: LastUse) -> Evicted {
        self.run(Evict { seen })
    }
}

#[test]
fn a_session_is_evicted_only_while_it_is_not_in_use() {
    let rows: [(&str, Action, Evicted); 8] = [
        ("new", |_| {}, Evicted::Evicted),
        (
            "a call in flight",
            |fixture| {
                fixture.post("1");
            },
            Evicted::InUse,
        ),
        (
            "a standalone reader",
            |fixture| {
                fixture.get();
            },
            Evicted::InUse,
        ),
        (
            "a reader that has gone",
            |fixture| {
                let (stream, connection, _) = fixture.get();
                fixture.detach(stream, connection, 0);
            },
            Evicted::Evicted,
        ),
        (
            "an answer that its reader has not received",
            |fixture| {
                let post = fixture.post("1");
                fixture.finish(post.call, "x");
            },
            Evicted::InUse,
        ),
        (
            "an answer that was delivered",
            |fixture| {
                let post = fixture.post("1");
                fixture.finish(post.call, "x");
                fixture.detach(post.stream, post.connection, 1);
            },
            Evicted::Evicted,
        ),
        (
            "an answer that waits for its client",
            |fixture| {
                let post = fixture.post("1");
                fixture.detach(post.stream, post.connection, 0);
                fixture.finish(post.call, "x");
            },
            Evicted::InUse,
        ),
        (
            "an answer whose retention is over",
            |fixture| {
                let post = fixture.post("1");
                fixture.detach(post.stream, post.connection, 0);
                fixture.finish(post.call, "x");
                fixture.wait(50);
            },
            Evicted::Evicted,
        ),
    ];
    for (name, before, expected) in rows {
        let mut fixture = Fixture::new();
        before(&mut fixture);
        let seen = fixture.session.meta().last_use();
        assert_eq!(fixture.evict(seen), expected, "{name}");
        assert_eq!(fixture.session.is_open(), expected == Evicted::InUse, "{name}");
    }
}

#[test]
fn a_session_that_was_used_after_it_was_chosen_stays() {
    let uses: [(&str, Action); 2] = [
        ("touched", |fixture| {
            fixture.wait(10).touch();
        }),
        ("called within the precision of the record", |fixture| {
            let post = fixture.post("1");
            fixture.finish(post.call, "x");
            fixture.detach(post.stream, post.connection, 1);
        }),
    ];
    for (name, used) in uses {
        let mut fixture = Fixture::new();
        let seen = fixture.session.meta().last_use();
        used(&mut fixture);
        assert_eq!(fixture.evict(seen), Evicted::InUse, "{name}");
        assert!(fixture.session.is_open(), "{name}");
    }
}

#[test]
fn an_evicted_session_frees_its_bytes_and_keeps_its_state() {
    let mut fixture = Fixture::new();
    fixture.put("key", None, Some("value"));
    let post = fixture.post("1");
    fixture.finish(post.call, "an answer");
    fixture.detach(post.stream, post.connection, 1);
    assert!(fixture.session.held_bytes() > 0);
    let seen = fixture.session.meta().last_use();
    assert_eq!(fixture.evict(seen), Evicted::Evicted);
    assert_eq!(fixture.lifecycle.last(), Some(&Lifecycle::Closed(CloseReason::Evicted)));
    assert_eq!((fixture.session.held_bytes(), fixture.session.streams().len()), (0, 0));
    assert!(matches!(fixture.run(GetState { key: "key".into() }), StateGot::SessionClosed(Some(_))));
    assert_eq!(fixture.evict(seen), Evicted::NoSession);
}
