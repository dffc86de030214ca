//! What the names of hosts stand for.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;

use crate::replicas::is_secure;

/// How long looking up may take. Whoever starts goes on without, and a name that is not known yet is looked up when it is needed.
const MAX_LOOK_UP: Duration = Duration::from_secs(5);

/// Addresses that one name may stand for.
const MAX_ADDRESSES: usize = 64;

/// Who knows what names stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Names {
    #[default]
    System,
    /// These stand for several addresses each; the system knows all others.
    Listed(BTreeMap<String, Vec<IpAddr>>),
}

impl Names {
    /// Where the host of an address is; nowhere if it is no name, or is not known.
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
            _ => by_the_system(host, port(url)).await,
        };
        match found {
            Ok(found) => one_family(found),
            Err(error) => {
                tracing::warn!(host, %error, "the name of a server cannot be looked up");
                Vec::new()
            }
        }
    }
}

async fn by_the_system(host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    let found = tokio::time::timeout(MAX_LOOK_UP, tokio::net::lookup_host((host, port))).await;
    let found = found.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
    Ok(found.take(MAX_ADDRESSES).collect())
}

fn port(url: &Uri) -> u16 {
    url.port_u16().unwrap_or_else(|| if is_secure(url) { 443 } else { 80 })
}

/// A machine may be listed once for IPv4 and once for IPv6: only the family that is named first counts.
fn one_family(mut list: Vec<SocketAddr>) -> Vec<SocketAddr> {
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
    fn a_machine_with_two_families_is_one() {
        let list =
            |texts: &[&str]| -> Vec<SocketAddr> { texts.iter().map(|text| text.parse().unwrap()).collect() };
        assert_eq!(one_family(list(&["[::1]:80", "127.0.0.1:80"])), list(&["[::1]:80"]));
        assert_eq!(
            one_family(list(&["10.0.0.2:80", "10.0.0.1:80", "[::1]:80", "10.0.0.1:80"])),
            list(&["10.0.0.1:80", "10.0.0.2:80"])
        );
    }
}
