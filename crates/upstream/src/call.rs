//! One call, from the client to the server and back: exactly one answer, whatever the server does.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use steadfast_client::{Answer, Boxed, CallOptions, Effect, Error, Listener, Notification, RequestId};
use steadfast_engine::{CallHandle, Class, Incoming};
use steadfast_wire::rpc::{ErrorObject, json_string};
use tokio::time::Instant;

use crate::errors;
use crate::link::Link;
use crate::messages;
use crate::record::{MAX_SUBSCRIPTIONS, Record};
use crate::replicas::is_away;
use crate::seat::Seat;
use crate::tools::only_looks;
use crate::turns::Turn;
use crate::upstream::Shared;
use crate::vigil::fell_silent;

/// How often a call is sent before its client is told that the server comes and goes.
const MAX_ATTEMPTS: usize = 4;

/// How long the server may take to name its tools, if `timeouts.control` does not end sooner. A call may wait for it that has
/// failed already, and it keeps its turn meanwhile.
const NAMING: Duration = Duration::from_secs(10);

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
    let turn = tokio::select! {
        biased;
        // Whoever counts next has it among what this node leaves behind.
        () = link.shared.leaves_calls(), if call.may_be_left() => return Err(call.leave()),
        turn = link.turns().next(call.cancelled()) => turn?,
    };
    if call.was_given() {
        call.start(link.fence_of_calls(), link.shared.may_be_repeated(incoming)).await?;
    }
    let answer = match attempt_until_known(link, turn.lane, call, &request).await? {
        Answer::Result(result) => result,
        Answer::Error(error) => return Err(errors::of_server(&error)),
    };
    let lane = turn.lane;
    learn_the_tools(link, turn, call, &request);
    note(link, lane, call, &request, &answer).await;
    Ok(answer)
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
        let known = link.shared.is_safe(request.method, request.params);
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
        if unknown && !Box::pin(is_safe(link, &seat, request)).await {
            return Err(told(link, call, &error, errors::of_client(&error, false)));
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

/// Whether the call may be made twice, by the server's own word.
async fn is_safe(link: &Link, seat: &Seat, request: &Request<'_>) -> bool {
    let known = || link.shared.is_safe(request.method, request.params);
    ask_for_tools(&link.shared, seat, || known().is_some()).await;
    known() == Some(true)
}

/// Has the server name its tools, until enough is known or it takes too long. Gives whether it did.
async fn ask_for_tools(shared: &Shared, seat: &Seat, is_enough: impl Fn() -> bool) -> bool {
    let patience = NAMING.min(shared.config.timeouts.control);
    tokio::time::timeout(patience, page_by_page(shared, seat, is_enough)).await.unwrap_or(false)
}

async fn page_by_page(shared: &Shared, seat: &Seat, is_enough: impl Fn() -> bool) -> bool {
    let mut cursor: Option<String> = None;
    for _ in 0..shared.config.limits.pages {
        if is_enough() {
            return true;
        }
        let params = cursor.as_ref().map(|cursor| format!(r#"{{"cursor":{}}}"#, json_string(cursor)));
        let Ok(list) = seat.client.call("tools/list", params.as_deref()) else { return false };
        let answer = match list.answer().await {
            Ok(Answer::Result(list)) => list,
            // It has no tools to name.
            Ok(Answer::Error(_)) => return true,
            Err(_) => return false,
        };
        cursor = shared.tools.learn(&answer).next;
        if cursor.is_none() {
            break;
        }
    }
    true
}

/// If another process may have to make calls again that this one leaves behind, it has to be known beforehand which of them may
/// be, and not every client asks for the list. The server is asked in the turn of the call, which ends with it: a server that
/// takes one call at a time takes no list beside it.
fn learn_the_tools(link: &Link, turn: Turn, call: &CallHandle, request: &Request<'_>) {
    let shared = &link.shared;
    if request.method != "tools/call"
        || shared.is_safe(request.method, request.params).is_some()
        || !call.session().engine().shares_its_store()
        || !shared.tools.is_to_be_asked()
    {
        return;
    }
    let Some(seat) = link.lanes[turn.lane].seat() else { return shared.tools.was_not_told() };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        if !ask_for_tools(&shared, &seat, || false).await {
            shared.tools.was_not_told();
        }
        drop(turn);
    });
}

async fn attempt(
    link: &Arc<Link>,
    seat: &Seat,
    call: &CallHandle,
    request: &Request<'_>,
) -> Result<Answer, Error> {
    let ear = Arc::new(Ear {
        shared: Arc::clone(&link.shared),
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
    shared: Arc<Shared>,
    call: CallHandle,
    /// The call's id at the server.
    id: OnceLock<RequestId>,
    token: Option<String>,
}

impl Ear {
    fn message(&self, notification: Notification) -> Option<(Class, Bytes)> {
        self.shared.note(&notification);
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
        if self.shared.shows_clients() {
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

/// Remembers what the server was told, and what it told.
async fn note(link: &Link, lane: usize, call: &CallHandle, request: &Request<'_>, result: &Bytes) {
    match request.method {
        "tools/list" => drop(link.shared.tools.learn(result)),
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

/// The tool that a call names, without a copy of all the rest.
pub(crate) fn tool_name(params: Option<&str>) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    serde_json::from_str(params?).ok().map(|Named { name }| name)
}

/// Whether a call may be made twice; `None` if the server has to be asked.
pub(crate) fn is_safe_by(tools: &crate::tools::Tools, method: &str, params: Option<&str>) -> Option<bool> {
    match method {
        "tools/call" => tools.is_safe(&tool_name(params)?),
        method => Some(only_looks(method)),
    }
}
