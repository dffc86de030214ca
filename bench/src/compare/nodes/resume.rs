//! The time to resume a stream: at the node where it began, and at a node that does not know its
//! session.

use std::fmt;

use memchr::memmem;
use serde_json::json;
use tokio::time::Instant;

use super::{ADDED_RESUME_MS, met};
use crate::Error;
use crate::compare::measure::median;
use crate::compare::peer::Peer;
use crate::load::target::{Connection, Target};

#[derive(Debug)]
pub(super) struct Resumes {
    count: usize,
    same_ms: f64,
    other_ms: f64,
}

/// Two gateways on one store. Each stream has its own session.
pub(super) async fn compare(gateway: &Peer, count: usize) -> Result<Resumes, Error> {
    let (first, second) = (gateway.start()?, gateway.start()?);
    let (first, second) = (Target::parse(first.url())?, Target::parse(second.url())?);
    let (mut here, mut there) = (Connection::open(&first).await?, Connection::open(&second).await?);
    let (mut same, mut other) = (Vec::new(), Vec::new());
    for _ in 0..count {
        same.push(resume(&first, &mut here, None).await?);
        other.push(resume(&first, &mut here, Some((&second, &mut there))).await?);
    }
    let of = |times: Vec<f64>| median(times.into_iter()).ok_or("at least one resume, please");
    Ok(Resumes { count, same_ms: of(same)?, other_ms: of(other)? })
}

/// Makes a call and reads its stream again from the start, at one of the gateways. Returns the
/// milliseconds of the second read.
async fn resume(
    target: &Target,
    here: &mut Connection,
    there: Option<(&Target, &mut Connection)>,
) -> Result<f64, Error> {
    let session = target.open_session_over(here).await?;
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tiny","arguments":{}}}"#;
    let answer = here.exchange(&target.post(Some(&session), call)).await?;
    let event = first_event(answer.body()).ok_or("the answer has no event id")?;
    let (target, connection) = match there {
        Some((target, connection)) => (target, connection),
        None => (target, here),
    };
    let request = target.resume(&session, &event);
    let start = Instant::now();
    let replayed = connection.exchange(&request).await?;
    let took = start.elapsed();
    if memmem::find(replayed.body(), b"\"result\":").is_none() {
        return Err(format!("a resume gave {} and no answer", replayed.status()).into());
    }
    Ok(took.as_secs_f64() * 1e3)
}

/// Returns the id of the priming event.
fn first_event(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    text.lines().find_map(|line| line.strip_prefix("id:")).map(|id| id.trim().to_owned())
}

impl Resumes {
    fn added(&self) -> f64 {
        self.other_ms - self.same_ms
    }

    pub(super) fn json(&self) -> serde_json::Value {
        json!({ "streams": self.count, "same_node_ms": self.same_ms, "other_node_ms": self.other_ms, "added_ms": self.added() })
    }
}

impl fmt::Display for Resumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, same_ms, other_ms } = self;
        let (added, met) = (self.added(), met(self.added() <= ADDED_RESUME_MS));
        write!(
            f,
            "resume of {count} streams, median: {same_ms:.2} ms at the same node, {other_ms:.2} ms at another, \
             {added:.2} ms added (target {ADDED_RESUME_MS} ms: {met})"
        )
    }
}
