//! What an endpoint offers to clients: revisions, duplicate ids, quirks.

use clap::Parser as _;
use steadfast::{DuplicateIds, Quirks, Revision, Revisions};

use super::*;
use crate::cli::Cli;

/// The settings of the HTTP layer of the only endpoint.
fn http(text: &str) -> steadfast_http::Config {
    read(text, &[], &[]).unwrap_or_else(|faults| panic!("{text}: {faults:?}")).endpoints[0].http()
}

#[test]
fn revisions_are_a_word_or_a_list() {
    let two = Revisions::new([Revision::V2025_11_25, Revision::V2026_07_28]).expect("not empty");
    for (value, expect) in [
        ("\"all\"", Revisions::all()),
        ("\"legacy\"", Revisions::legacy()),
        ("[\"2026-07-28\", \"2025-11-25\"]", two),
    ] {
        assert_eq!(http(&format!("{UPSTREAM}revisions = {value}")).revisions, expect, "{value}");
    }
    assert_eq!(http(UPSTREAM).revisions, Revisions::all());
    let what = "write \"all\", \"legacy\" or a list of these: 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28";
    for value in ["\"modern\"", "\"2025-11-25\"", "[]", "[\"2024-11-05\"]"] {
        let fault = format!("f.toml:3:13: endpoint[0].revisions: {what}");
        check(&format!("{UPSTREAM}revisions = {value}"), &[&fault]);
    }
}

#[test]
fn quirks_can_be_switched_off() {
    let defaults = http(UPSTREAM);
    assert_eq!((defaults.quirks, defaults.duplicate_ids), (Quirks::Apply, DuplicateIds::ByClient));
    let strict = http(&format!("{UPSTREAM}quirks = false\nduplicate_ids = \"reject\""));
    assert_eq!((strict.quirks, strict.duplicate_ids), (Quirks::Ignore, DuplicateIds::Reject));
}

#[test]
fn flags_set_what_clients_may_do() {
    for (flags, revisions, duplicate_ids) in [
        ("--revisions legacy", Revisions::legacy(), DuplicateIds::ByClient),
        ("--revisions 2025-11-25 --duplicate-ids isolate", one(), DuplicateIds::Isolate),
        ("--revisions 2025-03-26,2025-06-18,2025-11-25", Revisions::legacy(), DuplicateIds::ByClient),
    ] {
        let words = format!("steadfast serve --upstream http://127.0.0.1:8000/mcp {flags}");
        let flags = match Cli::try_parse_from(words.split(' ')).expect("a command").command {
            crate::cli::Command::Serve(flags) => flags.overrides().expect("balanced quotes"),
            other => panic!("{other:?}"),
        };
        let http = read("", &[], &flags).expect("a plan").endpoints[0].http();
        assert_eq!((http.revisions, http.duplicate_ids), (revisions, duplicate_ids), "{words}");
    }
}

fn one() -> Revisions {
    Revisions::new([Revision::V2025_11_25]).expect("not empty")
}
