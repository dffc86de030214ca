//! One upstream session: the gateway's own session at a server instance, and the MCP client that
//! uses it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use steadfast_client::Client;
use tokio::time::Instant;

use crate::call::parallel_calls::ServerTag;
use crate::placement::server_instance::ServerInstance;

pub(crate) struct UpstreamSession {
    /// Its number within the client session. Request ids are unique per upstream session only.
    pub(crate) no: u64,
    pub(crate) instance: ServerInstance,
    pub(crate) client: Client,
    /// Created when a probe succeeds: most upstream sessions never need it.
    probe_result: OnceLock<Box<Mutex<ProbeResult>>>,
    described_as: Mutex<Option<Description>>,
}

/// How the server has described itself, in short.
struct Description {
    /// The result of `initialize`. The MCP client gets another one when it opens its session again.
    server: Bytes,
    tag: Option<ServerTag>,
}

/// Whether a successful probe shows that calls succeed as well.
#[derive(Debug, Default)]
struct ProbeResult {
    /// When the last probe succeeded, if no call was answered since.
    probed_at: Option<Instant>,
    /// A call that began after the probe was refused with 502–504.
    is_misleading: bool,
}

impl UpstreamSession {
    pub(crate) fn new(no: u64, instance: ServerInstance, client: Client) -> Self {
        Self { no, instance, client, probe_result: OnceLock::new(), described_as: Mutex::new(None) }
    }

    /// Returns the name and the version of the server. `None` if it assigned no session id.
    pub(crate) fn server_tag(&self) -> Option<ServerTag> {
        let server = self.client.server();
        let mut described_as = self.described_as.lock().unwrap_or_else(PoisonError::into_inner);
        match &*described_as {
            Some(known) if known.server.as_ptr() == server.as_ptr() => known.tag.clone(),
            _ => {
                let tag = self.client.session_id().map(|_| ServerTag::of_server(&server));
                *described_as = Some(Description { server, tag: tag.clone() });
                tag
            }
        }
    }

    pub(crate) fn probe_succeeded(&self) {
        let probe_result = self.probe_result.get_or_init(Box::default);
        locked(probe_result).probed_at = Some(Instant::now());
    }

    pub(crate) fn call_answered(&self) {
        if let Some(probe_result) = self.probe_result.get() {
            *locked(probe_result) = ProbeResult::default();
        }
    }

    /// Records that a call was refused with 502–504. A call that began before the probe proves
    /// nothing.
    pub(crate) fn call_refused(&self, begun: Instant) {
        let Some(mut probe_result) = self.probe_result.get().map(|probe_result| locked(probe_result)) else {
            return;
        };
        probe_result.is_misleading |= probe_result.probed_at.is_some_and(|probed_at| probed_at <= begun);
    }

    /// Returns true if probes succeed while calls still return 502–504: a proxy answers the probes.
    pub(crate) fn is_probe_misleading(&self) -> bool {
        self.probe_result.get().is_some_and(|probe_result| locked(probe_result).is_misleading)
    }
}

fn locked(probe_result: &Mutex<ProbeResult>) -> MutexGuard<'_, ProbeResult> {
    probe_result.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for UpstreamSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamSession")
            .field("no", &self.no)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}
