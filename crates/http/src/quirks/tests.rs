//! Which clients the table recognises, and the page that shows the table.

use std::fmt::Write as _;

use super::*;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/clients.md");

fn effects(name: &str, version: &str, agent: Agent) -> Vec<&'static str> {
    let client = ClientInfo { name: name.into(), version: version.into() };
    Quirks::Apply.of(&client, agent).map(|quirk| quirk.effect.as_str()).collect()
}

#[test]
fn clients_are_recognised_by_name_and_version() {
    for (name, version, agent, expect) in [
        ("Anthropic/ClaudeAI", "1.0.0", Agent::Named, &["isolate_duplicate_ids"][..]),
        ("Visual Studio Code", "1.118.0", Agent::Named, &["refuse_in_band"]),
        ("visual studio code", "1.118.0", Agent::Named, &[]),
        ("gemini-cli-mcp-client-files", "0.0.1", Agent::Named, &["refuse_in_band"]),
        ("goose-desktop", "1.50.0", Agent::Named, &["discover_not_found"]),
        ("goose-desktop", "1.48.9", Agent::Named, &[]),
        ("their own", "1", Agent::Unnamed, &["discover_not_found"]),
        ("their own", "1", Agent::Named, &[]),
        ("", "", Agent::Named, &[]),
    ] {
        assert_eq!(effects(name, version, agent), expect, "{name} {version} {agent:?}");
    }
    let claude = ClientInfo { name: "claude-ai".into(), version: "0.1.0".into() };
    assert_eq!(Quirks::Ignore.of(&claude, Agent::Unnamed).count(), 0);
}

#[test]
fn versions_are_compared_number_by_number() {
    use Ordering::{Equal, Greater, Less};
    for (one, other, expect) in [
        ("1.50", "1.50.0", Equal),
        ("1.9.9", "1.50", Less),
        ("v2", "1.50", Greater),
        ("1.50.0-beta.1", "1.50.0", Equal),
        ("", "1", Less),
        ("nightly", "0.0.0", Equal),
    ] {
        assert_eq!(compare(one, other), expect, "{one} {other}");
    }
    let range = Versions { from: Some("1.2"), before: Some("2.0") };
    let contained = ["1.1.9", "1.2", "1.99", "2.0"].map(|version| range.contain(version));
    assert_eq!(contained, [false, true, true, false]);
}

fn table() -> String {
    let mut table = String::from(
        "| client | recognised by | versions | what it does | what the gateway does | evidence |\n|---|---|---|---|---|---|\n",
    );
    for Quirk { effect, client, sign, versions, behaviour, evidence } in TABLE {
        let sign = match sign {
            Sign::Names(names) => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
            Sign::NoUserAgent => "no `User-Agent`".to_owned(),
        };
        let versions = match (versions.from, versions.before) {
            (None, None) => "all".to_owned(),
            (Some(from), None) => format!("from {from}"),
            (None, Some(before)) => format!("before {before}"),
            (Some(from), Some(before)) => format!("from {from}, before {before}"),
        };
        let effect = effect.as_str();
        let _ = writeln!(table, "| {client} | {sign} | {versions} | {behaviour} | `{effect}` | {evidence} |");
    }
    table
}

fn effect_list() -> String {
    let line = |effect: Effect| format!("| `{}` | {} |\n", effect.as_str(), effect.description());
    let rows: String = Effect::ALL.into_iter().map(line).collect();
    format!("| quirk | what the gateway does |\n|---|---|\n{rows}")
}

#[test]
fn the_page_lists_every_quirk() {
    let page = std::fs::read_to_string(PAGE).expect("docs/clients.md exists");
    let mut written = page.clone();
    for (name, generated) in [("quirks", table()), ("effects", effect_list())] {
        let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
        let from = written.find(&begin).expect("the marker that begins a table") + begin.len();
        let to = written.find(&end).expect("the marker that ends a table");
        written.replace_range(from..to, &generated);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PAGE, &written).expect("docs/clients.md can be written");
    }
    assert_eq!(page, written, "docs/clients.md is out of date: run this test with UPDATE_DOCS=1");
}
