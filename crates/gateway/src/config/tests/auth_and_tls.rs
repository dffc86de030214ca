//! Authentication of clients, and servers with TLS.

use steadfast_auth::{Algorithm, Keys, PrincipalClaims, Settings};

use super::*;

/// The required keys.
const JWT: &str = "auth = \"jwt\"\n[endpoint.jwt]\nissuer = \"https://id.example.com\"\nresource = \"https://mcp.example.com/mcp\"\njwks = \"https://id.example.com/keys\"\n";

fn settings(text: &str) -> Settings {
    let plan = read(text, &[], &[]).unwrap_or_else(|faults| panic!("{faults:?}"));
    match &plan.endpoints[0].auth {
        AuthPlan::Jwt(settings) => settings.as_ref().clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_defaults_of_tokens_are_those_of_the_crate() {
    let keys = Keys::Url("https://id.example.com/keys".parse().unwrap());
    let plain = Settings::new("https://mcp.example.com/mcp".parse().unwrap(), "https://id.example.com", keys);
    assert_eq!(format!("{:?}", settings(&format!("{UPSTREAM}{JWT}"))), format!("{plain:?}"));
}

#[test]
fn every_key_of_tokens_is_used() {
    let more = "audience = [\"a\", \"b\"]\nalgorithms = [\"ES256\"]\nscopes = [\"use\"]\nauthorization_servers = [\"https://login.example.com\"]\n\
                principal = \"subject-and-client\"\n";
    let found = settings(&format!("{UPSTREAM}{JWT}{more}"));
    assert_eq!((found.audiences, found.scopes), (vec!["a".into(), "b".into()], vec!["use".into()]));
    assert_eq!(
        (found.algorithms, found.principal),
        (vec![Algorithm::Es256], PrincipalClaims::SubjectAndClient)
    );
    assert_eq!(found.authorization_servers, ["https://login.example.com"]);
    let file = format!("{UPSTREAM}{}", JWT.replace("https://id.example.com/keys", "/keys"));
    assert_eq!(settings(&file).keys, Keys::File("/keys".into()));
}

#[test]
fn tokens_that_cannot_be_verified_are_faults() {
    check(
        &format!("{UPSTREAM}auth = \"jwt\""),
        &[
            "f.toml:1:1: endpoint[0].jwt.resource: the resource that tokens are for is not set",
            "f.toml:1:1: endpoint[0].jwt.jwks: the key set of the issuer is not set",
            "f.toml:1:1: endpoint[0].jwt.issuer: the issuer is empty",
        ],
    );
    let jwt = |line: &str, expect: &[&str]| {
        let name = line.split(' ').next().unwrap();
        let others: String =
            JWT.lines().filter(|each| !each.starts_with(name)).map(|each| format!("{each}\n")).collect();
        check(&format!("{UPSTREAM}{others}{line}"), expect);
    };
    jwt(
        "jwks = \"https://\"",
        &["f.toml:7:8: endpoint[0].jwt.jwks: \"https://\" is not a URL: empty string"],
    );
    jwt(
        "jwks = \"https://me:secret@a/\"",
        &["f.toml:7:8: endpoint[0].jwt.jwks: the URL of a key set needs a host, and no credentials"],
    );
    for bad in ["http://id.example.com/keys", "ftp://localhost/keys"] {
        let what = format!(
            "f.toml:7:8: endpoint[0].jwt.jwks: {bad} is not a URL for keys: use https://HOST/PATH; http is allowed for loopback hosts only"
        );
        jwt(&format!("jwks = \"{bad}\""), &[&what]);
    }
    jwt("jwks = \"http://127.0.0.1:1/keys\"", &[]);
    jwt(
        "jwks = \"/nowhere\"",
        &["f.toml:7:8: endpoint[0].jwt.jwks: /nowhere cannot be read: entity not found"],
    );
    jwt(
        "jwks = \"/secret\"",
        &[
            "f.toml:7:8: endpoint[0].jwt.jwks: the keys in /secret cannot be used: it is not a JSON Web Key Set",
        ],
    );
    jwt("issuer = \"\"", &["f.toml:7:10: endpoint[0].jwt.issuer: the issuer is empty"]);
    jwt(
        "resource = \"a b\"",
        &["f.toml:7:12: endpoint[0].jwt.resource: \"a b\" is not a URL: invalid uri character"],
    );
    jwt(
        "resource = \"http://mcp.example.com/\"",
        &[
            "f.toml:7:12: endpoint[0].jwt.resource: http://mcp.example.com/ is not the URL of a resource: use https://HOST/PATH; http is allowed for loopback hosts only",
        ],
    );
    jwt(
        "algorithms = [\"ES256\", \"none\"]",
        &[
            "f.toml:8:24: endpoint[0].jwt.algorithms[1]: \"none\": not one of the signature algorithms RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA",
        ],
    );
    jwt("algorithms = []", &["f.toml:8:14: endpoint[0].jwt.algorithms: the list of algorithms is empty"]);
    jwt(
        "scopes = [\"a b\"]",
        &[
            "f.toml:8:10: endpoint[0].jwt.scopes: \"a b\" is not a scope: it must not be empty, nor contain spaces, quotes or backslashes",
        ],
    );
    jwt(
        "jwks_ca = \"/secret\"",
        &["f.toml:8:11: endpoint[0].jwt.jwks_ca: /secret has no certificate in PEM"],
    );
}

/// An operator who describes tokens does not want an endpoint that is open to every client.
#[test]
fn tokens_that_no_endpoint_verifies_are_a_fault() {
    let unused = format!("{UPSTREAM}{}", JWT.replace("auth = \"jwt\"\n", ""));
    check(&unused, &["f.toml:3:1: endpoint[0].jwt: the endpoint does not verify tokens"]);
    let defaults =
        "[defaults.jwt]\nissuer = \"https://id.example.com\"\njwks = \"https://id.example.com/keys\"\n";
    check(&format!("{defaults}{UPSTREAM}"), &["f.toml:1:1: defaults.jwt: no endpoint verifies tokens"]);
    let asks = "[[endpoint]]\npath = \"/b\"\ndemo = true\nauth = \"jwt\"\njwt.resource = \"https://a/b\"\n";
    check(&format!("{defaults}{UPSTREAM}{asks}"), &[]);
    check(
        &format!("{defaults}{asks}{}", asks.replace("path = \"/b\"", "path = \"/c\"")),
        &["f.toml:13:16: endpoint[1].jwt.resource: another endpoint has the resource https://a/b"],
    );
}

#[test]
fn variables_can_describe_tokens_and_flags_cannot() {
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
        ("STEADFAST__DEFAULTS__JWT__JWKS", "https://id.example.com/keys"),
        ("STEADFAST__DEFAULTS__JWT__SCOPES", "[\"use\"]"),
    ];
    assert_eq!(faults("", &variables, &flags), Vec::<String>::new());
}

#[test]
fn the_credential_of_the_gateway_can_be_used_with_tokens() {
    let text = format!("{UPSTREAM}headers = {{ Authorization = \"Bearer own\" }}\n{JWT}");
    let plan = read(&text, &[], &[]).expect("a plan");
    let BackendPlan::Upstream(upstream) = &plan.endpoints[0].backend else { panic!("an upstream") };
    assert!(matches!(&upstream.credential, Credential::Own(value) if value == "Bearer own"));
    let plan = read(&format!("{UPSTREAM}{JWT}"), &[], &[]).expect("a plan");
    let BackendPlan::Upstream(upstream) = &plan.endpoints[0].backend else { panic!("an upstream") };
    assert!(
        matches!(&upstream.credential, Credential::None),
        "the gateway does not forward a verified token"
    );
}

#[test]
fn servers_with_tls() {
    let https = "[[endpoint]]\nupstream = [\"https://a/mcp\", \"https://b:8443/mcp\"]\n";
    check(https, &[]);
    check(
        "[[endpoint]]\nupstream = \"https://me:secret@a/\"",
        &["f.toml:2:12: endpoint[0].upstream: the URL of a server must not contain credentials"],
    );
    check(
        &format!("{https}upstream_tls.ca = \"/nowhere\""),
        &["f.toml:3:19: endpoint[0].upstream_tls.ca: /nowhere cannot be read: entity not found"],
    );
    check(
        &format!("{https}upstream_tls.ca = \"/secret\""),
        &["f.toml:3:19: endpoint[0].upstream_tls.ca: /secret has no certificate in PEM"],
    );
    check(
        &format!("{https}upstream_tls.certificate = \"/secret\""),
        &["f.toml:3:28: endpoint[0].upstream_tls.certificate: `key` is not set"],
    );
    check(
        &format!("{https}upstream_tls.key = \"/secret\""),
        &["f.toml:3:20: endpoint[0].upstream_tls.key: `certificate` is not set"],
    );
    let both = format!("{https}upstream_tls.key = \"/secret\"\nupstream_tls.certificate = \"/secret\"");
    let plan = read(&both, &[], &[]).expect("a plan");
    assert_eq!(plan.files().count(), 2, "the files are watched");
}

/// Otherwise a change of a scope would reopen every upstream session.
#[test]
fn the_server_is_unaffected_by_the_authentication_of_clients() {
    let server =
        |text: &str| read(&format!("{UPSTREAM}{text}"), &[], &[]).unwrap().endpoints[0].table.server_part();
    let none = server("");
    assert!(none == server(JWT) && none == server(&format!("{JWT}scopes = [\"use\"]")));
    assert!(none != server("auth = \"forward\""), "the server gets other credentials then");
    assert!(none != server("timeouts.control = \"1s\""));
}
