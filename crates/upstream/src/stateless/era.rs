//! Whether a server has sessions, found out before it gets a request without one. Those that have take nothing before
//! `initialize`: some answer nonsense, and some end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use serde::Deserialize;
use steadfast_engine::Incoming;
use steadfast_wire::params::{META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_PROTOCOL_VERSION};
use steadfast_wire::rpc::{HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION};
use steadfast_wire::{Revision, headers};
use tokio::time::Instant;

use super::errors::DISCOVER;
use super::forward::Missed;

/// How long a server counts as one with sessions. Nothing shows that another version has taken its place, so it is asked again.
const STAYS: Duration = Duration::from_secs(60);

/// Who takes longer than this to show that it has sessions may only be slow to start. It is not remembered.
const SLOW: Duration = Duration::from_secs(5);

/// What is known of one server.
#[derive(Debug, Default)]
pub(crate) struct Era {
    known: Mutex<Option<(Verdict, Instant)>>,
    /// How often it was asked.
    asked: AtomicU64,
    /// Held by whoever asks. Why the last one learnt nothing, for those who waited for it meanwhile.
    asking: tokio::sync::Mutex<Option<Missed>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Sessions,
    /// It knows what a request without a session is, and can speak for itself.
    Stateless,
}

impl Era {
    /// What the server is. `ask` is done once, however many want to know, and if it fails, it fails for all who wait; `None` if
    /// that did not tell.
    pub(super) async fn settle(
        &self,
        ask: impl Future<Output = Result<Option<Verdict>, Missed>>,
    ) -> Result<Option<Verdict>, Missed> {
        if let Some(verdict) = self.verdict() {
            return Ok(Some(verdict));
        }
        let before = self.asked.load(Ordering::Acquire);
        let mut last = self.asking.lock().await;
        if let Some(verdict) = self.verdict() {
            return Ok(Some(verdict));
        }
        if let Some(missed) = last.as_ref().filter(|_| self.asked.load(Ordering::Acquire) != before) {
            return Err(missed.clone());
        }
        let begun = Instant::now();
        let told = ask.await;
        self.asked.fetch_add(1, Ordering::Release);
        *last = told.as_ref().err().cloned();
        let verdict = told?;
        let is_certain = verdict == Some(Verdict::Stateless) || begun.elapsed() < SLOW;
        *self.known() = verdict.filter(|_| is_certain).map(|verdict| (verdict, begun));
        Ok(verdict)
    }

    /// The server was lost. Who comes after it may be another.
    pub(crate) fn forget(&self) {
        *self.known() = None;
    }

    fn verdict(&self) -> Option<Verdict> {
        let (verdict, since) = (*self.known())?;
        (verdict == Verdict::Stateless || since.elapsed() < STAYS).then_some(verdict)
    }

    fn known(&self) -> MutexGuard<'_, Option<(Verdict, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The question, in the name of the client whose request comes next: whoever wants to see credentials sees the same.
pub(super) fn question(request: &Incoming) -> Incoming {
    let version = Revision::V2026_07_28.as_str();
    let info = concat!(r#"{"name":"steadfast","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
    let params = format!(
        r#"{{"_meta":{{"{META_PROTOCOL_VERSION}":"{version}","{META_CLIENT_CAPABILITIES}":{{}},"{META_CLIENT_INFO}":{info}}}}}"#
    );
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.headers.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(version));
    parts.headers.insert(headers::METHOD, HeaderValue::from_static(DISCOVER));
    if let Some(shown) = request.http.headers.get(AUTHORIZATION) {
        parts.headers.insert(AUTHORIZATION, shown.clone());
    }
    Incoming { method: DISCOVER.to_owned(), params: Some(params.into()), http: Arc::new(parts) }
}

/// What a result of `server/discover` shows. Servers with sessions may answer anything to what they do not know.
pub(super) fn of_result(result: &[u8]) -> Verdict {
    #[derive(Deserialize)]
    struct Discovered {
        #[serde(rename = "supportedVersions")]
        _versions: Vec<String>,
    }
    match serde_json::from_slice::<Discovered>(result) {
        Ok(_) => Verdict::Stateless,
        Err(_) => Verdict::Sessions,
    }
}

/// What an error shows, whatever its status.
pub(super) fn of_code(code: i32) -> Verdict {
    match code {
        HEADER_MISMATCH | MISSING_CLIENT_CAPABILITY | UNSUPPORTED_PROTOCOL_VERSION => Verdict::Stateless,
        _ => Verdict::Sessions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_names_versions_is_stateless() {
        for (result, expect) in [
            (r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#, Verdict::Stateless),
            // It says by itself that this one is not among them.
            (r#"{"supportedVersions":["2027-01-01"]}"#, Verdict::Stateless),
            (r#"{"supportedVersions":"2026-07-28"}"#, Verdict::Sessions),
            ("{}", Verdict::Sessions),
        ] {
            assert_eq!(of_result(result.as_bytes()), expect, "{result}");
        }
        for (code, expect) in
            [(-32020, Verdict::Stateless), (-32022, Verdict::Stateless), (-32601, Verdict::Sessions)]
        {
            assert_eq!(of_code(code), expect, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_with_sessions_is_asked_again_some_day() {
        let era = Era::default();
        let ask = async |verdict| era.settle(async { Ok(Some(verdict)) }).await.unwrap();
        assert_eq!(ask(Verdict::Sessions).await, Some(Verdict::Sessions));
        tokio::time::advance(STAYS / 2).await;
        assert_eq!(ask(Verdict::Stateless).await, Some(Verdict::Sessions));
        tokio::time::advance(STAYS).await;
        assert_eq!(ask(Verdict::Stateless).await, Some(Verdict::Stateless));
        tokio::time::advance(STAYS * 100).await;
        assert_eq!(ask(Verdict::Sessions).await, Some(Verdict::Stateless), "it stays as it is");
        era.forget();
        assert_eq!(ask(Verdict::Sessions).await, Some(Verdict::Sessions));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_slow_is_asked_again_at_once() {
        let era = Era::default();
        let ask = async |verdict, time| {
            let told = async {
                tokio::time::sleep(time).await;
                Ok(Some(verdict))
            };
            era.settle(told).await.unwrap()
        };
        assert_eq!(ask(Verdict::Sessions, SLOW * 2).await, Some(Verdict::Sessions));
        assert_eq!(ask(Verdict::Stateless, SLOW * 2).await, Some(Verdict::Stateless));
        assert_eq!(ask(Verdict::Sessions, Duration::ZERO).await, Some(Verdict::Stateless));
    }

    /// Nobody waits for a server that is away once for each who waits before.
    #[tokio::test(start_paused = true)]
    async fn a_failure_is_everybodys_who_waits() {
        let era = Era::default();
        let away = || Missed::Away("it is away".to_owned());
        let ask = async || {
            let told = async {
                tokio::time::sleep(Duration::from_secs(30)).await;
                Err(away())
            };
            era.settle(told).await
        };
        let begun = Instant::now();
        assert_eq!(tokio::join!(ask(), ask(), ask()), (Err(away()), Err(away()), Err(away())));
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
        assert_eq!(ask().await, Err(away()));
        assert_eq!(begun.elapsed(), Duration::from_secs(60), "whoever comes later asks anew");
    }
}
