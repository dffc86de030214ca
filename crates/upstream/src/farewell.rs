//! Sessions that end while this process has no link for them, because another one opened them: the record says where they sit,
//! and the server there is told.

use std::sync::Arc;

use steadfast_client::OpenSession;
use steadfast_engine::SessionHandle;
use tokio::sync::Semaphore;

use crate::config::{Credential, Server};
use crate::link::Link;
use crate::links::Links;
use crate::seats::Seats;
use crate::upstream::Shared;

/// How many are told at a time. All sessions of a process that was away for long may end at once; each farewell takes as long as
/// a request may, and the next one waits.
const AT_A_TIME: usize = 16;

/// The places of those who are being told.
#[derive(Debug)]
pub(crate) struct Farewells(Semaphore);

impl Default for Farewells {
    fn default() -> Self {
        Self(Semaphore::new(AT_A_TIME))
    }
}

/// Tells the server that a session is over. It is told once and may not hear it: then it finds out in its own time.
pub(crate) async fn bid(shared: &Arc<Shared>, links: &Arc<Links>, session: &SessionHandle) {
    // A program is gone with the process that started it, and nobody is here to show the credentials of a client.
    let can_tell = matches!(shared.config.server, Server::Http { .. })
        && !matches!(shared.config.credential, Credential::Forwarded);
    if !can_tell {
        return;
    }
    // It is never closed.
    let Ok(_place) = shared.farewells.0.acquire().await else { return };
    let Some(seats) = Seats::left_by(session).await else { return };
    let link = Link::new(shared, links, Arc::clone(session.facts()));
    for lane in 0..seats.lanes.len() {
        if let Some((place, open)) = seats.session(lane) {
            part(&link, place, open).await;
        }
    }
}

async fn part(link: &Link, place: &str, open: OpenSession) {
    let name = link.short();
    let Some(place) = link.shared.servers.find(&name, place, &open) else { return };
    let ended = match link.resume(0, place, open) {
        Ok(seat) => seat.client.close().await,
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        tracing::debug!(session = name, %error, "the server was not told of a session's end");
    }
}
