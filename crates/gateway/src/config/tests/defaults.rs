//! `[defaults]` and the endpoints to which a default cannot apply.

use super::*;

/// A default that cannot apply to an endpoint is left out. The same key in the endpoint itself is a
/// fault.
#[test]
fn defaults_apply_where_they_can() {
    let defaults = "[defaults]\nheaders = { Authorization = \"Bearer x\", X-Tenant = \"blue\" }\nupstream_tls.ca = \"/nowhere\"\n";
    let program = format!("{defaults}[[endpoint]]\nstdio = {{ command = \"x\" }}\n");
    let plan = read(&program, &[], &[]).expect("a plan");
    assert!(plan.endpoints[0].table.headers.is_empty() && plan.endpoints[0].server_files.is_empty());
    check(
        &format!("{program}headers = {{ X = \"1\" }}"),
        &["f.toml:6:11: endpoint[0].headers: a program gets no HTTP headers"],
    );
    // `auth` is never left out, because the endpoint would be open to every client.
    let what = "a program cannot receive the credentials of clients";
    check(
        "[defaults]\nauth = \"forward\"\n[[endpoint]]\nstdio = { command = \"x\" }",
        &[&format!("f.toml:3:1: endpoint[0].auth: {what}")],
    );
    let headers = "[defaults]\nheaders = { authorization = \"Bearer x\", X-Tenant = \"blue\" }\n";
    let plan = read(&format!("{headers}{UPSTREAM}auth = \"forward\""), &[], &[]).expect("a plan");
    let BackendPlan::Upstream(upstream) = &plan.endpoints[0].backend else { panic!("an upstream") };
    assert!(matches!(upstream.credential, Credential::Forwarded));
    let Server::Http { headers, .. } = &upstream.server else { panic!("it is HTTP") };
    assert_eq!(headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-tenant"]);
    // The two exclude each other.
    let both = "[defaults]\nauth = \"forward\"\nheaders = { Authorization = \"Bearer x\" }\n";
    let what = "the server gets the credentials of the client instead of the `Authorization` in `headers`";
    check(&format!("{both}{UPSTREAM}"), &[&format!("f.toml:4:1: endpoint[0].auth: {what}")]);
}
