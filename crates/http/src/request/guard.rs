//! Checks of a request's head before anything else reads it: header size, host and origin.

use http::request::Parts;
use steadfast_wire::Reason;

use crate::config::{Config, Hosts, Origins};
use crate::response::problem::Problem;

pub(crate) fn check(parts: &Parts, config: &Config) -> Result<(), Problem> {
    check_header_size(parts, config)?;
    check_host(parts, &config.hosts)?;
    check_origin(parts, &config.origins)
}

fn check_header_size(parts: &Parts, config: &Config) -> Result<(), Problem> {
    let size: usize = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let size = size + parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
    if size > config.max_header_bytes {
        Err(Problem::headers_too_large(config.max_header_bytes))
    } else {
        Ok(())
    }
}

fn check_host(parts: &Parts, hosts: &Hosts) -> Result<(), Problem> {
    if *hosts == Hosts::Any {
        return Ok(());
    }
    // HTTP/2 has no Host header: its authority is in the URI. An HTTP/1.1 request line may contain
    // an authority besides the header; then both must be allowed.
    let in_uri = parts.uri.authority().map(http::uri::Authority::as_str);
    let mut named = parts.headers.get_all(http::header::HOST).iter();
    let host = match (named.next(), named.next()) {
        (Some(host), None) => host.to_str().ok(),
        (None, _) => in_uri,
        (Some(_), Some(_)) => return Err(Problem::bad_request("There is more than one Host header.")),
    };
    let Some(host) = host else {
        return Err(Problem::bad_request("The Host header is missing or unreadable."));
    };
    let is_allowed = |host: &str| match hosts {
        Hosts::Any => true,
        Hosts::Loopback => is_loopback(without_port(host)),
        Hosts::LoopbackAnd(names) => is_loopback(without_port(host)) || is_named(host, names),
        Hosts::Only(names) => is_named(host, names),
    };
    if is_allowed(host) && in_uri.is_none_or(is_allowed) {
        Ok(())
    } else {
        Err(Problem::invalid(
            Reason::HostNotAllowed,
            "This server does not answer to that Host. Its operator can allow it: `hosts`, `--allow-host`, or `Builder::hosts`.",
        ))
    }
}

fn is_named(host: &str, names: &[String]) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(host) || name.eq_ignore_ascii_case(without_port(host)))
}

pub(crate) fn check_origin(parts: &Parts, origins: &Origins) -> Result<(), Problem> {
    let mut sent = parts.headers.get_all(http::header::ORIGIN).iter();
    let Some(origin) = sent.next() else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let allowed = sent.next().is_none()
        && match origins {
            Origins::Any => true,
            Origins::Loopback => is_loopback_origin(origin),
            Origins::LoopbackAnd(list) => is_loopback_origin(origin) || is_listed(origin, list),
            Origins::Only(list) => is_listed(origin, list),
        };
    if allowed {
        Ok(())
    } else {
        Err(Problem::invalid(
            Reason::OriginNotAllowed,
            "This server does not serve that Origin. Its operator can allow it: `origins`, `--allow-origin`, or `Builder::origins`.",
        ))
    }
}

fn is_listed(origin: &str, list: &[String]) -> bool {
    list.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
}

fn is_loopback_origin(origin: &str) -> bool {
    // Browsers send scheme://host:port. Some tools send a bare host:port.
    let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
    is_loopback(without_port(authority))
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]"
}

/// Removes `:port`. Text of another form is returned unchanged and matches no name.
fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(hosts: Hosts, origins: Origins, headers: &[(&str, &str)]) -> u16 {
        let mut request = http::Request::get("/mcp");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let config = Config { hosts, origins, max_header_bytes: 200, ..Config::default() };
        check(&parts, &config).map_or_else(|problem| problem.status.as_u16(), |()| 200)
    }

    #[test]
    fn hosts() {
        for (host, expect) in [
            ("localhost", 200),
            ("LOCALHOST:80", 200),
            ("127.0.0.1:7411", 200),
            ("[::1]:7411", 200),
            ("[::1]", 200),
            ("evil.example.com", 403),
            ("localhost.evil.com", 403),
            ("localhost:evil", 403),
            ("127.0.0.1.evil.com:80", 403),
            ("localhost@evil.com", 403),
            ("", 403),
        ] {
            assert_eq!(status(Hosts::Loopback, Origins::Loopback, &[("host", host)]), expect, "{host}");
        }
        assert_eq!(status(Hosts::Loopback, Origins::Loopback, &[]), 400);
        assert_eq!(
            status(Hosts::Loopback, Origins::Loopback, &[("host", "localhost"), ("host", "localhost")]),
            400
        );
        let only = || Hosts::Only(vec!["mcp.example.com".into(), "other:8080".into()]);
        for (host, expect) in [
            ("mcp.example.com", 200),
            ("MCP.example.com:443", 200),
            ("other:8080", 200),
            ("other:8081", 403),
            ("localhost", 403),
        ] {
            assert_eq!(status(only(), Origins::Loopback, &[("host", host)]), expect, "{host}");
        }
        assert_eq!(status(Hosts::Any, Origins::Loopback, &[("host", "evil.example.com")]), 200);
    }

    #[test]
    fn origins() {
        for (origin, expect) in [
            ("http://localhost:3000", 200),
            ("https://127.0.0.1", 200),
            ("http://[::1]:80", 200),
            ("localhost:3000", 200),
            ("http://evil.example.com", 403),
            ("http://localhost.evil.com", 403),
            ("null", 403),
            ("", 403),
        ] {
            let headers = [("host", "localhost"), ("origin", origin)];
            assert_eq!(status(Hosts::Loopback, Origins::Loopback, &headers), expect, "{origin}");
        }
        let only = Origins::Only(vec!["https://app.example.com".into()]);
        let headers = |origin| [("host", "localhost"), ("origin", origin)];
        assert_eq!(status(Hosts::Loopback, only.clone(), &headers("https://app.example.com")), 200);
        assert_eq!(status(Hosts::Loopback, only, &headers("http://localhost")), 403);
    }

    #[test]
    fn header_size() {
        let long = "x".repeat(300);
        assert_eq!(
            status(Hosts::Loopback, Origins::Loopback, &[("host", "localhost"), ("x-long", &long)]),
            431
        );
    }
}
