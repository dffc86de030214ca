//! A client of a run. It uses one session after the other, makes concurrent calls, reads standalone
//! streams, and records everything that it sees.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

mod call;
mod http;
mod reader;
mod server_requests;
mod session;

use crate::rng::Rng;
use crate::server::Tool;
use call::CallSpec;
use reader::Next;
use session::{ListenResult, RETRY_PAUSE, Session};

pub(crate) use session::Shared;

/// Protocol versions of clients. Only the newer one lets a client resume a stream before its first
/// message.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-11-25", "2025-11-25", "2025-06-18"];

/// Makes calls until the schedule has no more.
pub(crate) async fn run(shared: Arc<Shared>, number: usize, mut rng: Rng) {
    for no in 0.. {
        let name = format!("c{number}.{no}");
        let version = VERSIONS[number % VERSIONS.len()];
        let session_rng = Rng::of(rng.next(), &name);
        let Some(session) = Session::open(&shared, name, version, session_rng).await else { return };
        let mut listeners = JoinSet::new();
        for _ in 0..rng.below(3) {
            listeners.spawn(listen(Arc::clone(&session)));
        }
        let has_more = use_session(&session, &mut rng).await;
        session.delete().await;
        listeners.shutdown().await;
        if !has_more {
            return;
        }
    }
}

/// Makes some calls in a session. Returns false if the schedule has no more.
async fn use_session(session: &Arc<Session>, rng: &mut Rng) -> bool {
    let (calls, at_once) = (rng.between(20, 120), 1 + rng.below(8));
    let mut running = JoinSet::new();
    let mut has_more = true;
    for _ in 0..calls {
        while running.len() >= at_once {
            running.join_next().await;
        }
        let Some(number) = session.shared.schedule.next_call().await else {
            has_more = false;
            break;
        };
        if session.is_over() {
            break;
        }
        let (session, spec) = (Arc::clone(session), choose_call(rng));
        running.spawn(async move { call::make(&session, number, spec).await });
    }
    // Some clients end their session while calls are in flight. Those calls are recorded as
    // abandoned.
    if has_more && rng.one_in(5) {
        session.delete().await;
    }
    while running.join_next().await.is_some() {}
    has_more
}

fn choose_call(rng: &mut Rng) -> CallSpec {
    let tool = match rng.below(20) {
        0..6 => Tool::Echo,
        6..8 => Tool::Slow,
        8..11 => Tool::Progress,
        11..13 => Tool::Elicit,
        13..16 => Tool::Counter,
        16 => Tool::Notify,
        _ => Tool::ReadOnly,
    };
    let ms = rng.between(5, 400);
    let cancel = (tool != Tool::Echo && rng.one_in(25)).then(|| Duration::from_millis(rng.between(1, 300)));
    CallSpec { tool, ms, cancel, reread: rng.one_in(6) }
}

/// Reads a standalone stream, and resumes it whenever it breaks.
async fn listen(session: Arc<Session>) {
    let stream_id = session.stream_id(None);
    let mut last: Option<String> = None;
    while !session.is_over() {
        match session.listen(&stream_id, last.as_deref()).await {
            ListenResult::Stream(mut reader) => {
                let mut is_empty = true;
                let end = loop {
                    match reader.next().await {
                        Next::Event(event) => {
                            is_empty &= event.data.is_empty();
                            last = event.id.or(last);
                        }
                        end => break end,
                    }
                };
                // Another listener of this session has taken over that stream, so this one opens
                // another.
                if is_empty && matches!(end, Next::Ended) {
                    last = None;
                }
            }
            ListenResult::RetryLater => {}
            // The history has the refusal, and the promises cover it.
            ListenResult::Refused => last = None,
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
