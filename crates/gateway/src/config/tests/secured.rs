//! Who may use an endpoint, and servers that are reached over TLS.

use steadfast_auth::{Algorithm, Keys, Names, Settings};

use super::*;

/// Everything that is needed.
const JWT: &str = "auth = \"jwt\"\n[endpoint.jwt]\nissuer = \"https://id.example.com\"\nresource = \"https://mcp.example.com/mcp\"\nkeys = \"https://id.example.com/keys\"\n";

fn settings(text: &str) -> Settings {
    let plan = read(text, &[], &[]).unwrap_or_else(|faults| panic!("{faults:?}"));
    match &plan.endpoints[0].auth {
        AuthPlan::Jwt(settings) => settings.as_ref().clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_said_of_tokens_is_what_the_crate_says() {
    let keys = Keys::Url("https://id.example.com/keys".parse().unwrap());
    let plain = Settings::new("https://mcp.example.com/mcp".parse().unwrap(), "https://id.example.com", keys);
    assert_eq!(format!("{:?}", settings(&format!("{UPSTREAM}{JWT}"))), format!("{plain:?}"));
}

#[test]
fn everything_that_is_said_of_tokens_is_heard() {
    let more = "audience = [\"a\", \"b\"]\nalgorithms = [\"ES256\"]\nscopes = [\"use\"]\nauthorization_servers = [\"https://login.example.com\"]\n\
                principal = \"subject-and-client\"\nleeway = \"1s\"\nmax_token_bytes = 5\nkeys_fresh = \"2s\"\nkeys_stale = \"3s\"\n\
                keys_pause = \"4s\"\nkeys_timeout = \"6s\"\nkeys_max_bytes = 7\n";
    let found = settings(&format!("{UPSTREAM}{JWT}{more}"));
    assert_eq!((found.audiences, found.scopes), (vec!["a".into(), "b".into()], vec!["use".into()]));
    assert_eq!((found.algorithms, found.names), (vec![Algorithm::Es256], Names::SubjectAndClient));
    assert_eq!(found.authorization_servers, ["https://login.example.com"]);
    assert_eq!((found.leeway.as_secs(), found.max_token_bytes), (1, 5));
    let keys = found.fetching;
    assert_eq!([keys.fresh, keys.stale, keys.pause, keys.timeout].map(|time| time.as_secs()), [2, 3, 4, 6]);
    assert_eq!(keys.max_bytes, 7);
    let file = format!("{UPSTREAM}{}", JWT.replace("https://id.example.com/keys", "/keys"));
    assert_eq!(settings(&file).keys, Keys::File("/keys".into()));
}

#[test]
fn tokens_that_cannot_be_verified_are_faults() {
    check(
        &format!("{UPSTREAM}auth = \"jwt\""),
        &[
            "f.toml:1:1: endpoint[0].jwt.resource: it is not said what tokens have to be for",
            "f.toml:1:1: endpoint[0].jwt.keys: it is not said where the issuer's keys are",
            "f.toml:1:1: endpoint[0].jwt.issuer: the issuer has no name",
        ],
    );
    let jwt = |line: &str, expect: &[&str]| {
        let name = line.split(' ').next().unwrap();
        let others: String =
            JWT.lines().filter(|each| !each.starts_with(name)).map(|each| format!("{each}\n")).collect();
        check(&format!("{UPSTREAM}{others}{line}"), expect);
    };
    jwt(
        "keys = \"https://\"",
        &["f.toml:7:8: endpoint[0].jwt.keys: \"https://\" is no address: empty string"],
    );
    jwt(
        "keys = \"https://me:secret@a/\"",
        &["f.toml:7:8: endpoint[0].jwt.keys: the address of keys needs a host, and no credentials"],
    );
    for bad in ["http://id.example.com/keys", "ftp://localhost/keys"] {
        let what = format!(
            "f.toml:7:8: endpoint[0].jwt.keys: {bad} is not an address for keys: write https://HOST/PATH; http is for this machine only"
        );
        jwt(&format!("keys = \"{bad}\""), &[&what]);
    }
    jwt("keys = \"http://127.0.0.1:1/keys\"", &[]);
    jwt(
        "keys = \"/nowhere\"",
        &["f.toml:7:8: endpoint[0].jwt.keys: /nowhere cannot be read: entity not found"],
    );
    jwt(
        "keys = \"/secret\"",
        &[
            "f.toml:7:8: endpoint[0].jwt.keys: the keys in /secret cannot be used: it is not a JSON Web Key Set",
        ],
    );
    jwt("issuer = \"\"", &["f.toml:7:10: endpoint[0].jwt.issuer: the issuer has no name"]);
    jwt(
        "resource = \"a b\"",
        &["f.toml:7:12: endpoint[0].jwt.resource: \"a b\" is no address: invalid uri character"],
    );
    jwt(
        "resource = \"http://mcp.example.com/\"",
        &[
            "f.toml:7:12: endpoint[0].jwt.resource: http://mcp.example.com/ is not the address of a resource: write https://HOST/PATH; http is for this machine only",
        ],
    );
    jwt(
        "algorithms = [\"ES256\", \"none\"]",
        &[
            "f.toml:8:24: endpoint[0].jwt.algorithms[1]: \"none\": this is not one of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA",
        ],
    );
    jwt("algorithms = []", &["f.toml:8:14: endpoint[0].jwt.algorithms: no algorithm is accepted"]);
    jwt("keys_pause = \"0s\"", &["f.toml:8:14: endpoint[0].jwt.keys_pause: no time at all is too short"]);
    jwt(
        "scopes = [\"a b\"]",
        &[
            "f.toml:8:10: endpoint[0].jwt.scopes: \"a b\" is not a scope: it needs letters, and no spaces, quotes or backslashes",
        ],
    );
    jwt(
        "keys_ca = \"/secret\"",
        &["f.toml:8:11: endpoint[0].jwt.keys_ca: /secret has no certificate in PEM"],
    );
}

/// Whoever speaks of tokens does not want everybody to come in.
#[test]
fn tokens_that_nobody_asks_for_are_a_fault() {
    let unused = format!("{UPSTREAM}{}", JWT.replace("auth = \"jwt\"\n", ""));
    check(&unused, &["f.toml:3:1: endpoint[0].jwt: nobody asks for tokens here"]);
    let defaults =
        "[defaults.jwt]\nissuer = \"https://id.example.com\"\nkeys = \"https://id.example.com/keys\"\n";
    check(&format!("{defaults}{UPSTREAM}"), &["f.toml:1:1: defaults.jwt: nobody asks for tokens"]);
    let asks = "[[endpoint]]\npath = \"/b\"\ndemo = true\nauth = \"jwt\"\njwt.resource = \"https://a/b\"\n";
    check(&format!("{defaults}{UPSTREAM}{asks}"), &[]);
    check(
        &format!("{defaults}{asks}{}", asks.replace("path = \"/b\"", "path = \"/c\"")),
        &["f.toml:13:16: endpoint[1].jwt.resource: another endpoint is https://a/b already"],
    );
}

#[test]
fn a_flag_cannot_say_which_tokens_are_good_but_variables_can() {
    let table = toml::from_str("auth = \"jwt\"\nupstream = \"http://a/\"").unwrap();
    let flags = [Override::new("--upstream", &["endpoint"], vec![Value::Table(table)])];
    let found = faults("", &[], &flags);
    assert_eq!(found.len(), 3, "{found:?}");
    for fault in &found {
        assert!(fault.starts_with("--upstream: endpoint[0].jwt."), "{fault}");
        assert!(fault.contains("\n  try: --config FILE, in which [endpoint.jwt] has "), "{fault}");
    }
    let variables = [
        ("STEADFAST__DEFAULTS__JWT__ISSUER", "https://id.example.com"),
        ("STEADFAST__DEFAULTS__JWT__RESOURCE", "https://mcp.example.com/mcp"),
        ("STEADFAST__DEFAULTS__JWT__KEYS", "https://id.example.com/keys"),
        ("STEADFAST__DEFAULTS__JWT__SCOPES", "[\"use\"]"),
    ];
    assert_eq!(faults("", &variables, &flags), Vec::<String>::new());
}

#[test]
fn the_gateways_own_credential_goes_with_tokens() {
    let text = format!("{UPSTREAM}headers = {{ Authorization = \"Bearer own\" }}\n{JWT}");
    let plan = read(&text, &[], &[]).expect("a plan");
    let Behind::Upstream(upstream) = &plan.endpoints[0].behind else { panic!("an upstream") };
    assert!(matches!(&upstream.credential, Credential::Own(value) if value == "Bearer own"));
    let plan = read(&format!("{UPSTREAM}{JWT}"), &[], &[]).expect("a plan");
    let Behind::Upstream(upstream) = &plan.endpoints[0].behind else { panic!("an upstream") };
    assert!(matches!(&upstream.credential, Credential::None), "a token that was verified goes no further");
}

#[test]
fn servers_over_tls() {
    let https = "[[endpoint]]\nupstream = [\"https://a/mcp\", \"https://b:8443/mcp\"]\n";
    check(https, &[]);
    check(
        "[[endpoint]]\nupstream = \"https://me:secret@a/\"",
        &["f.toml:2:12: endpoint[0].upstream: the address of a server must not have credentials in it"],
    );
    check(
        &format!("{https}ca = \"/nowhere\""),
        &["f.toml:3:6: endpoint[0].ca: /nowhere cannot be read: entity not found"],
    );
    check(
        &format!("{https}ca = \"/secret\""),
        &["f.toml:3:6: endpoint[0].ca: /secret has no certificate in PEM"],
    );
    check(
        &format!("{https}client_certificate = \"/secret\""),
        &["f.toml:3:22: endpoint[0].client_certificate: there is no `client_key` that belongs to it"],
    );
    check(
        &format!("{https}client_key = \"/secret\""),
        &["f.toml:3:14: endpoint[0].client_key: there is no `client_certificate` that belongs to it"],
    );
    let both = format!("{https}client_key = \"/secret\"\nclient_certificate = \"/secret\"");
    let plan = read(&both, &[], &[]).expect("a plan");
    assert_eq!(plan.files().count(), 2, "they are followed");
}

/// Or its sessions would be opened anew whenever a scope changes.
#[test]
fn what_is_asked_of_clients_is_nothing_to_the_server() {
    let server =
        |text: &str| read(&format!("{UPSTREAM}{text}"), &[], &[]).unwrap().endpoints[0].written.server_part();
    let none = server("");
    assert!(none == server(JWT) && none == server(&format!("{JWT}scopes = [\"use\"]")));
    assert!(none != server("auth = \"forward\""), "it gets something else then");
    assert!(none != server("timeouts.control = \"1s\""));
}
