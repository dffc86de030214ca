//! A client: one session after the other, calls in parallel, a listener or two, and everything is written down.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

mod asks;
mod call;
mod http;
mod reader;
mod session;

use crate::rng::Rng;
use crate::server::Tool;
use call::Wish;
use reader::Next;
use session::{Listening, PAUSE, Session};

pub(crate) use session::Shared;

/// Most clients can come back to a stream before its first message; some are older.
const VERSIONS: [&str; 4] = ["2025-11-25", "2025-11-25", "2025-11-25", "2025-06-18"];

/// Makes calls as long as there are tickets.
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
        let has_more = use_up(&session, &mut rng).await;
        session.delete().await;
        listeners.shutdown().await;
        if !has_more {
            return;
        }
    }
}

/// Makes some calls in a session. `false` if there are no more tickets.
async fn use_up(session: &Arc<Session>, rng: &mut Rng) -> bool {
    let (calls, at_once) = (rng.between(20, 120), 1 + rng.below(8));
    let mut running = JoinSet::new();
    let mut has_more = true;
    for _ in 0..calls {
        while running.len() >= at_once {
            running.join_next().await;
        }
        let Some(ticket) = session.shared.tickets.take().await else {
            has_more = false;
            break;
        };
        if session.is_over() {
            break;
        }
        let (session, wish) = (Arc::clone(session), wish(rng));
        running.spawn(async move { call::make(&session, ticket, wish).await });
    }
    // Some end their session while calls are in flight. These find out, and say so.
    if has_more && rng.one_in(5) {
        session.delete().await;
    }
    while running.join_next().await.is_some() {}
    has_more
}

fn wish(rng: &mut Rng) -> Wish {
    let tool = match rng.below(20) {
        0..6 => Tool::Echo,
        6..8 => Tool::Slow,
        8..11 => Tool::Progress,
        11..13 => Tool::Ask,
        13..16 => Tool::Counter,
        16 => Tool::Note,
        _ => Tool::Look,
    };
    let ms = rng.between(5, 400);
    let cancel = (tool != Tool::Echo && rng.one_in(25)).then(|| Duration::from_millis(rng.between(1, 300)));
    Wish { tool, ms, cancel, reread: rng.one_in(6) }
}

/// Listens to a standalone stream, coming back whenever it breaks.
async fn listen(session: Arc<Session>) {
    let subject = session.subject(None);
    let mut last: Option<String> = None;
    while !session.is_over() {
        match session.listen(&subject, last.as_deref()).await {
            Listening::Stream(mut reader) => {
                let mut is_silent = true;
                let end = loop {
                    match reader.next().await {
                        Next::Event(event) => {
                            is_silent &= event.data.is_empty();
                            last = event.id.or(last);
                        }
                        end => break end,
                    }
                };
                // Another listener of this session reads that stream now, and shall have it.
                if is_silent && matches!(end, Next::Ended) {
                    last = None;
                }
            }
            Listening::NotNow => {}
            // It is written down, and judged.
            Listening::Refused => last = None,
        }
        tokio::time::sleep(PAUSE).await;
    }
}
