//! One call, from the client to the server and back: exactly one answer, whatever the server does.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use steadfast_client::{Answer, Boxed, CallOptions, Effect, Error, Listener, Notification, RequestId};
use steadfast_engine::{CallHandle, Class, Incoming};
use steadfast_wire::rpc::ErrorObject;
use tokio::time::Instant;

use crate::errors;
use crate::link::Link;
use crate::messages;
use crate::record::{MAX_SUBSCRIPTIONS, Record};
use crate::replicas::is_away;
use crate::seat::Seat;
use crate::vigil::fell_silent;

/// How often a call is sent before its client is told that the server comes and goes.
const MAX_ATTEMPTS: usize = 4;

/// What the client wants.
struct Request<'a> {
    method: &'a str,
    params: Option<&'a str>,
    /// The client's progress token, as JSON text.
    token: Option<String>,
}

/// Has the server answer a call.
pub(crate) async fn call(
    link: &Arc<Link>,
    call: &CallHandle,
    incoming: &Incoming,
) -> Result<Bytes, ErrorObject> {
    // It came as JSON text, so it is UTF-8.
    let params = incoming.params.as_deref().and_then(|params| std::str::from_utf8(params).ok());
    let token = params.and_then(messages::progress_token);
    let request = Request { method: &incoming.method, params, token };
    check(link, call, &request).await?;
    if !link.shared.is_retired() {
        link.mind_the_lease();
    }
    // Only a call of another node is started here: that of this node has begun with this.
    let again = call.was_given() && Box::pin(may_be_repeated(link, call, incoming)).await;
    let turn = tokio::select! {
        biased;
        // Whoever counts next has it among what this node leaves behind.
        () = link.shared.leaves_calls(), if call.may_be_left() => return Err(call.leave()),
        turn = link.turns().next(call.cancelled()) => turn?,
    };
    if call.was_given() {
        call.start(link.fence_of_calls(), again).await?;
    }
    let annotations = &link.shared.annotations;
    let generation = (request.method == "tools/list").then(|| annotations.generation(&link.facts.principal));
    let answer = match attempt_until_known(link, turn.lane, call, &request).await? {
        Answer::Result(result) => result,
        Answer::Error(error) => return Err(errors::of_server(&error)),
    };
    let lane = turn.lane;
    match (request.method, generation) {
        ("tools/call", _) => link.refresh_tools(turn, &call.session()),
        (_, Some(generation)) => {
            drop(turn);
            link.learn_tools(&call.session(), request.params, &answer, generation);
        }
        _ => drop(turn),
    }
    note(link, lane, call, &request).await;
    Ok(answer)
}

/// Whether another node may repeat a call that another node has given to this one.
async fn may_be_repeated(link: &Arc<Link>, call: &CallHandle, incoming: &Incoming) -> bool {
    let session = call.session();
    match link.shared.may_be_repeated(&session, incoming) {
        Some(known) => known,
        None => link.calls_idempotent_tool(&session, incoming.params.as_ref()).await,
    }
}

/// Sends the call; again as often as nothing of it reached anybody, and once more if it may have and that does no harm.
async fn attempt_until_known(
    link: &Arc<Link>,
    lane: usize,
    call: &CallHandle,
    request: &Request<'_>,
) -> Result<Answer, ErrorObject> {
    let mut seat =
        link.seated(lane).await.map_err(|error| told(link, call, &error, errors::of_no_session(&error)))?;
    if is_given_up(link, &seat) {
        // If nobody takes it in, it is as before.
        seat = Box::pin(healed(link, lane, &seat, call, &fell_silent())).await.unwrap_or(seat);
    }
    link.catch_up(lane, &seat).await;
    // Whether an attempt may have been delivered, which was found to do no harm.
    let mut risked = false;
    let mut attempts = 0;
    loop {
        let begun = Instant::now();
        let error = match attempt(link, &seat, call, request).await {
            Ok(answer) => {
                seat.answered();
                return Ok(answer);
            }
            Err(error) => error,
        };
        match &error {
            Error::Refused { status, .. } if is_away(*status) => seat.refused(begun),
            Error::Refused { .. } => seat.answered(),
            _ => {}
        }
        attempts += 1;
        let unknown = error.effect() == Effect::Unknown;
        let is_last = attempts == MAX_ATTEMPTS || unknown && risked || call.cancelled().is_cancelled();
        let known = link.shared.is_idempotent(&call.session(), request.method, request.params);
        let may_fare_better = is_about_the_server(&error) || has_moved(link, lane, &seat, &error);
        if is_last || !may_fare_better || unknown && known == Some(false) {
            if shows_absence(link, &seat, &error) {
                link.heal_soon(lane, &seat, &error);
            }
            let safe = risked || known == Some(true);
            return Err(told(link, call, &error, errors::of_client(&error, safe)));
        }
        // The server has to be there for another attempt, and to say whether there may be one.
        seat = match Box::pin(healed(link, lane, &seat, call, &error)).await {
            Ok(seat) => seat,
            Err(late) if !unknown => return Err(told(link, call, &late, errors::of_no_session(&late))),
            Err(_) => {
                let safe = known == Some(true);
                return Err(told(link, call, &error, errors::of_client(&error, safe)));
            }
        };
        if unknown {
            let session = call.session();
            let asked = link.may_be_sent_again(&seat, &session, request.method, request.params);
            if !Box::pin(asked).await {
                return Err(told(link, call, &error, errors::of_client(&error, false)));
            }
        }
        risked |= unknown;
        tracing::info!(session = link.short(), method = request.method, %error, "a call is tried once more");
    }
}

/// Why the call has no answer: `otherwise`, unless that is because of what the client has shown, which it is to know before
/// anything else.
fn told(link: &Link, call: &CallHandle, error: &Error, otherwise: ErrorObject) -> ErrorObject {
    let denial = errors::denial_of_call(error).filter(|_| link.shared.shows_clients());
    let Some(denial) = denial else { return otherwise };
    call.deny(denial.clone());
    denial.error
}

/// Where the lane sits when the server is there again, or elsewhere.
async fn healed(
    link: &Link,
    lane: usize,
    lost: &Arc<Seat>,
    call: &CallHandle,
    error: &Error,
) -> Result<Arc<Seat>, Error> {
    let healed = async {
        link.heal(lane, lost, error).await?;
        link.seated(lane).await
    };
    tokio::select! {
        biased;
        () = call.cancelled().cancelled() => Err(Error::Cancelled),
        seat = healed => seat,
    }
}

/// Whether the network or the server failed in a way that passes.
fn is_about_the_server(error: &Error) -> bool {
    match error {
        Error::Connect(_) | Error::Broken(_) | Error::OutcomeUnknown { .. } => true,
        Error::Refused { status, .. } => is_away(*status),
        _ => false,
    }
}

/// Whether a server that can be connected to may not be there all the same. The next call would not find out either.
fn shows_absence(link: &Link, seat: &Seat, error: &Error) -> bool {
    match error {
        Error::Refused { status, .. } => is_away(*status),
        Error::Timeout(_) => true,
        _ => is_given_up(link, seat),
    }
}

/// Whether the server has answered nothing for so long that nobody is to wait for it, and there is another one.
fn is_given_up(link: &Link, seat: &Seat) -> bool {
    let replica = seat.place.replica().filter(|replica| replica.signs.is_given_up());
    replica.is_some_and(|replica| link.shared.servers.has_other(&replica.name))
}

/// Whether a call came too late to a server that has forgotten its session: the lane sits elsewhere by now.
fn has_moved(link: &Link, lane: usize, seat: &Arc<Seat>, error: &Error) -> bool {
    let now = link.lanes[lane].seat();
    matches!(error, Error::SessionLost) && now.is_some_and(|now| !Arc::ptr_eq(&now, seat))
}

async fn attempt(
    link: &Arc<Link>,
    seat: &Seat,
    call: &CallHandle,
    request: &Request<'_>,
) -> Result<Answer, Error> {
    let ear = Arc::new(Ear {
        link: Arc::clone(link),
        call: call.clone(),
        id: OnceLock::new(),
        token: request.token.clone(),
    });
    let options = CallOptions { timeout: None, progress: request.token.is_some() };
    let errand =
        seat.client.errand(request.method, request.params, options, Arc::clone(&ear) as Arc<dyn Listener>)?;
    // Nothing was sent yet, so nothing is heard before this.
    let _ = ear.id.set(errand.id().clone());
    let _at_server = link.in_flight.enter(seat.no, errand.id(), call);
    let run = errand.run(call.cancelled());
    match link.shared.servers.wait_at(&seat.place, link.shared.config.vigil) {
        Some(waiting) => tokio::select! {
            biased;
            outcome = run => outcome,
            () = waiting.end() => Err(fell_silent()),
        },
        None => run.await,
    }
}

/// Puts what the server says of a call on the call's stream.
struct Ear {
    link: Arc<Link>,
    call: CallHandle,
    /// The call's id at the server.
    id: OnceLock<RequestId>,
    token: Option<String>,
}

impl Ear {
    fn message(&self, notification: Notification) -> Option<(Class, Bytes)> {
        self.link.note(&notification);
        messages::for_call(notification, self.id.get()?, self.token.as_deref())
    }
}

impl Listener for Ear {
    fn hear(&self, notification: Notification) -> Boxed<'_, ()> {
        // It is on its way before the future is polled, so that order does not depend on anybody's patience.
        let sent = self.message(notification).map(|(class, payload)| self.call.notify(class, payload));
        Box::pin(async move {
            if let Some(sent) = sent
                && let Err(refusal) = sent.await
            {
                tracing::debug!(%refusal, "a notification of a call is lost");
            }
        })
    }

    fn overhear(&self, notification: Notification) {
        drop(self.hear(notification));
    }

    fn taken(&self) {
        if self.link.shared.shows_clients() {
            self.call.admit();
        }
    }

    /// The client of the call is treated as the server treats its own.
    fn sent_away(&self) {
        self.call.send_reader_away();
    }
}

/// Refuses what could not be kept up after the server forgets.
async fn check(link: &Link, call: &CallHandle, request: &Request<'_>) -> Result<(), ErrorObject> {
    if request.method != "resources/subscribe" {
        return Ok(());
    }
    let record = Box::pin(Record::load(&call.session())).await.ok().flatten().unwrap_or_default();
    if record.subscriptions.len() < MAX_SUBSCRIPTIONS {
        return Ok(());
    }
    tracing::debug!(session = link.short(), "too many subscriptions");
    let message =
        format!("This session watches {MAX_SUBSCRIPTIONS} resources already. Unsubscribe from some.");
    Err(ErrorObject::internal("over_limit", message, false))
}

/// Remembers what the server was told.
async fn note(link: &Link, lane: usize, call: &CallHandle, request: &Request<'_>) {
    match request.method {
        "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
            let params = request.params.unwrap_or_default();
            let session = call.session();
            let noted = Record::change(&session, |record| record.note(request.method, params));
            let noted = Box::pin(noted).await;
            if let Err(error) = noted {
                tracing::warn!(session = link.short(), %error, "what the server was told is not written down");
            }
            link.tell_other_lanes(lane, request.method, params);
        }
        _ => {}
    }
}
