//! Resolves the host names of servers to addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;

use crate::replicas::replica::is_secure;

/// How long a lookup may take. The gateway starts without the result, and resolves the name again
/// when it is needed.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of addresses per name.
const MAX_ADDRESSES: usize = 64;

/// Resolves host names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Resolver {
    #[default]
    System,
    /// These names resolve to the given addresses. The system resolves all others.
    Listed(BTreeMap<String, Vec<IpAddr>>),
}

impl Resolver {
    /// Returns the addresses of the host. Empty if the host is an IP address or cannot be resolved.
    pub(crate) async fn addresses(&self, url: &Uri) -> Vec<SocketAddr> {
        let host = url.host().unwrap_or_default();
        if host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok() {
            return Vec::new();
        }
        let found = match self {
            Self::Listed(list) if list.contains_key(host) => {
                let listed = list.get(host).into_iter().flatten();
                Ok(listed.take(MAX_ADDRESSES).map(|address| (*address, port(url)).into()).collect())
            }
            _ => resolve_with_system(host, port(url)).await,
        };
        match found {
            Ok(found) => first_family(found),
            Err(error) => {
                tracing::warn!(host, %error, "could not resolve the host name of a server");
                Vec::new()
            }
        }
    }
}

async fn resolve_with_system(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    let found = tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((host, port))).await;
    let found = found.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
    Ok(found.take(MAX_ADDRESSES).collect())
}

fn port(url: &Uri) -> u16 {
    url.port_u16().unwrap_or_else(|| if is_secure(url) { 443 } else { 80 })
}

/// Returns the addresses of the family that is listed first. A machine may be listed once for IPv4
/// and once for IPv6, and must not count twice.
fn first_family(mut list: Vec<SocketAddr>) -> Vec<SocketAddr> {
    if let Some(first) = list.first().copied() {
        list.retain(|address| address.is_ipv4() == first.is_ipv4());
    }
    list.sort();
    list.dedup();
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_address_family_counts() {
        let list =
            |texts: &[&str]| -> Vec<SocketAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        assert_eq!(first_family(list(&["[::1]:80", "127.0.0.1:80"])), list(&["[::1]:80"]));
        assert_eq!(
            first_family(list(&["10.0.0.2:80", "10.0.0.1:80", "[::1]:80", "10.0.0.1:80"])),
            list(&["10.0.0.1:80", "10.0.0.2:80"])
        );
    }
}
