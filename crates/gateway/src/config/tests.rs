//! Configurations in, plans or faults out.

mod defaults;
mod example;
mod identity;
mod pages;
mod programs;
mod secured;

use std::path::Path;
use std::time::Duration;

use steadfast_client::transport::{Tls, TlsError};
use steadfast_upstream::{Credential, Server};
use toml::Value;

use super::*;

const UPSTREAM: &str = "[[endpoint]]\nupstream = \"http://127.0.0.1:8000/mcp\"\n";

const KEYS: &str =
    r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

fn read(text: &str, variables: &[(&str, &str)], flags: &[Override]) -> Result<Plan, Vec<Fault>> {
    let file = |path: &Path| match path.to_str() {
        Some("/secret") => Ok("from a file\n".to_owned()),
        Some("/keys") => Ok(KEYS.to_owned()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let world = World {
        variables: variables.collect(),
        read: &file,
        folder: "/start".into(),
        is_folder: &|path| path == Path::new("/folder"),
        is_program: &|path| ["/usr/bin/here", "/folder/bin/there"].map(Path::new).contains(&path),
        tls: &|files| match &files.ca {
            Some(file) => Err(TlsError::NoCertificate(file.clone())),
            None => Ok(Tls::public()),
        },
    };
    load(&Source { name: "f.toml".into(), text: text.into() }, flags, &world)
}

fn faults(text: &str, variables: &[(&str, &str)], flags: &[Override]) -> Vec<String> {
    let faults = read(text, variables, flags).err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

/// The first line of each fault: place, key, what is wrong.
fn check(text: &str, expect: &[&str]) {
    let found: Vec<String> = faults(text, &[], &[])
        .iter()
        .map(|fault| fault.lines().next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(found, expect, "{text}");
}

/// A bound that nobody keeps would be worse than none.
#[test]
fn bounds_that_the_store_does_not_apply_are_found() {
    let limits = "limits = { store_bytes = \"2GiB\", principal_bytes = \"1MiB\" }\n";
    let with = |store: &str| format!("{store}{limits}{UPSTREAM}");
    let principals =
        "limits.principal_bytes: this store does not count what the sessions of a principal hold";
    check(&with("store = \"memory:\"\n"), &[]);
    check(&with("store = \"sqlite:a.db\"\n"), &[&format!("f.toml:2:52: {principals}")]);
    check(&with(""), &[&format!("f.toml:1:52: {principals}")]);
    for store in ["redis://a", "postgres://a/b"] {
        check(
            &with(&format!("store = \"{store}\"\n")),
            &[
                "f.toml:2:26: limits.store_bytes: a database does not count what sessions hold",
                &format!("f.toml:2:52: {principals}"),
            ],
        );
        check(&format!("store = \"{store}\"\n{UPSTREAM}"), &[]);
    }
}

#[test]
fn mistakes_are_found_where_they_are() {
    check(UPSTREAM, &[]);
    check("", &["f.toml:1:1: endpoint: there is nothing to serve"]);
    check("listen = \n", &["f.toml:1:10: listen: string values must be quoted, expected literal string"]);
    check(
        "[[endpoint]]\nupstream = \"http://a/\"\nconcurency = 1\n\n[http]\n",
        &[
            "f.toml:3:1: endpoint[0].concurency: there is no such key",
            "f.toml:5:2: http: there is no such key",
        ],
    );
    check(
        &format!("{UPSTREAM}http = {{ keep_alive = \"soon\" }}"),
        &[
            "f.toml:3:23: endpoint[0].http.keep_alive: \"soon\" is no span of time: write for instance \"500ms\", \"30s\", \"1h30m\"",
        ],
    );
    check(
        &format!("{UPSTREAM}[endpoint.engine]\nread_bytes = -1"),
        &["f.toml:4:14: endpoint[0].engine.read_bytes: a size is not negative"],
    );
    check(
        &format!("listener = {{ connections = 0, threads = 1025 }}\n{UPSTREAM}"),
        &[
            "f.toml:1:28: listener.connections: nobody could connect",
            "f.toml:1:41: listener.threads: more than any machine has use for",
        ],
    );
    check(&format!("listener = {{ threads = 1024 }}\n{UPSTREAM}"), &[]);
    check(
        &format!("{UPSTREAM}concurrency = 0"),
        &["f.toml:3:15: endpoint[0].concurrency: invalid value: integer `0`, expected a nonzero usize"],
    );
    check(
        &format!("listen = [\"127.0.0.1:1\", \"here\", \"127.0.0.1:1\"]\n{UPSTREAM}"),
        &[
            "f.toml:1:26: listen[1]: \"here\" is no address to listen on",
            "f.toml:1:34: listen[2]: 127.0.0.1:1 is listed before",
        ],
    );
    check(
        &format!(
            "listen = \"127.0.0.1:1\"\nadmin.listen = \"127.0.0.1:1\"\nstore = \"redis:\"\nlog = \"x=y=z\"\n{UPSTREAM}"
        ),
        &[
            "f.toml:3:9: store: \"redis:\" is no store. Write `memory:`, `sqlite:PATH`, `redis://HOST` or `postgres://HOST/DATABASE`",
            "f.toml:2:16: admin.listen: 127.0.0.1:1 is taken by `listen`",
            "f.toml:4:7: log: \"x=y=z\" is no filter: error parsing level filter: expected one of \"off\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", or a number 0-5",
        ],
    );
    check(
        &format!("[tls]\ncertificate = \"/nowhere\"\n{UPSTREAM}"),
        &[
            "f.toml:2:15: tls.certificate: /nowhere cannot be read: entity not found",
            "f.toml:1:1: tls.key: there is no file",
        ],
    );
    check("[defaults]\ndemo = true\n[[endpoint]]", &["f.toml:2:8: defaults.demo: endpoints cannot share it"]);
    check(
        &format!("{UPSTREAM}[[endpoint]]\nupstream = [\"http://a/\", \"https://b/\", \"c\", \"http://a/\"]"),
        &[
            "f.toml:3:1: endpoint[1].path: another endpoint is at /mcp already",
            "f.toml:4:40: endpoint[1].upstream[2]: \"c\" is not the address of a server",
            "f.toml:4:45: endpoint[1].upstream[3]: http://a/ is listed before",
        ],
    );
    check(
        "[[endpoint]]\nupstream = \"http://me:secret@a/\"",
        &["f.toml:2:12: endpoint[0].upstream: the address of a server must not have credentials in it"],
    );
    check("[[endpoint]]", &["f.toml:1:1: endpoint[0]: there is no server behind it"]);
    check(
        &format!(
            "{UPSTREAM}demo = true\npath = \"mcp\"\nhosts = [\"http://a\"]\norigins = [\"a\", \"https://b/\"]"
        ),
        &[
            "f.toml:4:8: endpoint[0].path: \"mcp\" is no path",
            "f.toml:5:10: endpoint[0].hosts[0]: \"http://a\" would match nothing",
            "f.toml:6:12: endpoint[0].origins[0]: \"a\" would match nothing",
            "f.toml:6:17: endpoint[0].origins[1]: \"https://b/\" would match nothing",
            "f.toml:1:1: endpoint[0]: there is more than one server behind it",
        ],
    );
    check(
        "[[endpoint]]\nauth = \"forward\"\nheaders = { X = \"1\" }\nstdio = { folder = \"/nowhere\" }",
        &[
            "f.toml:3:11: endpoint[0].headers: a program gets no headers",
            "f.toml:2:8: endpoint[0].auth: a program cannot be shown a client's credentials",
            "f.toml:4:20: endpoint[0].stdio.folder: /nowhere is no folder",
            "f.toml:4:9: endpoint[0].stdio.command: there is no program",
        ],
    );
    check(
        &format!(
            "{UPSTREAM}auth = \"forward\"\n[endpoint.headers]\nAuthorization = \"x\"\nHost = \"a\"\n\"a b\" = \"c\"\nd = \"e\\nf\""
        ),
        &[
            "f.toml:6:8: endpoint[0].headers.Host: the gateway sets this header itself",
            "f.toml:7:9: endpoint[0].headers.a b: this is no name of a header",
            "f.toml:8:5: endpoint[0].headers.d: its value cannot be sent in a header",
            "f.toml:3:8: endpoint[0].auth: the server gets the client's own credentials, so it cannot get these",
        ],
    );
    check(
        &format!(
            "{UPSTREAM}spread = 65\ntimeouts = {{ head = \"0s\", call = \"0s\" }}\n[[endpoint]]\npath = \"/ok\"\nspread = 64\ndemo = true"
        ),
        &[
            "f.toml:4:21: endpoint[0].timeouts.head: no time at all is too short",
            "f.toml:4:34: endpoint[0].timeouts.call: no time at all is too short",
            "f.toml:3:10: endpoint[0].spread: 65 sessions of the server's for one of a client's are too many",
        ],
    );
    check(
        "[[endpoint]]\nstandalone = false\ntimeouts.control = \"0s\"\nstdio = { command = \"x\", processes = 0 }",
        &[
            "f.toml:3:20: endpoint[0].timeouts.control: no time at all is too short",
            "f.toml:2:14: endpoint[0].standalone: while several calls run, a program asks where nobody would read it",
            "f.toml:4:38: endpoint[0].stdio.processes: no process at all is too few",
        ],
    );
    check(
        &format!("{UPSTREAM}http.keep_alive = \"0s\"\nengine.sweep_interval = \"0s\""),
        &[
            "f.toml:3:19: endpoint[0].http.keep_alive: no time at all is too short",
            "f.toml:4:25: endpoint[0].engine.sweep_interval: no time at all is too short",
        ],
    );
}

#[test]
fn a_remedy_is_a_guess_what_was_meant() {
    for (line, expect) in [
        ("concurency = 1", "did you mean `concurrency`?"),
        ("origin = []", "did you mean `origins`?"),
        ("max_body_bytes = 1", "`max_body_bytes` is a key of `[endpoint.http]`"),
        ("idle = \"1s\"", "`idle` is a key of `[timing]`"),
        ("drain = \"1s\"", "`drain` is a key of `the top of the file`"),
    ] {
        let found = faults(&format!("{UPSTREAM}{line}"), &[], &[]);
        assert_eq!(found.len(), 1, "{line}");
        assert_eq!(found[0].lines().last(), Some(&*format!("  try: {expect}")), "{line}");
    }
}

#[test]
fn variables_go_before_the_file_and_flags_before_both() {
    let text = format!("listen = \"127.0.0.1:1\"\ndrain = \"1s\"\nstore = \"memory:\"\n{UPSTREAM}");
    let variables = [
        ("STEADFAST__LISTEN", "127.0.0.1:2"),
        ("STEADFAST__ADMIN__LISTEN", "127.0.0.1:3"),
        ("STEADFAST__DEFAULTS__CONCURRENCY", "4"),
        ("STEADFAST__DEFAULTS__STANDALONE", "false"),
        ("STEADFAST__DEFAULTS__HTTP__MAX_BODY_BYTES", "5KiB"),
        ("STEADFAST_CI", "somebody else's"),
    ];
    let flags = [Override::new("--listen", &["listen"], "127.0.0.1:6")];
    let plan = read(&text, &variables, &flags).expect("a plan");
    assert_eq!(plan.listen, ["127.0.0.1:6".parse().unwrap()]);
    assert_eq!(plan.admin, Some("127.0.0.1:3".parse().unwrap()));
    assert_eq!(plan.drain, Duration::from_secs(1));
    let Behind::Upstream(upstream) = &plan.endpoints[0].behind else { panic!("an upstream") };
    assert_eq!(upstream.calls.concurrency.map(std::num::NonZero::get), Some(4));
    assert!(!upstream.standalone);
    assert_eq!(plan.endpoints[0].http().max_body_bytes, 5 << 10);
    let plan = read(&text, &variables, &[]).expect("a plan");
    assert_eq!(plan.listen, ["127.0.0.1:2".parse().unwrap()]);
}

#[test]
fn a_variable_or_a_flag_is_blamed_by_its_name() {
    for (name, value, expect) in [
        ("STEADFAST__LISTEN", "here", "STEADFAST__LISTEN: listen: \"here\" is no address to listen on"),
        ("STEADFAST__LISTN", "x", "STEADFAST__LISTN: listn: there is no such key"),
        ("STEADFAST__HTTP__RETRY", "x", "STEADFAST__HTTP__RETRY: http: there is no such key"),
        (
            "STEADFAST__DEFAULTS__PATIENCE",
            "5",
            "STEADFAST__DEFAULTS__PATIENCE: defaults.patience: invalid type: integer `5`, expected a string",
        ),
    ] {
        let found = faults(UPSTREAM, &[(name, value)], &[]);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert_eq!(found[0].lines().next(), Some(expect));
    }
    let flags = [Override::new(
        "--upstream",
        &["endpoint"],
        vec![Value::Table(toml::from_str("upstream = [\"nonsense\"]").unwrap())],
    )];
    let found = faults("", &[], &flags);
    assert_eq!(
        found,
        [
            "--upstream: endpoint[0].upstream[0]: \"nonsense\" is not the address of a server\n  try: http://HOST:PORT/PATH, or https://HOST/PATH"
        ]
    );
}

#[test]
fn secrets_are_elsewhere() {
    let text =
        format!("{UPSTREAM}[endpoint.headers]\nAuthorization = \"env:TOKEN\"\nX-Key = \"file:/secret\"");
    let plan = read(&text, &[("TOKEN", "Bearer t")], &[]).expect("a plan");
    let Behind::Upstream(upstream) = &plan.endpoints[0].behind else { panic!("an upstream") };
    let Server::Http { headers, .. } = &upstream.server else { panic!("an address") };
    assert_eq!(headers.len(), 1);
    assert_eq!(headers["x-key"], "from a file");
    assert!(matches!(&upstream.credential, Credential::Own(value) if value == "Bearer t"));
    assert!(!format!("{plan:?}").contains("Bearer t"), "a plan that is printed tells no secret");
    check(&text, &["f.toml:4:17: endpoint[0].headers.Authorization: the variable TOKEN is not set"]);
    let missing = "[[endpoint]]\nstdio = { command = \"x\", env = { A = \"file:/nowhere\" } }";
    check(missing, &["f.toml:2:38: endpoint[0].stdio.env.A: /nowhere: entity not found"]);
}

#[test]
fn defaults_are_for_those_who_say_nothing() {
    let text = "\
[defaults]
concurrency = 1
http = { retry = \"3s\", max_batch = 7 }
[[endpoint]]
path = \"/a\"
upstream = \"http://a/\"
[[endpoint]]
path = \"/b\"
upstream = \"http://b/\"
concurrency = 2
http = { retry = \"4s\" }
";
    let plan = read(text, &[], &[]).expect("a plan");
    let found: Vec<_> = plan
        .endpoints
        .iter()
        .map(|each| {
            (
                each.written.concurrency.map(std::num::NonZero::get),
                each.http().retry.as_secs(),
                each.http().max_batch,
            )
        })
        .collect();
    assert_eq!(found, [(Some(1), 3, 7), (Some(2), 4, 7)]);
}

#[test]
fn the_watch_over_silent_replicas_can_be_set() {
    let plan = read(&format!("{UPSTREAM}vigil = {{ silence = \"2s\", endurance = \"0s\" }}"), &[], &[]);
    let plan = plan.expect("a plan");
    let Behind::Upstream(upstream) = &plan.endpoints[0].behind else { panic!("an upstream") };
    let silence = Duration::from_secs(2);
    assert_eq!(upstream.vigil, steadfast_upstream::Vigil { silence, endurance: Duration::ZERO });
    check(
        &format!("{UPSTREAM}vigil.silence = \"0s\""),
        &["f.toml:3:17: endpoint[0].vigil.silence: no time at all is too short"],
    );
}

/// Nobody else has a word to wait for.
#[test]
fn only_servers_that_verify_credentials_are_waited_for() {
    let wait = |text: &str| read(text, &[], &[]).expect("a plan").endpoints[0].http().auth_wait;
    assert_eq!(wait(UPSTREAM), Duration::ZERO);
    assert_eq!(wait(&format!("{UPSTREAM}http.auth_wait = \"1s\"")), Duration::ZERO);
    assert_eq!(wait("[[endpoint]]\ndemo = true\nauth = \"forward\""), Duration::ZERO);
    let forward = format!("{UPSTREAM}auth = \"forward\"\n");
    assert_eq!(wait(&forward), Duration::from_secs(2));
    assert_eq!(wait(&format!("{forward}http.auth_wait = \"500ms\"")), Duration::from_millis(500));
    assert_eq!(wait(&format!("{forward}http.auth_wait = \"0s\"")), Duration::ZERO);
}

#[test]
fn what_is_not_said_is_what_the_crates_say() {
    let plan = read(UPSTREAM, &[], &[]).expect("a plan");
    assert_eq!(plan.rules, steadfast::Rules::default());
    let endpoint = &plan.endpoints[0];
    assert_eq!(format!("{:?}", endpoint.options()), format!("{:?}", steadfast_engine::Options::default()));
    let plain = steadfast_http::Config::default();
    let made = endpoint.http();
    assert_eq!(
        (made.max_body_bytes, made.retry, made.max_connection_age, made.hosts, made.origins),
        (plain.max_body_bytes, plain.retry, plain.max_connection_age, plain.hosts, plain.origins)
    );
    let Behind::Upstream(upstream) = &endpoint.behind else { panic!("an upstream") };
    let plain = steadfast_upstream::Config::http(vec!["http://127.0.0.1:8000/mcp".parse().unwrap()]);
    assert_eq!(format!("{upstream:?}"), format!("{plain:?}"));
    let program = "[[endpoint]]\nstdio = { command = \"x\" }\n";
    let plan = read(program, &[], &[]).expect("a plan");
    let Behind::Upstream(upstream) = &plan.endpoints[0].behind else { panic!("an upstream") };
    let plain = steadfast_upstream::Program { command: "x".into(), ..Default::default() };
    let plain = steadfast_upstream::Config::stdio(plain);
    assert_eq!(format!("{upstream:?}"), format!("{plain:?}"));
    assert_eq!(plain.timeouts.control, Duration::from_secs(120), "it may have to be downloaded");
    let plan = read(&format!("{program}timeouts.control = \"5m\""), &[], &[]).expect("a plan");
    let Behind::Upstream(upstream) = &plan.endpoints[0].behind else { panic!("an upstream") };
    assert_eq!(upstream.timeouts.control, Duration::from_secs(300));
}

#[test]
fn strict_order_for_all_is_the_stores_order() {
    let strict = format!("{UPSTREAM}ask_order = \"strict\"\n");
    assert_eq!(read(&strict, &[], &[]).expect("a plan").rules.limits.asks, 1);
    let mixed = format!("{strict}[[endpoint]]\npath = \"/b\"\ndemo = true");
    assert_eq!(read(&mixed, &[], &[]).expect("a plan").rules.limits.asks, steadfast::Limits::default().asks);
}

/// Everything that the schema has, with its default, so that the example cannot forget or invent anything.
#[test]
fn the_schema_has_every_key_with_words_and_a_default() {
    let schema = schema();
    let tables = schema["$defs"].as_object().expect("definitions");
    let all = tables.values().chain([&schema]);
    for (name, property) in all.filter_map(|table| table["properties"].as_object()).flatten() {
        let optional =
            property["type"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"))
                || property["anyOf"]
                    .as_array()
                    .is_some_and(|kinds| kinds.iter().any(|kind| kind["type"] == "null"));
        assert!(property.get("default").is_some() || optional, "{name} has no default: {property}");
        assert!(property["description"].as_str().is_some() || name == "args", "{name} is not described");
    }
    assert_eq!(schema["$defs"]["Http"]["properties"]["max_body_bytes"]["default"], "4MiB");
    assert_eq!(schema["$defs"]["Engine"]["properties"]["call_deadline"]["default"], "1h");
}

/// Whoever stops waits as long as the listeners do, and those go by what they were started with.
#[test]
fn a_reload_does_not_change_how_long_a_stop_takes() {
    let text = |notice: &str| format!("[listener]\nnotice = \"{notice}\"\n{UPSTREAM}");
    let started = read(&text("2s"), &[], &[]).unwrap();
    let mut reloaded = read(&text("9s"), &[], &[]).unwrap();
    assert_eq!(reloaded.listener.notice.as_secs(), 9);
    reloaded.keep_fixed(started);
    assert_eq!(reloaded.listener.notice.as_secs(), 2);
}
