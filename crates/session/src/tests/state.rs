//! Session state: compare-and-set, bounded, versions that never come back.

use bytes::Bytes;

use super::bench::Bench;
use crate::command::{GetState, StateGot, StatePut};
use crate::{Limit, Value};

fn put(version: u64) -> StatePut {
    StatePut::Put { version: Some(version) }
}

const DELETED: StatePut = StatePut::Put { version: None };

fn conflict(current: Option<(u64, &'static str)>) -> StatePut {
    StatePut::Conflict {
        current: current.map(|(version, text)| Value { version, bytes: Bytes::from_static(text.as_bytes()) }),
    }
}

#[test]
fn a_write_needs_the_version_that_is_there() {
    let mut bench = Bench::new();
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
            StatePut::Conflict { .. } => bench.unchanged(|bench| bench.put(key, expected, value)),
            _ => bench.put(key, expected, value),
        };
        assert_eq!(got, outcome, "{key} {expected:?} {value:?}");
    }
    let StateGot::Got(Some(value)) = bench.run(GetState { key: "a".into() }) else { panic!() };
    assert_eq!((value.version, &value.bytes[..]), (4, &b"x"[..]));
    assert_eq!(bench.run(GetState { key: "none".into() }), StateGot::Got(None));
}

const OVER: StatePut = StatePut::OverLimit(Limit::State);

#[test]
fn entries_are_bounded() {
    let mut bench = Bench::with(|rules| rules.limits.state_entries = 2);
    bench.put("a", None, Some(""));
    bench.put("b", None, Some("x"));
    for key in ["c", ""] {
        assert_eq!(bench.unchanged(|bench| bench.put(key, None, Some(""))), OVER, "{key:?}");
    }
    assert_eq!(bench.put("c", None, None), DELETED);
    assert_eq!(bench.put("a", Some(1), Some("longer")), put(3));
    assert_eq!(bench.put("b", Some(2), None), DELETED);
    assert_eq!(bench.put("c", None, Some("x")), put(4));
}

#[test]
fn bytes_are_bounded_and_given_back() {
    let mut bench = Bench::with(|rules| rules.limits.state_bytes = 10);
    assert_eq!(bench.unchanged(|bench| bench.put("a", None, Some("0123456789"))), OVER);
    assert_eq!(bench.put("a", None, Some("012345678")), put(1));
    assert_eq!(bench.unchanged(|bench| bench.put("b", None, Some(""))), OVER);
    assert_eq!(bench.unchanged(|bench| bench.put("a", Some(1), Some("0123456789"))), OVER);
    assert_eq!(bench.put("a", Some(1), Some("0123")), put(2));
    assert_eq!(bench.put("b", None, Some("0123")), put(3));
    assert_eq!(bench.put("a", Some(2), None), DELETED);
    assert_eq!(bench.put("b", Some(3), Some("012345678")), put(4));
}

#[test]
fn a_state_over_a_lowered_bound_may_shrink() {
    let mut bench = Bench::new();
    bench.put("a", None, Some("0123456789"));
    bench.rules.limits.state_bytes = 4;
    assert_eq!(bench.put("a", Some(1), Some("01234567")), put(2));
    assert_eq!(bench.put("a", Some(2), Some("0123456789")), OVER);
}
