//! One client's session and where it is at the server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use bytes::Bytes;
use http::header::AUTHORIZATION;
use steadfast_client::{
    Ask, Boxed, Client, Config as ClientConfig, Era, Error, Event, Notification, OpenSession, Owner, Repeat,
    RequestId, Standalone,
};
use steadfast_engine::{CallHandle, Class, Facts, Incoming, SessionHandle, SessionRef};
use steadfast_wire::members::Members;
use steadfast_wire::rpc::ErrorObject;
use tokio::sync::watch;

use crate::config::Credential;
use crate::errors;
use crate::messages;
use crate::record::Record;
use crate::seat::{Place, Seat};
use crate::turns::Turns;
use crate::upstream::{Shared, random_number};

/// A client's session.
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) facts: Arc<Facts>,
    /// What the server is told of the client, and every bound.
    config: ClientConfig,
    /// The session itself, once it is open.
    session: watch::Sender<Option<SessionRef>>,
    pub(crate) turns: Turns,
    pub(crate) lanes: Vec<Lane>,
    /// The calls that are at the server, by lane and by their id there.
    in_flight: Mutex<BTreeMap<(usize, i64), CallHandle>>,
    me: Weak<Self>,
}

/// One session of the server's that calls of the client's session may be in.
#[derive(Default)]
pub(crate) struct Lane {
    pub(crate) seat: RwLock<Option<Arc<Seat>>>,
    /// Held while it is decided where the lane sits.
    pub(crate) settling: tokio::sync::Mutex<()>,
}

impl Lane {
    pub(crate) fn seat(&self) -> Option<Arc<Seat>> {
        self.seat.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn sit(&self, seat: Seat) -> Arc<Seat> {
        let seat = Arc::new(seat);
        // What sat there before is dropped when the lock is not held.
        let before = self.seat.write().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&seat));
        drop(before);
        seat
    }
}

impl Link {
    /// A link that leads nowhere yet. `request` is one of the client's, for what the server is shown of it.
    pub(crate) fn new(shared: &Arc<Shared>, facts: Arc<Facts>, request: &Incoming) -> Arc<Self> {
        let config = client_config(shared, &facts, request);
        let lanes = (0..shared.config.calls.spread.get()).map(|_| Lane::default()).collect();
        Arc::new_cyclic(|me| Self {
            shared: Arc::clone(shared),
            facts,
            config,
            session: watch::Sender::new(None),
            turns: Turns::new(&shared.config.calls),
            lanes,
            in_flight: Mutex::default(),
            me: Weak::clone(me),
        })
    }

    /// The session is open.
    pub(crate) fn open(&self, session: &SessionHandle) {
        self.session.send_replace(Some(session.downgrade()));
    }

    /// The session, unless its engine has gone.
    pub(crate) fn session(&self) -> Option<SessionHandle> {
        self.session.borrow().as_ref().and_then(SessionRef::upgrade)
    }

    /// Waits for the session to be open: a server may speak before its client has heard of the session.
    async fn opened(&self) -> Option<SessionHandle> {
        let mut session = self.session.subscribe();
        let opened = session.wait_for(Option::is_some).await.ok()?;
        opened.as_ref().and_then(SessionRef::upgrade)
    }

    /// The session's name in logs.
    pub(crate) fn short(&self) -> String {
        self.facts.id.short()
    }

    /// Opens a session at this place.
    pub(crate) async fn connect(&self, lane: usize, place: Place) -> Result<Seat, Error> {
        let config = ClientConfig { url: place.url.clone(), ..self.config.clone() };
        let owner = self.owner(lane, &place);
        let client = Client::connect_over(Arc::clone(&place.transport), config, owner).await?;
        Ok(Seat { place, client })
    }

    /// Goes on with a session that was opened before. Nothing is sent.
    pub(crate) fn resume(&self, lane: usize, place: Place, session: OpenSession) -> Result<Seat, Error> {
        // Ids of the process before may still be in flight there.
        let first_id = random_number();
        let config = ClientConfig { url: place.url.clone(), first_id, ..self.config.clone() };
        let owner = self.owner(lane, &place);
        let client = Client::resume_over(Arc::clone(&place.transport), &config, session, owner)?;
        Ok(Seat { place, client })
    }

    fn owner(&self, lane: usize, place: &Place) -> impl Owner + use<> {
        LinkOwner { link: Weak::clone(&self.me), lane, place: place.name.clone() }
    }

    /// Notes a call under its id at the server, for as long as what this gives is kept.
    pub(crate) fn enter(self: &Arc<Self>, lane: usize, id: &RequestId, call: &CallHandle) -> AtServer {
        let key = (lane, number(id));
        self.calls().insert(key, call.clone());
        AtServer { link: Arc::clone(self), key }
    }

    /// The call that a message of the server belongs to, or the newest one on its lane: some stream that is being read.
    fn call(&self, lane: usize, id: Option<&RequestId>) -> Option<CallHandle> {
        let calls = self.calls();
        let named = id.and_then(|id| calls.get(&(lane, number(id))));
        let newest = || calls.range((lane, i64::MIN)..=(lane, i64::MAX)).next_back().map(|(_, call)| call);
        named.or_else(newest).cloned()
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<(usize, i64), CallHandle>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the client answer what the server asks.
    async fn ask(&self, lane: usize, ask: Ask) -> Result<Bytes, ErrorObject> {
        let gone = || ErrorObject::internal("withdrawn", "The client's session has ended.", false);
        let session = self.opened().await.ok_or_else(gone)?;
        let rest = messages::rest_of(&ask);
        let asked = match self.call(lane, ask.call.as_ref()) {
            Some(call) => call.ask(rest),
            None => session.ask(rest),
        };
        drop(session);
        let message = asked.await.map_err(|refusal| errors::of_ask(&refusal))?;
        messages::answer(&message)
    }

    /// Passes on what belongs to no call.
    async fn hear(&self, notification: Notification) {
        if notification.method == "notifications/tools/list_changed" {
            self.shared.tools.forget();
        }
        let Some((class, payload)) = messages::for_session(&notification) else { return };
        let Some(session) = self.opened().await else { return };
        if let Err(refusal) = session.notify(class, payload).await {
            tracing::debug!(session = self.short(), method = notification.method, %refusal, "a notification is lost");
        }
    }

    /// Tells the client something in our own name, where it reads: on the stream of a call, or a standalone one.
    pub(crate) async fn tell(&self, session: &SessionHandle, class: Class, payload: Bytes) {
        let told = match self.call(0, None) {
            Some(call) => call.notify(class, payload).await,
            None => session.notify(class, payload).await,
        };
        if let Err(refusal) = told {
            tracing::debug!(session = self.short(), %refusal, "the client could not be told");
        }
    }

    /// Ends the sessions at the server.
    pub(crate) async fn close(&self) {
        for lane in &self.lanes {
            let seat = lane.seat.write().unwrap_or_else(PoisonError::into_inner).take();
            let Some(seat) = seat else { continue };
            if let Err(error) = seat.client.clone().close().await {
                tracing::debug!(session = self.short(), %error, "the server was not told of a session's end");
            }
        }
    }
}

/// What the server is told: the client's own words.
fn client_config(shared: &Shared, facts: &Facts, request: &Incoming) -> ClientConfig {
    let params = std::str::from_utf8(&facts.initialize).ok().and_then(|text| Members::parse(text).ok());
    let params = params.unwrap_or_default();
    let mut config = shared.client.clone();
    config.era = Era::Session(facts.revision);
    for (member, place) in [("capabilities", &mut config.capabilities), ("clientInfo", &mut config.info)] {
        if let Some(text) = params.get(member) {
            text.clone_into(place);
        }
    }
    config.standalone = if shared.config.standalone { Standalone::Held } else { Standalone::Closed };
    if let Credential::Forwarded = shared.config.credential {
        let credentials = request.http.headers.get_all(AUTHORIZATION);
        for value in credentials {
            config.headers.append(AUTHORIZATION, value.clone());
        }
    }
    config
}

/// The number of an id of ours: all of them are numbers.
fn number(id: &RequestId) -> i64 {
    match id {
        RequestId::Number(number) => *number,
        _ => i64::MIN,
    }
}

/// A call's entry among those at the server.
pub(crate) struct AtServer {
    link: Arc<Link>,
    key: (usize, i64),
}

impl Drop for AtServer {
    fn drop(&mut self) {
        self.link.calls().remove(&self.key);
    }
}

/// What the client of a lane has to turn to.
struct LinkOwner {
    link: Weak<Link>,
    lane: usize,
    place: String,
}

impl Owner for LinkOwner {
    fn answer(&self, ask: Ask) -> Boxed<'_, Result<Bytes, ErrorObject>> {
        Box::pin(async move {
            match self.link.upgrade() {
                Some(link) => link.ask(self.lane, ask).await,
                None => Err(ErrorObject::internal("withdrawn", "The client's session has ended.", false)),
            }
        })
    }

    fn notification(&self, notification: Notification) -> Boxed<'_, ()> {
        Box::pin(async move {
            if let Some(link) = self.link.upgrade() {
                link.hear(notification).await;
            }
        })
    }

    fn renewed(&self, session: OpenSession) -> Boxed<'_, Vec<Repeat>> {
        Box::pin(async move {
            match self.link.upgrade() {
                Some(link) => link.healed(self.lane, &self.place, &session).await,
                None => Vec::new(),
            }
        })
    }

    fn event(&self, event: Event) {
        let session = self.link.upgrade().map(|link| link.short());
        match event {
            Event::StandaloneLost(error) => {
                tracing::warn!(session, %error, "the server's own stream is lost; what it sends on it is not heard");
            }
            Event::AnswerLost { error, .. } => {
                tracing::warn!(session, %error, "an answer of the client did not reach the server");
            }
            Event::Gap => tracing::warn!(session, "messages on the server's own stream may be missing"),
            Event::SessionRenewed | Event::StandaloneOpen | Event::StandaloneAbsent => {}
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("session", &self.short()).finish_non_exhaustive()
    }
}

/// The record of a session, as far as it can be read: healing does without rather than fail.
pub(crate) async fn record_of(session: &SessionHandle) -> Record {
    Record::load(session).await.ok().flatten().unwrap_or_default()
}
