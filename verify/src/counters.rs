//! A session at the server belongs to one client's session, and what it remembers never goes back: a number that was read is
//! smaller than each that is asked for afterwards, and no number comes twice.

use std::collections::BTreeMap;

use crate::digest::{Digest, Said};
use crate::marks::word;
use crate::verdict::{Bounds, Verdict, Violation};

/// A number that a client was told.
struct Told<'a> {
    call: &'a str,
    sent: u64,
    answered: u64,
    value: u64,
}

pub(crate) fn check(digest: &Digest<'_>, _bounds: &Bounds, verdict: &mut Verdict) {
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    let mut counters: BTreeMap<String, Vec<Told<'_>>> = BTreeMap::new();
    for (name, call) in &digest.calls {
        for answer in &call.answers {
            let Said::Result(text) = &answer.said else { continue };
            let Some(place) = word(text, "at") else { continue };
            let owner = *owners.entry(place.to_owned()).or_insert(call.session);
            verdict.check(owner == call.session, || {
                let what = format!("it was served in {place}, which is session {owner}'s");
                Violation::new(answer.at, *name, what)
            });
            if let Some(value) = word(text, "counter").and_then(|value| value.parse().ok()) {
                let told = Told { call: name, sent: call.sent, answered: answer.at, value };
                counters.entry(place.to_owned()).or_default().push(told);
            }
        }
    }
    counters.iter_mut().for_each(|(place, told)| never_back(place, told, verdict));
}

fn never_back(place: &str, told: &mut [Told<'_>], verdict: &mut Verdict) {
    told.sort_by_key(|told| told.sent);
    let mut by_answer: Vec<(u64, u64)> = told.iter().map(|told| (told.answered, told.value)).collect();
    by_answer.sort_unstable();
    let mut highest = 0;
    let mut answered = by_answer.into_iter().peekable();
    let mut seen: BTreeMap<u64, &str> = BTreeMap::new();
    for told in told {
        while let Some((_, value)) = answered.next_if(|(at, _)| *at < told.sent) {
            highest = highest.max(value);
        }
        verdict.check(told.value > highest, || {
            let what = format!("the counter of {place} was {highest} before and is {} now", told.value);
            Violation::new(told.answered, told.call, what)
        });
        let other = seen.insert(told.value, told.call);
        verdict.check(other.is_none(), || {
            let what = format!("{} of {place} was told to {} as well", told.value, other.unwrap_or_default());
            Violation::new(told.answered, told.call, what)
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::sample::{History, check};

    fn counted(values: &[(&str, &str, &str)]) -> History {
        let count = |history: History, (i, (call, place, value)): (usize, &(&str, &str, &str))| {
            history.whole(i as u64 + 1, call, "counter", place, &format!("counter={value}"))
        };
        values.iter().enumerate().fold(History::new(), count)
    }

    #[test]
    fn numbers_go_up() {
        check("counters", &counted(&[("a", "p", "1"), ("b", "p", "2"), ("c", "p", "5")]), &[]);
        check("counters", &counted(&[("a", "p", "4"), ("b", "q", "1")]), &[]);
        // Calls at the same time may be answered in any order.
        let both =
            History::new().sent("a", 1, "counter").accepted("a", 1).sent("b", 2, "counter").accepted("b", 2);
        let both = both.result(1, 1, 1, 1, "a", "counter=2 at=p").result(2, 2, 1, 2, "b", "counter=1 at=p");
        check("counters", &both, &[]);
    }

    #[test]
    fn and_never_down() {
        check("counters", &counted(&[("a", "p", "2"), ("b", "p", "1")]), &["b"]);
        check(
            "counters",
            &counted(&[("a", "p", "1"), ("b", "q", "1"), ("c", "p", "2"), ("d", "q", "1")]),
            &["d", "d"],
        );
    }

    #[test]
    fn a_place_has_one_owner() {
        let other = counted(&[("a", "p", "1")]).sent_in("t", "b", 9, "echo").accepted("b", 9);
        check("counters", &other.result(9, 1, 1, 9, "b", "at=p"), &["b"]);
    }
}
