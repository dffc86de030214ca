//! One client's session and where it is at the server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use steadfast_client::{
    Ask, Client, Config as ClientConfig, Era, Error, Notification, OpenSession, Repeat, Standalone,
};
use steadfast_engine::{Class, Facts, Incoming, Refusal, SessionHandle, SessionRef};
use steadfast_wire::members::Members;
use steadfast_wire::rpc::ErrorObject;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::Credential;
use crate::errors;
use crate::gaps::Gaps;
use crate::in_flight::InFlight;
use crate::lease::{Held, Lease};
use crate::links::{Heritage, Links};
use crate::messages;
use crate::owner::LinkOwner;
use crate::record::MAX_SUBSCRIPTIONS;
use crate::seat::{Place, Seat};
use crate::seats::Known;
use crate::turns::Turns;
use crate::upstream::{Shared, random_number};

/// A client's session.
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) facts: Arc<Facts>,
    /// Where it is to be found.
    links: Weak<Links>,
    /// What the server is told of the client, and every bound.
    config: ClientConfig,
    /// What the client showed last to prove who it is, if that is passed on.
    credential: RwLock<Vec<HeaderValue>>,
    /// The session itself, once it is open.
    session: watch::Sender<Option<SessionRef>>,
    /// Made when they are needed first, like the next: many sessions do nothing but listen.
    turns: OnceLock<Box<Turns>>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) lease: Lease,
    gaps: OnceLock<Box<Gaps>>,
    /// Which version of where the lanes sit this process goes by.
    pub(crate) known: Known,
    /// The session has ended: whoever sits down now is too late.
    is_closed: AtomicBool,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) me: Weak<Self>,
}

/// One session of the server's that calls of the client's session may be in.
#[derive(Default)]
pub(crate) struct Lane {
    seat: RwLock<Option<Arc<Seat>>>,
    /// Held while it is decided where the lane sits.
    pub(crate) settling: tokio::sync::Mutex<()>,
    /// What was told the server in another lane and holds here, too: the newest for each thing that it is about.
    missed: Mutex<BTreeMap<String, Repeat>>,
    /// The server's own stream is lost, and the log says so.
    pub(crate) is_deaf: AtomicBool,
    /// Somebody looks for another place to hear the server.
    pub(crate) is_moving: AtomicBool,
}

impl Lane {
    pub(crate) fn seat(&self) -> Option<Arc<Seat>> {
        self.seat.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The right to decide where the lane sits, unless it takes too long.
    pub(crate) async fn settle(&self, end: Instant) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        tokio::time::timeout_at(end, self.settling.lock()).await.ok()
    }

    /// What the server is to be told before the next call.
    pub(crate) fn missed(&self) -> Vec<Repeat> {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *missed).into_values().collect()
    }

    /// Whether there was room for it.
    fn miss(&self, about: &str, repeat: Repeat) -> bool {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = missed.len() < MAX_SUBSCRIPTIONS || missed.contains_key(about);
        if has_room {
            missed.insert(about.to_owned(), repeat);
        }
        has_room
    }

    /// What sat there before is dropped when the lock is not held.
    fn change(&self, seat: Option<Arc<Seat>>) -> Option<Arc<Seat>> {
        std::mem::replace(&mut *self.seat.write().unwrap_or_else(PoisonError::into_inner), seat)
    }
}

impl Link {
    /// A link that leads nowhere yet.
    pub(crate) fn new(shared: &Arc<Shared>, links: &Arc<Links>, facts: Arc<Facts>) -> Arc<Self> {
        Self::with(shared, links, facts, Heritage::default())
    }

    /// The same for a session some of whose calls may be at the server already.
    pub(crate) fn with(
        shared: &Arc<Shared>,
        links: &Arc<Links>,
        facts: Arc<Facts>,
        Heritage { places, in_flight }: Heritage,
    ) -> Arc<Self> {
        let turns = places.map(|places| Box::new(Turns::succeeding(places, &shared.config.calls)));
        let config = client_config(shared, &facts);
        let lanes = (0..shared.config.calls.spread.get()).map(|_| Lane::default()).collect();
        Arc::new_cyclic(|me| Self {
            shared: Arc::clone(shared),
            links: Arc::downgrade(links),
            facts,
            config,
            credential: RwLock::default(),
            session: watch::Sender::new(None),
            turns: turns.map(OnceLock::from).unwrap_or_default(),
            lanes,
            lease: Lease::default(),
            gaps: OnceLock::new(),
            known: Known::default(),
            is_closed: AtomicBool::new(false),
            in_flight: in_flight.unwrap_or_default(),
            me: Weak::clone(me),
        })
    }

    pub(crate) fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
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

    /// The server is shown what this request of the client shows us, if it is to be shown that at all.
    pub(crate) fn show(&self, request: &Incoming) {
        let Credential::Forwarded = self.shared.config.credential else { return };
        let shown = request.http.headers.get_all(AUTHORIZATION);
        let is_new = {
            let mut credential = self.credential.write().unwrap_or_else(PoisonError::into_inner);
            let is_new = !credential.iter().eq(shown.iter());
            if is_new {
                *credential = shown.iter().cloned().collect();
            }
            is_new
        };
        if is_new {
            let headers = self.headers();
            self.lanes
                .iter()
                .filter_map(Lane::seat)
                .for_each(|seat| seat.client.set_headers(headers.clone()));
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = self.config.headers.clone();
        if let Credential::Forwarded = self.shared.config.credential {
            headers.remove(AUTHORIZATION);
            let credential = self.credential.read().unwrap_or_else(PoisonError::into_inner);
            headers.extend(credential.iter().map(|value| (AUTHORIZATION, value.clone())));
        }
        headers
    }

    /// Opens a session at this place.
    pub(crate) async fn connect(&self, lane: usize, place: Place) -> Result<Seat, Error> {
        let (url, headers, standalone) = (place.url.clone(), self.headers(), self.standalone(&place));
        let config = ClientConfig { url, headers, standalone, ..self.config.clone() };
        let owner = self.owner(lane, &place);
        let no = owner.seat;
        let client = Client::connect_over(Arc::clone(&place.transport), config, owner).await?;
        Ok(Seat::new(no, place, client))
    }

    /// Goes on with a session that was opened before. Nothing is sent.
    pub(crate) fn resume(&self, lane: usize, place: Place, session: OpenSession) -> Result<Seat, Error> {
        // Ids of the process before may still be in flight there.
        let first_id = random_number();
        let headers = self.headers();
        let standalone = if self.lease.is_ours() { self.standalone(&place) } else { Standalone::Closed };
        let config =
            ClientConfig { url: place.url.clone(), first_id, headers, standalone, ..self.config.clone() };
        let owner = self.owner(lane, &place);
        let no = owner.seat;
        let client = Client::resume_over(Arc::clone(&place.transport), &config, session, owner)?;
        Ok(Seat::new(no, place, client))
    }

    pub(crate) fn turns(&self) -> &Turns {
        self.turns.get_or_init(|| Box::new(Turns::new(&self.shared.config.calls)))
    }

    pub(crate) fn gaps(&self) -> &Gaps {
        self.gaps.get_or_init(Box::default)
    }

    /// Calls that wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.turns.get().map_or(0, |turns| turns.waiting())
    }

    /// Waits until no call is at the server, or is to be, if it takes so many at a time: the next process sends as many.
    pub(crate) async fn is_done(&self) {
        let turns = self.turns.get().filter(|_| !self.shared.servers.are_programs());
        if let Some(turns) = turns {
            turns.end().await;
        }
    }

    /// Whether the server's own stream is held. Once another upstream has the session there, it is that one's.
    fn standalone(&self, place: &Place) -> Standalone {
        let is_theirs = self.shared.is_heard_elsewhere(&place.name);
        if is_theirs { Standalone::Closed } else { self.config.standalone }
    }

    /// Listens no more to what servers send outside of calls, but for those to whom nobody else listens: a call that runs on may
    /// be asked something there.
    pub(crate) fn fall_silent(&self) {
        let seats = self.lanes.iter().filter_map(Lane::seat);
        seats
            .filter(|seat| self.shared.is_heard_elsewhere(&seat.place.name))
            .for_each(|seat| seat.client.leave_standalone());
    }

    fn owner(&self, lane: usize, place: &Place) -> LinkOwner {
        LinkOwner::new(Weak::clone(&self.me), lane, self.in_flight.seat(), place.name.clone())
    }

    /// A lane sits here from now on.
    pub(crate) fn sit(&self, lane: usize, seat: Seat) -> Arc<Seat> {
        let seat = Arc::new(seat);
        drop(self.lanes[lane].change(Some(Arc::clone(&seat))));
        if let Some(link) = self.me().filter(|_| self.is_closed()) {
            tokio::spawn(async move { link.close().await });
        }
        if self.shared.is_retired() {
            self.fall_silent();
        }
        seat
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// What a call has told the server of its session holds in all lanes. The others hear of it when it is their turn; a new
    /// one is told by the record. Resources are watched from the first alone.
    pub(crate) fn tell_other_lanes(&self, lane: usize, method: &str, params: &str) {
        let about = Members::parse(params).ok().and_then(|params| params.text("uri")).unwrap_or_default();
        let others =
            self.lanes.iter().enumerate().filter(|(no, other)| *no != lane && other.seat().is_some());
        for (_, other) in others.filter(|(no, _)| *no == 0 || method != "resources/subscribe") {
            let repeat = Repeat { method: method.to_owned(), params: Some(params.to_owned()) };
            if !other.miss(&about, repeat) {
                tracing::warn!(session = self.short(), method, "a lane was not told: it has missed too much");
            }
        }
    }

    /// Has the client answer what the server asks.
    pub(crate) async fn ask(&self, seat: u64, ask: Ask) -> Result<Bytes, ErrorObject> {
        let opened = self.opened().await.is_some();
        let rest = messages::rest_of(&ask);
        let asked = match &ask.call {
            _ if !opened => Err(Refusal::NoSession),
            Some(id) => match self.in_flight.find(seat, id).map(|call| call.ask(rest)) {
                Some(asked) => asked.await,
                None => Err(Refusal::AskWithdrawn),
            },
            None => self.ask_anywhere(seat, rest).await,
        };
        messages::answer(&asked.map_err(|refusal| errors::of_ask(&refusal))?)
    }

    /// Shows an ask of no call where the client reads. A call that ends takes with it what was asked on its stream, and this
    /// has nothing to do with it: then it is asked once more, on a stream of no call.
    async fn ask_anywhere(&self, seat: u64, rest: Bytes) -> Result<Bytes, Refusal> {
        if let Some(asked) = self.in_flight.newest(seat).map(|call| call.ask(rest.clone())) {
            match asked.await {
                Err(Refusal::AskWithdrawn) => {}
                outcome => return outcome,
            }
        }
        // Whoever waits must not keep the engine alive.
        let held = self.lease.held();
        if !matches!(held, Held::Ours(_)) {
            return Err(Refusal::Fenced);
        }
        let asked = self.session().map(|session| session.ask_under(held.fence(), rest));
        let asked = asked.ok_or(Refusal::NoSession)?.await;
        self.mind(held, &asked).await;
        asked
    }

    /// If what was said in the server's name was not taken because another process speaks in it by now, this one lets go.
    async fn mind<T>(&self, held: Held, said: &Result<T, Refusal>) {
        if let (Held::Ours(version), Err(Refusal::Fenced)) = (held, said) {
            self.lost_the_lease(version).await;
        }
    }

    /// Passes on what belongs to no call.
    pub(crate) async fn hear(&self, lane: usize, notification: Notification) {
        self.note(&notification);
        // The first lane hears of it as well.
        if lane > 0 && notification.method.ends_with("/list_changed") {
            return;
        }
        let Some((class, payload)) = messages::for_session(&notification) else { return };
        let Some(session) = self.opened().await else { return };
        let held = self.lease.held();
        if !matches!(held, Held::Ours(_)) {
            tracing::debug!(session = self.short(), "another process hears what the server says");
            return;
        }
        let said = session.notify_under(held.fence(), class, payload).await;
        drop(session);
        self.mind(held, &said).await;
        if let Err(refusal) = said {
            tracing::debug!(session = self.short(), method = notification.method, %refusal, "a notification is lost");
        }
    }

    /// Tells the client something in our own name, where it reads: on the stream of a call, or a standalone one.
    pub(crate) async fn tell(&self, session: &SessionHandle, class: Class, payload: Bytes) {
        let told = match self.in_flight.newest(u64::MAX) {
            Some(call) => call.notify(class, payload).await,
            None => session.notify(class, payload).await,
        };
        if let Err(refusal) = told {
            tracing::debug!(session = self.short(), %refusal, "the client could not be told");
        }
    }

    /// The client's session has ended without a word to this process.
    pub(crate) async fn forsake(&self) {
        if let Some(links) = self.links.upgrade() {
            drop(links.remove(&self.facts.id));
        }
        self.close().await;
    }

    /// Ends the sessions at the server.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.leave_seats().await;
    }

    async fn leave_seats(&self) {
        let left = self.take_seats();
        self.close_seats(left).await;
    }

    /// No lane sits anywhere any more. Gives where they sat.
    pub(crate) fn take_seats(&self) -> Vec<Arc<Seat>> {
        self.lanes.iter().filter_map(|lane| lane.change(None)).collect()
    }

    pub(crate) async fn close_seats(&self, seats: Vec<Arc<Seat>>) {
        for seat in seats {
            if let Err(error) = seat.client.clone().close().await {
                tracing::debug!(session = self.short(), %error, "the server was not told of a session's end");
            }
        }
    }
}

/// What the server is told: the client's own words.
fn client_config(shared: &Shared, facts: &Facts) -> ClientConfig {
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
    config
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("session", &self.short()).finish_non_exhaustive()
    }
}
