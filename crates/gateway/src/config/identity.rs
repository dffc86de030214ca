//! The identity of an endpoint: which server it serves, as far as sessions are concerned.
//!
//! Gateways that share a store share the sessions of endpoints with the same identity, and no
//! others. The identity is `id` of the configuration, or else a hash of the path and of the server.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use http::Uri;
use sha2::{Digest as _, Sha256};
use steadfast_upstream::Server;

use super::plan::Behind;

/// The longest `id`: it is a part of every principal that the store keeps.
pub(crate) const MAX_ID_CHARS: usize = 64;

/// Bytes of a hash that make an identity. An accidental collision of endpoints on one store stays
/// out of reach.
const HASH_BYTES: usize = 8;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EndpointIdentity {
    name: Arc<str>,
    /// One digest for each replica, or one for the program or the demo. Arguments of a program may
    /// be secret.
    servers: BTreeSet<[u8; 32]>,
}

impl EndpointIdentity {
    /// `folder` is where the gateway was started. A program that names no folder of its own is
    /// started there.
    pub(super) fn new(id: Option<&str>, path: &str, behind: &Behind, folder: &Path) -> Self {
        let servers = servers(behind, folder);
        let name = id.map_or_else(|| hash(path, &servers), str::to_owned);
        Self { name: name.into(), servers }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns true if at least one replica, or the program, is the same.
    pub(crate) fn shares_a_server_with(&self, other: &Self) -> bool {
        !self.servers.is_disjoint(&other.servers)
    }
}

impl fmt::Debug for EndpointIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndpointIdentity").field(&self.name).finish()
    }
}

/// Returns true for an `id` that can stand in a principal, in a log line and in a configuration
/// file.
pub(super) fn is_valid(id: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    (1..=MAX_ID_CHARS).contains(&id.len()) && id.chars().all(is_plain)
}

fn hash(path: &str, servers: &BTreeSet<[u8; 32]>) -> String {
    let mut parts = vec![path.as_bytes()];
    parts.extend(servers.iter().map(<[u8; 32]>::as_slice));
    digest(parts).iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

fn servers(behind: &Behind, folder: &Path) -> BTreeSet<[u8; 32]> {
    let server = match behind {
        Behind::Demo => return BTreeSet::from([digest([&b"demo"[..]])]),
        Behind::Upstream(config) => &config.server,
    };
    match server {
        Server::Http { replicas, .. } => {
            replicas.iter().map(|replica| digest([&b"http"[..], address(replica).as_bytes()])).collect()
        }
        Server::Stdio(stdio) => {
            let program = &stdio.program;
            let folder = program.folder.as_ref().map_or_else(|| folder.to_owned(), |own| folder.join(own));
            let mut parts =
                vec![&b"program"[..], folder.as_os_str().as_encoded_bytes(), program.command.as_bytes()];
            parts.extend(program.arguments.iter().map(String::as_bytes));
            BTreeSet::from([digest(parts)])
        }
    }
}

/// The address without its query, which may hold a key that is renewed.
fn address(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map(|authority| authority.as_str().to_ascii_lowercase());
    format!("{scheme}://{}{}", authority.unwrap_or_default(), uri.path())
}

/// Each part goes with its length, so that no two lists of parts are the same bytes.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update((part.len() as u64).to_le_bytes());
        sha.update(part);
    }
    sha.finalize().into()
}
