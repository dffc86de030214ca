//! The session state: compare-and-set, limits, and versions that are never reused.

use bytes::Bytes;

use super::fixture::Fixture;
use crate::command::{GetState, StateGot, StatePut};
use crate::{Limit, StateEntry};

fn put(version: u64) -> StatePut {
    StatePut::Put { version: Some(version) }
}

const DELETED: StatePut = StatePut::Put { version: None };

fn conflict(current: Option<(u64, &'static str)>) -> StatePut {
    StatePut::Conflict {
        current: current
            .map(|(version, text)| StateEntry { version, bytes: Bytes::from_static(text.as_bytes()) }),
    }
}

#[test]
fn a_write_needs_the_current_version() {
    let mut fixture = Fixture::new();
    for (key, expected, value, outcome) in [
        ("a", Some(1), Some("x"), conflict(None)),
        ("a", None, Some("x"), put(1)),
        ("a", None, Some("y"), conflict(Some((1, "x")))),
        ("b", None, Some("z"), put(2)),
        ("a", Some(2), Some("y"), conflict(Some((1, "x")))),
        ("a", Some(1), Some("x"), put(3)),
        ("a", Some(1), None, conflict(Some((3, "x")))),
        ("a", Some(3), None, DELETED),
        ("a", Some(3), Some("y"), conflict(None)),
        ("a", None, None, DELETED),
        ("a", None, Some("x"), put(4)),
        ("a", Some(3), Some("y"), conflict(Some((4, "x")))),
        ("a", Some(1), Some("y"), conflict(Some((4, "x")))),
    ] {
        let got = match outcome {
            StatePut::Conflict { .. } => fixture.unchanged(|fixture| fixture.put(key, expected, value)),
            _ => fixture.put(key, expected, value),
        };
        assert_eq!(got, outcome, "{key} {expected:?} {value:?}");
    }
    let StateGot::SessionOpen(Some(value)) = fixture.run(GetState { key: "a".into() }) else { panic!() };
    assert_eq!((value.version, &value.bytes[..]), (4, &b"x"[..]));
    assert_eq!(fixture.run(GetState { key: "none".into() }), StateGot::SessionOpen(None));
}

const OVER: StatePut = StatePut::OverLimit(Limit::State);

#[test]
fn the_number_of_entries_is_limited() {
    let mut fixture = Fixture::with(|rules| rules.limits.state_entries = 2);
    fixture.put("a", None, Some(""));
    fixture.put("b", None, Some("x"));
    for key in ["c", ""] {
        assert_eq!(fixture.unchanged(|fixture| fixture.put(key, None, Some(""))), OVER, "{key:?}");
    }
    assert_eq!(fixture.put("c", None, None), DELETED);
    assert_eq!(fixture.put("a", Some(1), Some("longer")), put(3));
    assert_eq!(fixture.put("b", Some(2), None), DELETED);
    assert_eq!(fixture.put("c", None, Some("x")), put(4));
}

#[test]
fn the_bytes_are_limited_and_freed_by_deletion() {
    let mut fixture = Fixture::with(|rules| rules.limits.state_bytes = 10);
    assert_eq!(fixture.unchanged(|fixture| fixture.put("a", None, Some("0123456789"))), OVER);
    assert_eq!(fixture.put("a", None, Some("012345678")), put(1));
    assert_eq!(fixture.unchanged(|fixture| fixture.put("b", None, Some(""))), OVER);
    assert_eq!(fixture.unchanged(|fixture| fixture.put("a", Some(1), Some("0123456789"))), OVER);
    assert_eq!(fixture.put("a", Some(1), Some("0123")), put(2));
    assert_eq!(fixture.put("b", None, Some("0123")), put(3));
    assert_eq!(fixture.put("a", Some(2), None), DELETED);
    assert_eq!(fixture.put("b", Some(3), Some("012345678")), put(4));
}

#[test]
fn a_state_above_a_lowered_limit_can_still_shrink() {
    let mut fixture = Fixture::new();
    fixture.put("a", None, Some("0123456789"));
    fixture.rules.limits.state_bytes = 4;
    assert_eq!(fixture.put("a", Some(1), Some("01234567")), put(2));
    assert_eq!(fixture.put("a", Some(2), Some("0123456789")), OVER);
}
