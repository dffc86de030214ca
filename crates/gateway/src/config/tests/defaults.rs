//! Defaults and the endpoints that they are not for.

use super::*;

/// What is said for all is not said of those who cannot have it; what one says of itself is.
#[test]
fn defaults_hold_where_they_can() {
    let defaults = "[defaults]\nheaders = { Authorization = \"Bearer x\", X-Tenant = \"blue\" }\nstandalone = false\nca = \"/nowhere\"\n";
    let program = format!("{defaults}[[endpoint]]\nstdio = {{ command = \"x\" }}\n");
    let plan = read(&program, &[], &[]).expect("a plan");
    let Behind::Upstream(upstream) = &plan.endpoints[0].behind else { panic!("a program") };
    assert!(upstream.standalone);
    check(
        &format!("{program}headers = {{ X = \"1\" }}\nstandalone = false"),
        &[
            "f.toml:7:11: endpoint[0].headers: a program gets no headers",
            "f.toml:8:14: endpoint[0].standalone: while several calls run, a program asks where nobody would read it",
        ],
    );
    // An endpoint must not be open to everybody because it cannot do what was said for all.
    let what = "a program cannot be shown a client's credentials";
    check(
        "[defaults]\nauth = \"forward\"\n[[endpoint]]\nstdio = { command = \"x\" }",
        &[&format!("f.toml:3:1: endpoint[0].auth: {what}")],
    );
    let headers = "[defaults]\nheaders = { authorization = \"Bearer x\", X-Tenant = \"blue\" }\n";
    let plan = read(&format!("{headers}{UPSTREAM}auth = \"forward\""), &[], &[]).expect("a plan");
    let Behind::Upstream(upstream) = &plan.endpoints[0].behind else { panic!("an upstream") };
    assert!(matches!(upstream.credential, Credential::Forwarded));
    let Server::Http { headers, .. } = &upstream.server else { panic!("it is HTTP") };
    assert_eq!(headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-tenant"]);
    // Who says both means something that cannot be.
    let both = "[defaults]\nauth = \"forward\"\nheaders = { Authorization = \"Bearer x\" }\n";
    let what = "the server gets the client's own credentials, so it cannot get these";
    check(&format!("{both}{UPSTREAM}"), &[&format!("f.toml:4:1: endpoint[0].auth: {what}")]);
}
