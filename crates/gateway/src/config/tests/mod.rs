//! Tests of whole configurations: text in, a plan or faults out.

mod auth_and_tls;
mod clients;
mod defaults;
mod example;
mod identity;
mod manual;
mod programs;

use std::path::Path;
use std::time::Duration;

use steadfast_client::transport::{Tls, TlsError};
use steadfast_upstream::{Concurrency, Credential, Server};
use toml::Value;

use super::parse::json_schema;
use super::*;

const UPSTREAM: &str = "[[endpoint]]\nupstream = \"http://127.0.0.1:8000/mcp\"\n";

const KEYS: &str =
    r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

fn read(text: &str, variables: &[(&str, &str)], flags: &[Override]) -> Result<Plan, Vec<ConfigFault>> {
    let file = |path: &Path| match path.to_str() {
        Some("/secret") => Ok("from a file\n".to_owned()),
        Some("/keys") => Ok(KEYS.to_owned()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let environment = Environment {
        variables: variables.collect(),
        read_file: &file,
        cwd: "/start".into(),
        is_directory: &|path| path == Path::new("/folder"),
        is_executable: &|path| ["/usr/bin/here", "/folder/bin/there"].map(Path::new).contains(&path),
        load_tls: &|files| match &files.ca {
            Some(file) => Err(TlsError::NoCertificate(file.clone())),
            None => Ok(Tls::public()),
        },
    };
    load(&Source { name: "f.toml".into(), text: text.into() }, flags, &environment)
}

fn faults(text: &str, variables: &[(&str, &str)], flags: &[Override]) -> Vec<String> {
    let faults = read(text, variables, flags).err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

/// Compares the first line of each fault: position, key, what is wrong.
fn check(text: &str, expect: &[&str]) {
    let found: Vec<String> = faults(text, &[], &[])
        .iter()
        .map(|fault| fault.lines().next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(found, expect, "{text}");
}

/// A bound that the store ignores would protect nothing.
#[test]
fn a_bound_that_the_store_does_not_apply_is_a_fault() {
    let limits = "limits = { store_bytes = \"2GiB\" }\n";
    let with = |store: &str| format!("{store}{limits}{UPSTREAM}");
    check(&with("store = \"memory:\"\n"), &[]);
    check(&with("store = \"sqlite:a.db\"\n"), &[]);
    check(&with(""), &[]);
    for store in ["redis://a", "postgres://a/b"] {
        let what = "f.toml:2:26: limits.store_bytes: this store does not count the bytes of all sessions";
        check(&with(&format!("store = \"{store}\"\n")), &[what]);
        check(&format!("store = \"{store}\"\n{UPSTREAM}"), &[]);
    }
}

#[test]
fn faults_have_a_position() {
    check(UPSTREAM, &[]);
    check("", &["f.toml:1:1: endpoint: there is no endpoint"]);
    check("listen = \n", &["f.toml:1:10: listen: string values must be quoted, expected literal string"]);
    check(
        "[[endpoint]]\nupstream = \"http://a/\"\nconcurency = 1\n\n[http]\n",
        &["f.toml:3:1: endpoint[0].concurency: unknown key", "f.toml:5:2: http: unknown key"],
    );
    check(
        &format!("{UPSTREAM}timeouts = {{ call = \"soon\" }}"),
        &[
            "f.toml:3:21: endpoint[0].timeouts.call: \"soon\" is not a duration: write for example \"500ms\", \"30s\", \"1h30m\"",
        ],
    );
    check(
        &format!("{UPSTREAM}max_request_bytes = -1"),
        &["f.toml:3:21: endpoint[0].max_request_bytes: a size cannot be negative"],
    );
    check(
        &format!("limits = {{ connections = 0 }}\n{UPSTREAM}"),
        &["f.toml:1:26: limits.connections: no client could connect"],
    );
    check(
        &format!("{UPSTREAM}concurrency = 0"),
        &[
            "f.toml:3:15: endpoint[0].concurrency: 0 is not a limit: write \"auto\", \"unlimited\" or a number from 1",
        ],
    );
    check(
        &format!("listen = [\"127.0.0.1:1\", \"here\", \"127.0.0.1:1\"]\n{UPSTREAM}"),
        &[
            "f.toml:1:26: listen[1]: \"here\" is not an address to listen on",
            "f.toml:1:34: listen[2]: 127.0.0.1:1 is listed twice",
        ],
    );
    check(
        &format!(
            "listen = \"127.0.0.1:1\"\nadmin.listen = \"127.0.0.1:1\"\nstore = \"redis:\"\nlog = \"x=y=z\"\n{UPSTREAM}"
        ),
        &[
            "f.toml:3:9: store: \"redis:\" is not a store URL. Use `memory:`, `sqlite:PATH`, `redis://HOST` or `postgres://HOST/DATABASE`",
            "f.toml:2:16: admin.listen: `listen` uses 127.0.0.1:1 already",
            "f.toml:4:7: log: \"x=y=z\" is not a filter: error parsing level filter: expected one of \"off\", \"error\", \"warn\", \"info\", \"debug\", \"trace\", or a number 0-5",
        ],
    );
    check(
        &format!("[tls]\ncertificate = \"/nowhere\"\n{UPSTREAM}"),
        &[
            "f.toml:2:15: tls.certificate: /nowhere cannot be read: entity not found",
            "f.toml:1:1: tls.key: the file is not set",
        ],
    );
    check("[defaults]\ndemo = true\n[[endpoint]]", &["f.toml:2:8: defaults.demo: endpoints cannot share it"]);
    check(
        &format!("{UPSTREAM}[[endpoint]]\nupstream = [\"http://a/\", \"https://b/\", \"c\", \"http://a/\"]"),
        &[
            "f.toml:3:1: endpoint[1].path: another endpoint has the path /mcp",
            "f.toml:4:40: endpoint[1].upstream[2]: \"c\" is not the URL of a server",
            "f.toml:4:45: endpoint[1].upstream[3]: http://a/ is listed twice",
        ],
    );
    check(
        "[[endpoint]]\nupstream = \"http://me:secret@a/\"",
        &["f.toml:2:12: endpoint[0].upstream: the URL of a server must not contain credentials"],
    );
    check("[[endpoint]]", &["f.toml:1:1: endpoint[0]: the endpoint has no server"]);
    check(
        &format!(
            "{UPSTREAM}demo = true\npath = \"mcp\"\nhosts = [\"http://a\"]\norigins = [\"a\", \"https://b/\"]"
        ),
        &[
            "f.toml:4:8: endpoint[0].path: \"mcp\" is not a path",
            "f.toml:5:10: endpoint[0].hosts[0]: \"http://a\" matches nothing",
            "f.toml:6:12: endpoint[0].origins[0]: \"a\" matches nothing",
            "f.toml:6:17: endpoint[0].origins[1]: \"https://b/\" matches nothing",
            "f.toml:1:1: endpoint[0]: the endpoint has more than one server",
        ],
    );
    check(
        "[[endpoint]]\nauth = \"forward\"\nheaders = { X = \"1\" }\nstdio = { cwd = \"/nowhere\" }",
        &[
            "f.toml:3:11: endpoint[0].headers: a program gets no HTTP headers",
            "f.toml:2:8: endpoint[0].auth: a program cannot receive the credentials of clients",
            "f.toml:4:17: endpoint[0].stdio.cwd: /nowhere is not a directory",
            "f.toml:4:9: endpoint[0].stdio.command: the program is not set",
        ],
    );
    check(
        &format!(
            "{UPSTREAM}auth = \"forward\"\n[endpoint.headers]\nAuthorization = \"x\"\nHost = \"a\"\n\"a b\" = \"c\"\nd = \"e\\nf\""
        ),
        &[
            "f.toml:6:8: endpoint[0].headers.Host: the gateway sets this header itself",
            "f.toml:7:9: endpoint[0].headers.a b: this is not a header name",
            "f.toml:8:5: endpoint[0].headers.d: the value is not a header value",
            "f.toml:3:8: endpoint[0].auth: the server gets the credentials of the client instead of the `Authorization` in `headers`",
        ],
    );
    check(
        &format!(
            "{UPSTREAM}upstream_sessions = 65\ntimeouts = {{ call = \"0s\", control = \"0s\" }}\nkeep_alive = \"0s\"\n\
             [[endpoint]]\npath = \"/ok\"\nupstream_sessions = 64\ndemo = true"
        ),
        &[
            "f.toml:5:14: endpoint[0].keep_alive: the duration must not be zero",
            "f.toml:4:21: endpoint[0].timeouts.call: the duration must not be zero",
            "f.toml:4:37: endpoint[0].timeouts.control: the duration must not be zero",
            "f.toml:3:21: endpoint[0].upstream_sessions: 65 upstream sessions per client session are too many",
        ],
    );
    check(
        "[[endpoint]]\nstdio = { command = \"x\", max_processes = 0 }",
        &["f.toml:2:42: endpoint[0].stdio.max_processes: no process could be started"],
    );
    check(
        "[[endpoint]]\nstdio = { command = \"x\", idle_timeout = \"0s\" }",
        &["f.toml:2:41: endpoint[0].stdio.idle_timeout: no process would live until its next call"],
    );
}

#[test]
fn a_remedy_suggests_the_key_that_was_meant() {
    for (line, expect) in [
        ("concurency = 1", "did you mean `concurrency`?"),
        ("origin = []", "did you mean `origins`?"),
        ("silence = \"1s\"", "`silence` is a key of `[endpoint.health_check]`"),
        ("grace = \"1s\"", "`grace` is a key of `[session]`"),
        ("drain = \"1s\"", "`drain` is a key of `[shutdown]`"),
        ("listen = \"127.0.0.1:1\"", "`listen` is a key of `the top of the file`"),
    ] {
        let found = faults(&format!("{UPSTREAM}{line}"), &[], &[]);
        assert_eq!(found.len(), 1, "{line}");
        assert_eq!(found[0].lines().last(), Some(&*format!("  try: {expect}")), "{line}");
    }
}

#[test]
fn variables_override_the_file_and_flags_override_both() {
    let text = format!("listen = \"127.0.0.1:1\"\nshutdown.drain = \"1s\"\nstore = \"memory:\"\n{UPSTREAM}");
    let variables = [
        ("STEADFAST__LISTEN", "127.0.0.1:2"),
        ("STEADFAST__ADMIN__LISTEN", "127.0.0.1:3"),
        ("STEADFAST__DEFAULTS__CONCURRENCY", "4"),
        ("STEADFAST__DEFAULTS__DUPLICATE_IDS", "isolate"),
        ("STEADFAST__DEFAULTS__MAX_REQUEST_BYTES", "5KiB"),
        ("STEADFAST__SERVER_REQUESTS__QUEUE", "7"),
        ("STEADFAST_CI", "another program's"),
    ];
    let flags = [Override::new("--listen", &["listen"], "127.0.0.1:6")];
    let plan = read(&text, &variables, &flags).expect("a plan");
    assert_eq!(plan.listen, ["127.0.0.1:6".parse().unwrap()]);
    assert_eq!(plan.admin, Some("127.0.0.1:3".parse().unwrap()));
    assert_eq!(plan.drain, Duration::from_secs(1));
    let BackendPlan::Upstream(upstream) = &plan.endpoints[0].backend else { panic!("an upstream") };
    assert_eq!(upstream.calls.concurrency, at_most(4));
    assert_eq!(plan.endpoints[0].http().duplicate_ids, steadfast::DuplicateIds::Isolate);
    assert_eq!(plan.endpoints[0].options.queued_server_requests, 7);
    assert_eq!(plan.endpoints[0].http().max_request_bytes, 5 << 10);
    let plan = read(&text, &variables, &[]).expect("a plan");
    assert_eq!(plan.listen, ["127.0.0.1:2".parse().unwrap()]);
}

#[test]
fn a_fault_names_the_variable_or_the_flag() {
    for (name, value, expect) in [
        ("STEADFAST__LISTEN", "here", "STEADFAST__LISTEN: listen: \"here\" is not an address to listen on"),
        ("STEADFAST__LISTN", "x", "STEADFAST__LISTN: listn: unknown key"),
        ("STEADFAST__HTTP__RETRY", "x", "STEADFAST__HTTP__RETRY: http: unknown key"),
        (
            "STEADFAST__DEFAULTS__KEEP_ALIVE",
            "5",
            "STEADFAST__DEFAULTS__KEEP_ALIVE: defaults.keep_alive: invalid type: integer `5`, expected a string",
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
            "--upstream: endpoint[0].upstream[0]: \"nonsense\" is not the URL of a server\n  try: http://HOST:PORT/PATH, or https://HOST/PATH"
        ]
    );
}

#[test]
fn secrets_come_from_variables_and_files() {
    let text =
        format!("{UPSTREAM}[endpoint.headers]\nAuthorization = \"env:TOKEN\"\nX-Key = \"file:/secret\"");
    let plan = read(&text, &[("TOKEN", "Bearer t")], &[]).expect("a plan");
    let BackendPlan::Upstream(upstream) = &plan.endpoints[0].backend else { panic!("an upstream") };
    let Server::Http { headers, .. } = &upstream.server else { panic!("an address") };
    assert_eq!(headers.len(), 1);
    assert_eq!(headers["x-key"], "from a file");
    assert!(matches!(&upstream.credential, Credential::Own(value) if value == "Bearer t"));
    assert!(!format!("{plan:?}").contains("Bearer t"), "a printed plan contains no secret");
    check(
        &text,
        &["f.toml:4:17: endpoint[0].headers.Authorization: the environment variable TOKEN is not set"],
    );
    let missing = "[[endpoint]]\nstdio = { command = \"x\", env = { A = \"file:/nowhere\" } }";
    check(missing, &["f.toml:2:38: endpoint[0].stdio.env.A: /nowhere: entity not found"]);
}

fn at_most(calls: usize) -> Concurrency {
    std::num::NonZeroUsize::new(calls).into()
}

#[test]
fn defaults_apply_to_endpoints_that_do_not_set_the_key() {
    let text = "\
[defaults]
concurrency = 1
timeouts = { unavailable = \"3s\", call = \"7s\" }
[[endpoint]]
path = \"/a\"
upstream = \"http://a/\"
[[endpoint]]
path = \"/b\"
upstream = \"http://b/\"
concurrency = 2
timeouts = { unavailable = \"4s\" }
";
    let plan = read(text, &[], &[]).expect("a plan");
    let seconds = |time: TimeSpan| time.0.as_secs();
    let found: Vec<_> = plan
        .endpoints
        .iter()
        .map(|EndpointPlan { table, .. }| {
            (table.concurrency.0, seconds(table.timeouts.unavailable), seconds(table.timeouts.call))
        })
        .collect();
    assert_eq!(found, [(at_most(1), 3, 7), (at_most(2), 4, 7)]);
}

#[test]
fn the_health_check_can_be_set() {
    let text = format!("{UPSTREAM}health_check = {{ silence = \"2s\", failover_after = \"0s\" }}");
    let plan = read(&text, &[], &[]).expect("a plan");
    let BackendPlan::Upstream(upstream) = &plan.endpoints[0].backend else { panic!("an upstream") };
    let silence = Duration::from_secs(2);
    assert_eq!(
        upstream.health_check,
        steadfast_upstream::HealthCheck { silence, failover_after: Duration::ZERO }
    );
    check(
        &format!("{UPSTREAM}health_check.silence = \"0s\""),
        &["f.toml:3:24: endpoint[0].health_check.silence: the duration must not be zero"],
    );
}

/// Only such a server gives a verdict on credentials that a response could wait for.
#[test]
fn responses_wait_for_the_verdict_of_servers_that_verify_credentials() {
    let wait = |text: &str| read(text, &[], &[]).expect("a plan").endpoints[0].http().auth_wait;
    assert_eq!(wait(UPSTREAM), Duration::ZERO);
    assert_eq!(wait("[[endpoint]]\ndemo = true\nauth = \"forward\""), Duration::ZERO);
    assert_eq!(wait(&format!("{UPSTREAM}auth = \"forward\"\n")), Duration::from_secs(2));
}

/// The bounds of one message are one key, and the upstream waits for a call at least as long as the
/// engine does.
#[test]
fn one_key_sets_every_bound_of_the_same_thing() {
    let text = format!("{UPSTREAM}max_response_bytes = 7\ntimeouts.call = \"2d\"\n");
    let plan = read(&format!("server_requests.concurrency = 3\n{text}"), &[], &[]).expect("a plan");
    let BackendPlan::Upstream(upstream) = &plan.endpoints[0].backend else { panic!("an upstream") };
    let limits = &upstream.limits;
    assert_eq!([limits.body_bytes, limits.line_bytes, limits.event_bytes], [7, 7, 7]);
    assert_eq!((limits.server_requests, plan.rules.limits.server_requests), (3, 3));
    let deadline = plan.endpoints[0].options.call_deadline;
    assert_eq!(deadline, Duration::from_secs(2 * 24 * 60 * 60));
    assert!(upstream.timeouts.call > deadline && upstream.timeouts.head > deadline);
    let program = "[[endpoint]]\nmax_response_bytes = 7\nstdio = { command = \"x\" }\n";
    let plan = read(program, &[], &[]).expect("a plan");
    let BackendPlan::Upstream(upstream) = &plan.endpoints[0].backend else { panic!("a program") };
    assert!(matches!(&upstream.server, Server::Stdio(stdio) if stdio.line_bytes == 7));
}

#[test]
fn the_defaults_are_those_of_the_crates() {
    let plan = read(UPSTREAM, &[], &[]).expect("a plan");
    assert_eq!(plan.rules, steadfast::Rules::default());
    let endpoint = &plan.endpoints[0];
    assert_eq!(format!("{:?}", endpoint.options), format!("{:?}", steadfast_engine::Options::default()));
    let plain = steadfast_http::Config::default();
    let made = endpoint.http();
    assert_eq!(
        (made.max_request_bytes, made.keep_alive, made.retry, made.hosts, made.origins),
        (plain.max_request_bytes, plain.keep_alive, plain.retry, plain.hosts, plain.origins)
    );
    let BackendPlan::Upstream(upstream) = &endpoint.backend else { panic!("an upstream") };
    let plain = steadfast_upstream::Config::http(vec!["http://127.0.0.1:8000/mcp".parse().unwrap()]);
    assert_eq!(format!("{upstream:?}"), format!("{plain:?}"));
    let program = "[[endpoint]]\nstdio = { command = \"x\" }\n";
    let plan = read(program, &[], &[]).expect("a plan");
    let BackendPlan::Upstream(upstream) = &plan.endpoints[0].backend else { panic!("an upstream") };
    let plain = steadfast_upstream::Program { command: "x".into(), ..Default::default() };
    let plain = steadfast_upstream::Config::stdio(plain);
    assert_eq!(format!("{upstream:?}"), format!("{plain:?}"));
    assert_eq!(plain.timeouts.control, Duration::from_secs(120), "a program may have to be downloaded");
    let plan = read(&format!("{program}timeouts.control = \"5m\""), &[], &[]).expect("a plan");
    let BackendPlan::Upstream(upstream) = &plan.endpoints[0].backend else { panic!("an upstream") };
    assert_eq!(upstream.timeouts.control, Duration::from_secs(300));
}

/// The store applies it, so that no two gateways send a client a request at the same time.
#[test]
fn strict_order_allows_one_server_request_at_a_time() {
    let plan = read(&format!("server_requests.order = \"strict\"\n{UPSTREAM}"), &[], &[]).expect("a plan");
    assert_eq!(plan.rules.limits.server_requests, 1);
    assert_eq!(plan.endpoints[0].options.server_request_order, steadfast_engine::ServerRequestOrder::Strict);
    let plan = read(UPSTREAM, &[], &[]).expect("a plan");
    assert_eq!(plan.rules.limits.server_requests, steadfast::Limits::default().server_requests);
}

#[test]
fn every_key_of_the_schema_has_a_description_and_a_default() {
    let schema = schema();
    let tables = schema["$defs"].as_object().expect("definitions");
    let all = tables.values().chain([&schema]);
    for (name, property) in all.filter_map(|table| table["properties"].as_object()).flatten() {
        let is_null = |kinds: &serde_json::Value, key: &str| {
            kinds.as_array().is_some_and(|kinds| {
                kinds.iter().any(|kind| kind == "null" || kind.get(key) == Some(&"null".into()))
            })
        };
        let is_optional = is_null(&property["type"], "type") || is_null(&property["anyOf"], "type");
        assert!(property.get("default").is_some() || is_optional, "{name} has no default: {property}");
        assert!(property["description"].as_str().is_some(), "{name} has no description");
    }
    assert_eq!(schema["$defs"]["EndpointTable"]["properties"]["max_request_bytes"]["default"], "4MiB");
    assert_eq!(schema["$defs"]["Timeouts"]["properties"]["call"]["default"], "1h");
}

/// Each key is a decision of an operator. Before you raise this number, look for one to remove.
#[test]
fn the_number_of_keys_is_bounded() {
    fn count(schema: &serde_json::Value, node: &serde_json::Value) -> usize {
        let Some(keys) = json_schema::keys(schema, node) else { return 1 };
        keys.into_iter()
            .filter_map(|key| json_schema::property(schema, node, key))
            .map(|node| count(schema, node))
            .sum()
    }
    let schema = schema();
    let keys = json_schema::keys(&schema, &schema).expect("the root is a table");
    // `endpoint` is a list of tables like `defaults`, which are counted.
    let tables = keys.into_iter().filter(|key| *key != "endpoint");
    let total: usize = tables
        .filter_map(|key| json_schema::property(&schema, &schema, key))
        .map(|node| count(&schema, node))
        .sum();
    assert_eq!(total, 69);
}

/// The listeners keep the durations with which they were started.
#[test]
fn a_reload_does_not_change_how_long_a_shutdown_takes() {
    let text = |delay: &str| format!("[shutdown]\ndelay = \"{delay}\"\n{UPSTREAM}");
    let started = read(&text("2s"), &[], &[]).unwrap();
    let mut reloaded = read(&text("9s"), &[], &[]).unwrap();
    assert_eq!(started.keys_that_need_restart(&reloaded), ["shutdown.delay"]);
    assert_eq!(reloaded.listener.drain_delay.as_secs(), 9);
    reloaded.keep_fixed(started);
    assert_eq!(reloaded.listener.drain_delay.as_secs(), 2);
}
