//! The check: parallel pings in an upstream session of the gateway's own, which is then deleted.
//!
//! A server with the fault loads its session, handles the ping, and writes the session back. It
//! keeps the `_meta` of a request in the session, so a large `_meta` makes that take longer and the
//! requests overlap.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use steadfast_client::{
    Answer, BoxFuture, Client, ClientHandler, Config as ClientConfig, Era, Error, Event, LostSessionAction,
    OpenSession, StandaloneStream,
};
use steadfast_wire::headers;

use super::{SerialReason, ServerTag, Verdict, php_sdk};
use crate::placement::upstream_session::UpstreamSession;
use crate::session::client_session::ClientSession;

/// A server that does not refuse a GET at once is not php-sdk.
const FINGERPRINT_TIMEOUT: Duration = Duration::from_secs(2);

/// How many times so many pings are sent. Three rounds found the fault of php-sdk in all of 50
/// attempts.
const ROUNDS: usize = 3;
const PINGS: usize = 8;

/// The size of `_meta`: the first, and the second if the server refuses the first.
const META_BYTES: [usize; 2] = [512 << 10, 64 << 10];

/// How long the check may take. `timeouts.control` applies if it is shorter. Calls wait meanwhile.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Result of a check.
pub(super) struct Checked {
    pub(super) verdict: Verdict,
    /// The server that answered. It may be another version than the one that opened the session for
    /// which the check runs.
    pub(super) server: Option<ServerTag>,
    /// Why the check could not be completed.
    pub(super) error: Option<Error>,
}

impl Checked {
    fn failed(server: Option<ServerTag>, error: Error) -> Self {
        Self { verdict: Verdict::Serial(SerialReason::CheckFailed), server, error: Some(error) }
    }
}

/// Checks the server of an upstream session.
pub(super) async fn check(client_session: &ClientSession, upstream_session: &UpstreamSession) -> Checked {
    let shared = &client_session.shared;
    let timeout = CHECK_TIMEOUT.min(shared.config.timeouts.control);
    let signs = Signs::default();
    let mut config = ClientConfig {
        url: upstream_session.instance.url.clone(),
        headers: client_session.headers(),
        era: Era::Session(client_session.facts.revision),
        standalone_stream: StandaloneStream::Closed,
        ..shared.client.clone()
    };
    // A ping without an answer has shown what the check looks for.
    config.timeouts.misrouted = Duration::ZERO;
    let deadline = tokio::time::Instant::now() + timeout;
    let transport = Arc::clone(&upstream_session.instance.transport);
    let connecting = Client::connect_over(transport, config, signs.clone());
    let client = match tokio::time::timeout_at(deadline, connecting).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return Checked::failed(None, error),
        Err(_) => return Checked::failed(None, timed_out()),
    };
    let server = Some(ServerTag::of_server(&client.server()));
    let verdict = tokio::time::timeout_at(deadline, async {
        if client.session_id().is_none() {
            return Ok(Verdict::Parallel);
        }
        if is_php_sdk(client_session, upstream_session, &client).await {
            return Ok(Verdict::Serial(SerialReason::Fingerprint));
        }
        ping_in_rounds(&client, &signs).await
    });
    let checked = match verdict.await {
        Ok(Ok(verdict)) => Checked { verdict, server, error: None },
        Ok(Err(error)) => Checked::failed(server, error),
        Err(_) => Checked::failed(server, timed_out()),
    };
    // No call waits for this.
    tokio::spawn(async move {
        if let Err(error) = client.close().await {
            tracing::debug!(%error, "could not delete the upstream session of a check");
        }
    });
    checked
}

fn timed_out() -> Error {
    Error::Timeout(steadfast_client::Wait::Call)
}

async fn is_php_sdk(
    client_session: &ClientSession,
    upstream_session: &UpstreamSession,
    client: &Client,
) -> bool {
    let mut request =
        Request::get(upstream_session.instance.url.clone()).body(Bytes::new()).unwrap_or_default();
    *request.headers_mut() = client_session.headers();
    // Without a session: a Java server that gets a GET in a session opens a stream, sends no head
    // for it, and ends the session when the connection is closed.
    let to = request.headers_mut();
    to.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    to.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(client.revision().as_str()));
    let sent = upstream_session.instance.transport.send(request);
    match tokio::time::timeout(FINGERPRINT_TIMEOUT, sent).await {
        // Without its body this response is dropped, and so is the stream of another server.
        Ok(Ok(response)) => php_sdk::sent(response).await,
        _ => false,
    }
}

async fn ping_in_rounds(client: &Client, signs: &Signs) -> Result<Verdict, Error> {
    let mut sizes = META_BYTES.into_iter();
    let mut params = sizes.next().map(padded_params).unwrap_or_default();
    let mut round = 0;
    while round < ROUNDS {
        let answers = ping(client, &params).await;
        if signs.is_faulty() || answers.iter().any(|answer| matches!(answer, Err(Error::BadAnswer(_)))) {
            return Ok(Verdict::Serial(SerialReason::Check));
        }
        if answers.iter().any(is_refused_for_size)
            && let Some(size) = sizes.next()
        {
            params = padded_params(size);
            continue;
        }
        answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        round += 1;
    }
    Ok(Verdict::Parallel)
}

/// Sends pings at the same time and returns their answers.
async fn ping(client: &Client, params: &str) -> Vec<Result<Answer, Error>> {
    let pings: Vec<_> = (0..PINGS).map(|_| client.call("ping", Some(params))).collect();
    let mut answers = Vec::with_capacity(PINGS);
    for ping in pings {
        answers.push(match ping {
            Ok(ping) => ping.answer().await,
            Err(error) => Err(error),
        });
    }
    answers
}

/// Servers refuse a large request by status or by an error in an answer.
fn is_refused_for_size(answer: &Result<Answer, Error>) -> bool {
    match answer {
        Ok(Answer::Error(_)) => true,
        Err(Error::Refused { status, .. }) => *status == StatusCode::PAYLOAD_TOO_LARGE.as_u16(),
        _ => false,
    }
}

fn padded_params(size: usize) -> String {
    format!(r#"{{"_meta":{{"steadfast/padding":"{}"}}}}"#, "x".repeat(size))
}

/// Whether the server has shown the fault in the session of the check.
#[derive(Clone, Debug, Default)]
struct Signs(Arc<AtomicBool>);

impl Signs {
    fn is_faulty(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl ClientHandler for Signs {
    /// A session that is gone after parallel pings was overwritten.
    fn on_session_lost(&self, _: OpenSession) -> BoxFuture<'_, LostSessionAction> {
        self.set();
        Box::pin(async { LostSessionAction::End })
    }

    fn on_event(&self, event: Event) {
        if let Event::MisroutingSuspected(_) = event {
            self.set();
        }
    }
}
