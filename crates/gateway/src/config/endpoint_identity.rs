//! The identity of an endpoint, which decides whose sessions the endpoint serves.
//!
//! Gateways that share a store share the sessions of endpoints with the same identity, and no other
//! sessions. The identity is `id` of the configuration, or else a hash of the path and of the
//! server.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use http::Uri;
use sha2::{Digest as _, Sha256};
use steadfast_upstream::Server;

use super::plan::BackendPlan;

/// The longest `id`. It is a part of every principal in the store, so it must be short.
pub(crate) const MAX_ID_CHARS: usize = 64;

/// Bytes of the hash that make an identity: enough that endpoints on one store do not collide by
/// accident.
const HASH_BYTES: usize = 8;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EndpointIdentity {
    name: Arc<str>,
    /// One digest for each replica, or one for the program or the demo server. Digests, because
    /// arguments of a program may be secret.
    servers: BTreeSet<[u8; 32]>,
}

impl EndpointIdentity {
    /// `cwd` is the working directory of the gateway, and of programs without `cwd`.
    pub(super) fn new(id: Option<&str>, path: &str, backend: &BackendPlan, cwd: &Path) -> Self {
        let servers = servers(backend, cwd);
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

/// Returns true if `id` can be part of a principal, a log line and a configuration file.
pub(super) fn is_valid(id: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    (1..=MAX_ID_CHARS).contains(&id.len()) && id.chars().all(is_plain)
}

fn hash(path: &str, servers: &BTreeSet<[u8; 32]>) -> String {
    let mut parts = vec![path.as_bytes()];
    parts.extend(servers.iter().map(<[u8; 32]>::as_slice));
    digest(parts).iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

fn servers(backend: &BackendPlan, cwd: &Path) -> BTreeSet<[u8; 32]> {
    let server = match backend {
        BackendPlan::Demo => return BTreeSet::from([digest([&b"demo"[..]])]),
        BackendPlan::Upstream(config) => &config.server,
    };
    match server {
        Server::Http { replicas, .. } => {
            replicas.iter().map(|replica| digest([&b"http"[..], address(replica).as_bytes()])).collect()
        }
        Server::Stdio(stdio) => {
            let program = &stdio.program;
            let cwd = program.folder.as_ref().map_or_else(|| cwd.to_owned(), |own| cwd.join(own));
            let mut parts =
                vec![&b"program"[..], cwd.as_os_str().as_encoded_bytes(), program.command.as_bytes()];
            parts.extend(program.arguments.iter().map(String::as_bytes));
            BTreeSet::from([digest(parts)])
        }
    }
}

/// The address without its query, because a query may contain a key that is renewed.
fn address(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map(|authority| authority.as_str().to_ascii_lowercase());
    format!("{scheme}://{}{}", authority.unwrap_or_default(), uri.path())
}

/// Hashes each part with its length, so that different lists of parts have different bytes.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update((part.len() as u64).to_le_bytes());
        sha.update(part);
    }
    sha.finalize().into()
}
