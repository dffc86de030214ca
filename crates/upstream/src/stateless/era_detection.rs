//! Detects whether a server has sessions or is stateless (2026-07-28), before it gets a request
//! without a session. Servers with sessions expect `initialize` first: some answer nonsense to
//! other requests, and some exit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use serde::Deserialize;
use steadfast_engine::IncomingMessage;
use steadfast_wire::params::{META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_PROTOCOL_VERSION};
use steadfast_wire::revision::names_modern;
use steadfast_wire::rpc::{HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION};
use steadfast_wire::{Mutex, Revision, headers};
use tokio::time::Instant;

use super::error_mapping::DISCOVER;
use super::forward::ForwardError;

/// How long a server counts as one with sessions. The gateway cannot notice that it was upgraded,
/// so it asks again.
const SESSIONS_TTL: Duration = Duration::from_secs(60);

/// A server that takes longer to show that it has sessions may only be slow to start. The result is
/// not cached.
const SLOW_ANSWER: Duration = Duration::from_secs(5);

/// The cached era of one server instance.
#[derive(Debug, Default)]
pub(crate) struct EraDetection {
    known: Mutex<Option<(ServerEra, Instant)>>,
    /// How often the server was asked.
    asked: AtomicU64,
    /// Held by the task that asks. Contains the error of the last attempt, for tasks that waited
    /// meanwhile.
    asking: tokio::sync::Mutex<Option<ForwardError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEra {
    Sessions,
    /// It understands requests without a session.
    Stateless,
}

impl EraDetection {
    /// Returns the era. If it is not cached, runs `discover` once, and all concurrent callers share
    /// the result, errors included. Returns `None` if `discover` could not tell.
    pub(super) async fn detect(
        &self,
        discover: impl Future<Output = Result<Option<ServerEra>, ForwardError>>,
    ) -> Result<Option<ServerEra>, ForwardError> {
        if let Some(era) = self.era() {
            return Ok(Some(era));
        }
        let before = self.asked.load(Ordering::Acquire);
        let mut last = self.asking.lock().await;
        if let Some(era) = self.era() {
            return Ok(Some(era));
        }
        if let Some(error) = last.as_ref().filter(|_| self.asked.load(Ordering::Acquire) != before) {
            return Err(error.clone());
        }
        let begun = Instant::now();
        let discovered = discover.await;
        self.asked.fetch_add(1, Ordering::Release);
        *last = discovered.as_ref().err().cloned();
        let era = discovered?;
        let is_certain = era == Some(ServerEra::Stateless) || begun.elapsed() < SLOW_ANSWER;
        *self.known.lock() = era.filter(|_| is_certain).map(|era| (era, begun));
        Ok(era)
    }

    /// Forgets the era, because the server failed. Another version may take its place.
    pub(crate) fn forget(&self) {
        *self.known.lock() = None;
    }

    fn era(&self) -> Option<ServerEra> {
        let (era, since) = (*self.known.lock())?;
        (era == ServerEra::Stateless || since.elapsed() < SESSIONS_TTL).then_some(era)
    }
}

/// Returns a `server/discover` request with the credentials of the client whose request follows.
pub(super) fn discover_request(request: &IncomingMessage) -> IncomingMessage {
    let version = Revision::V2026_07_28.as_str();
    let info = concat!(r#"{"name":"steadfast","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
    let params = format!(
        r#"{{"_meta":{{"{META_PROTOCOL_VERSION}":"{version}","{META_CLIENT_CAPABILITIES}":{{}},"{META_CLIENT_INFO}":{info}}}}}"#
    );
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.headers.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(version));
    parts.headers.insert(headers::METHOD, HeaderValue::from_static(DISCOVER));
    if let Some(credential) = request.http.headers.get(AUTHORIZATION) {
        parts.headers.insert(AUTHORIZATION, credential.clone());
    }
    IncomingMessage { method: DISCOVER.to_owned(), params: Some(params.into()), http: Arc::new(parts) }
}

/// Returns the era that a result of `server/discover` shows. A server with sessions may answer
/// anything to a method that it does not know, or list revisions with sessions only.
pub(super) fn era_of_result(result: &[u8]) -> ServerEra {
    #[derive(Deserialize)]
    struct Discovered {
        #[serde(rename = "supportedVersions")]
        versions: Vec<String>,
    }
    let discovered = serde_json::from_slice::<Discovered>(result);
    match discovered.is_ok_and(|result| result.versions.iter().any(|one| names_modern(one))) {
        true => ServerEra::Stateless,
        false => ServerEra::Sessions,
    }
}

/// Returns the era that an error shows, with any status.
pub(super) fn era_of_error(code: i32) -> ServerEra {
    match code {
        HEADER_MISMATCH | MISSING_CLIENT_CAPABILITY | UNSUPPORTED_PROTOCOL_VERSION => ServerEra::Stateless,
        _ => ServerEra::Sessions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_lists_versions_is_stateless() {
        for (result, expect) in [
            (r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#, ServerEra::Stateless),
            // The server reports by itself that it does not support 2026-07-28.
            (r#"{"supportedVersions":["2027-01-01"]}"#, ServerEra::Stateless),
            (r#"{"supportedVersions":["2025-06-18","2026-07-28"]}"#, ServerEra::Stateless),
            (r#"{"supportedVersions":["2025-06-18","2025-11-25"],"capabilities":{}}"#, ServerEra::Sessions),
            (r#"{"supportedVersions":"2026-07-28"}"#, ServerEra::Sessions),
            ("{}", ServerEra::Sessions),
        ] {
            assert_eq!(era_of_result(result.as_bytes()), expect, "{result}");
        }
        for (code, expect) in
            [(-32020, ServerEra::Stateless), (-32022, ServerEra::Stateless), (-32601, ServerEra::Sessions)]
        {
            assert_eq!(era_of_error(code), expect, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_with_sessions_is_asked_again_after_a_while() {
        let detection = EraDetection::default();
        let detect = async |era| detection.detect(async { Ok(Some(era)) }).await.unwrap();
        assert_eq!(detect(ServerEra::Sessions).await, Some(ServerEra::Sessions));
        tokio::time::advance(SESSIONS_TTL / 2).await;
        assert_eq!(detect(ServerEra::Stateless).await, Some(ServerEra::Sessions));
        tokio::time::advance(SESSIONS_TTL).await;
        assert_eq!(detect(ServerEra::Stateless).await, Some(ServerEra::Stateless));
        tokio::time::advance(SESSIONS_TTL * 100).await;
        assert_eq!(
            detect(ServerEra::Sessions).await,
            Some(ServerEra::Stateless),
            "a stateless server stays stateless"
        );
        detection.forget();
        assert_eq!(detect(ServerEra::Sessions).await, Some(ServerEra::Sessions));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_server_is_asked_again_at_once() {
        let detection = EraDetection::default();
        let detect = async |era, time| {
            let discover = async {
                tokio::time::sleep(time).await;
                Ok(Some(era))
            };
            detection.detect(discover).await.unwrap()
        };
        assert_eq!(detect(ServerEra::Sessions, SLOW_ANSWER * 2).await, Some(ServerEra::Sessions));
        assert_eq!(detect(ServerEra::Stateless, SLOW_ANSWER * 2).await, Some(ServerEra::Stateless));
        assert_eq!(detect(ServerEra::Sessions, Duration::ZERO).await, Some(ServerEra::Stateless));
    }

    /// Concurrent callers do not wait for an unreachable server one after the other.
    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_a_failure() {
        let detection = EraDetection::default();
        let unreachable = || ForwardError::Unreachable("it is down".to_owned());
        let detect = async || {
            let discover = async {
                tokio::time::sleep(Duration::from_secs(30)).await;
                Err(unreachable())
            };
            detection.detect(discover).await
        };
        let begun = Instant::now();
        assert_eq!(
            tokio::join!(detect(), detect(), detect()),
            (Err(unreachable()), Err(unreachable()), Err(unreachable()))
        );
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
        assert_eq!(detect().await, Err(unreachable()));
        assert_eq!(begun.elapsed(), Duration::from_secs(60), "a later caller asks again");
    }
}
