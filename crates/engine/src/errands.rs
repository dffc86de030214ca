//! Calls that did not come to this node and that it runs all the same: another node gave them to it, or is gone and has left
//! them to it.
//!
//! Such a call is in the session, with what it asks for. Whoever is told, or looks, finds it among what it holds, and runs it
//! as if it had just come. The answer goes where answers go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use steadfast_session::command::{Fence, Pass, Passed, Start, Started};
use steadfast_session::{CallNo, Errand, NodeId, SessionId};
use steadfast_store::StoreExt;
use steadfast_wire::RequestId;
use steadfast_wire::members::Members;
use steadfast_wire::rpc::{ErrorObject, json_string};
use tokio_util::sync::CancellationToken;

use crate::admission::Count;
use crate::backend::Incoming;
use crate::begin::ROUTES;
use crate::calls::{BegunCall, CallHandle, catch_panic};
use crate::engine::Engine;
use crate::handle::SessionHandle;
use crate::live::{LiveSession, Running};
use crate::refusal::Refusal;
use crate::rota::Rota;

/// What the ids of our own calls begin with that bring a notification to another node.
const MAIL: &str = "steadfast/mail/";

/// Whether a call is such a one.
pub(crate) fn is_mail(id: &RequestId, method: &str) -> bool {
    matches!(id, RequestId::Text(id) if id.starts_with(MAIL)) && method.starts_with("notifications/")
}

/// Sessions in which there is something to run of which this node may not know yet. No more than there are sessions.
#[derive(Debug, Default)]
pub(crate) struct Rumours {
    heard: Mutex<Heard>,
    rota: Rota,
}

#[derive(Debug, Default)]
struct Heard {
    /// How many there ever were.
    count: u64,
    /// The last one of each session, by its number.
    last: BTreeMap<SessionId, u64>,
}

impl Rumours {
    fn hear(&self, session: SessionId) {
        let mut heard = self.heard();
        heard.count += 1;
        let number = heard.count;
        heard.last.insert(session, number);
    }

    /// Some that nobody has followed up yet.
    fn some(&self) -> Vec<SessionId> {
        let all = self.heard().last.keys().copied().collect();
        self.rota.next(all, |id| *id)
    }

    fn last(&self, session: SessionId) -> Option<u64> {
        self.heard().last.get(&session).copied()
    }

    /// Somebody has looked because of this one. A later one calls for another look.
    fn settle(&self, session: SessionId, number: u64) {
        let mut heard = self.heard();
        if heard.last.get(&session) == Some(&number) {
            heard.last.remove(&session);
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept of a request: its method and its parameters. Nothing of the HTTP request, which may carry secrets.
pub(crate) fn text_of(request: &Incoming) -> Bytes {
    let mut text = format!(r#"{{"method":{}"#, json_string(&request.method)).into_bytes();
    if let Some(params) = &request.params {
        text.extend_from_slice(br#","params":"#);
        text.extend_from_slice(params);
    }
    text.push(b'}');
    text.into()
}

/// Reads what [`text_of`] wrote.
fn request_of(text: &Bytes) -> Option<Incoming> {
    let members = Members::parse(std::str::from_utf8(text).ok()?).ok()?;
    let method = members.text("method")?;
    let params = members.get("params").map(|params| Bytes::from(params.to_owned()));
    let (parts, ()) = http::Request::new(()).into_parts();
    Some(Incoming { method, params, http: Arc::new(parts) })
}

impl Engine {
    /// There is something to run in a session, which this node may have nothing to do with so far.
    pub(crate) fn run_errands_soon(&self, session: SessionId) {
        self.rumours.hear(session);
        let engine = self.arc();
        self.spawn(async move { engine.follow(session).await });
    }

    /// Looks again where it was not possible before.
    pub(crate) async fn follow_rumours(&self) {
        self.for_each(self.rumours.some(), |engine, session| async move { engine.follow(session).await })
            .await;
    }

    async fn follow(&self, id: SessionId) {
        let Some(rumour) = self.rumours.last(id) else { return };
        let looked = async {
            let session = self.find(id, None).await?;
            self.look_in_turn(&session).await.map_err(Refusal::from)
        };
        match looked.await {
            Ok(true) | Err(Refusal::NoSession) => self.rumours.settle(id, rumour),
            // Somebody else looks, and may fail.
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(session = %id.short(), %error, "calls of other nodes cannot be looked at yet");
            }
        }
    }

    /// Runs what the store holds for this node, but for what runs already.
    pub(crate) fn run_errands(&self, session: &Arc<LiveSession>, errands: Vec<Errand>) {
        let deadline = self.now().plus(self.options().call_deadline);
        let primes = session.facts().revision.primes_streams();
        let new = session.take_errands(errands, |errand| Running {
            id: errand.id.clone(),
            stream: errand.stream,
            deadline,
            resumable: primes && !errand.answer_only,
            given: true,
            again: errand.again,
            is_misrouted: false,
            is_released: false,
            cancel: CancellationToken::new(),
        });
        for (errand, running) in new {
            let call = BegunCall::new(CallHandle::new(self.arc(), session, errand.call, running));
            tracing::info!(session = %session.id().short(), call = %errand.call, "a call of another node is run here");
            let engine = self.arc();
            self.spawn(async move {
                match request_of(&errand.request) {
                    Some(request) => engine.start_taken(call, request).await,
                    None => engine.refuse_taken(call).await,
                }
            });
        }
    }

    /// Has the backend run a call, which says when it begins ([`CallHandle::start`]). By now it may be another node's to run: then it
    /// goes there.
    async fn start_taken(&self, mut call: BegunCall, request: Incoming) {
        for _ in 0..ROUTES {
            let Some((session, no)) = call.place() else { return };
            let handle = self.handle(&session);
            // The backend takes upon itself what it needs. If it panics, its call will show what is the matter.
            let route = catch_panic(self.route(&handle, &request)).await.unwrap_or_default();
            match route.at.filter(|node| *node != self.node()) {
                None => match self.run_taken(call, request.clone()).await {
                    Some(misrouted) => call = misrouted,
                    None => return,
                },
                Some(to) => {
                    if self.hand_on(&session, no, to, route.fence).await {
                        // It is answered there.
                        drop(call.take());
                        return;
                    }
                }
            }
        }
        self.refuse_taken(call).await;
    }

    /// Gives a call that was given to this node to another. `false` if that one is not to have it, either, as far as is known.
    async fn hand_on(
        &self,
        session: &Arc<LiveSession>,
        call: CallNo,
        to: NodeId,
        fence: Option<Fence>,
    ) -> bool {
        let pass = Pass { call, node: self.node(), to, fence };
        match self.patiently(|| self.store().run(session.id(), pass.clone(), self.now())).await {
            Ok(Passed::Passed | Passed::Gone | Passed::NoSession) => {
                tracing::info!(session = %session.id().short(), %call, "a call of another node is passed on");
                session.left(call);
                session.await_others();
                true
            }
            Ok(Passed::Fenced) => {
                pass.fence.iter().for_each(|fence| self.backend().misrouted(session.facts(), fence));
                false
            }
            Err(error) => {
                tracing::warn!(session = %session.id().short(), %error, "a call of another node cannot be passed on");
                false
            }
        }
    }

    /// Says that a call of another node begins here, unless somebody has taken it away meanwhile, or the lease that it is run under.
    /// `again`: others may do it as before.
    pub(crate) async fn start_given(
        &self,
        session: &Arc<LiveSession>,
        no: CallNo,
        fence: Option<Fence>,
        again: bool,
    ) -> Result<(), ErrorObject> {
        let start = Start { call: no, node: self.node(), again, fence };
        match self.patiently(|| self.store().run(session.id(), start.clone(), self.now())).await {
            Ok(Started::Started) => {
                if !again {
                    session.started(no);
                }
                Ok(())
            }
            Ok(Started::Fenced) => {
                start.fence.iter().for_each(|fence| self.backend().misrouted(session.facts(), fence));
                session.misrouted(no);
                Err(ErrorObject::internal("not_started", "The call is another node's to run.", true))
            }
            Ok(Started::Gone | Started::NoSession) => {
                // Whoever did that has seen to its client.
                session.stopped(&[no]);
                Err(ErrorObject::internal("cancelled", "The call is not this node's any more.", true))
            }
            Err(error) => {
                tracing::warn!(session = %session.id().short(), %error, "a call of another node cannot be begun");
                Err(not_handed_over())
            }
        }
    }

    pub(crate) async fn belongs_elsewhere(&self, session: &SessionHandle, request: &Incoming) -> bool {
        self.route(session, request).await.at.is_some_and(|node| node != self.node())
    }

    /// Gives a notification to the node that it has to go to: as a call of our own, which that node answers when the backend has
    /// it.
    pub(crate) async fn mail(
        &self,
        session: &Arc<LiveSession>,
        notification: Incoming,
    ) -> Result<(), Refusal> {
        let id = RequestId::text(format!("{MAIL}{}", self.entropy().node_id()));
        // It was taken from its client, whoever drains meanwhile.
        let entered = Count::one_more(&self.admission.entering);
        let requests = std::slice::from_ref(&notification);
        let posted = self.begin_entered(session, vec![id], requests, false, entered).await?;
        for call in posted.calls {
            // It belongs here by now.
            drop(self.run_taken(call, notification.clone()).await);
        }
        posted.cursor.read_out().await;
        Ok(())
    }

    /// Another version of this program wrote it, or nobody did.
    async fn refuse_taken(&self, call: BegunCall) {
        let Some((call, counted)) = call.take() else { return };
        call.finish(not_handed_over().to_message(Some(call.id())).into()).await;
        drop(counted);
    }
}

fn not_handed_over() -> ErrorObject {
    ErrorObject::internal("not_started", "The call could not be handed over.", true)
}

#[cfg(test)]
mod tests {
    use steadfast_session::{Facts, StreamNo, Time};

    use super::*;

    #[test]
    fn a_request_is_kept_without_what_came_with_it() {
        let request = http::Request::builder().header("authorization", "Bearer secret").body(()).unwrap();
        let http = Arc::new(request.into_parts().0);
        for params in [None, Some(Bytes::from_static(br#"{ "name":"a\"b", "n":1.0 }"#))] {
            let incoming = Incoming { method: "tools/\"call".to_owned(), params, http: Arc::clone(&http) };
            let text = text_of(&incoming);
            assert!(!String::from_utf8_lossy(&text).contains("secret"));
            let again = request_of(&text).unwrap();
            assert_eq!((again.method, again.params), (incoming.method, incoming.params));
            assert!(again.http.headers.is_empty());
        }
        assert!(request_of(&Bytes::from_static(b"{}")).is_none());
    }

    #[test]
    fn a_rumour_is_settled_by_a_look_that_came_after_it() {
        let (rumours, id) = (Rumours::default(), SessionId::from_random([1; SessionId::BYTES]));
        rumours.hear(id);
        let first = rumours.last(id).unwrap();
        rumours.hear(id);
        rumours.settle(id, first);
        assert_eq!(rumours.some(), [id], "heard again meanwhile");
        let second = rumours.last(id).unwrap();
        rumours.settle(id, second);
        rumours.hear(id);
        rumours.settle(id, second);
        assert_eq!(rumours.some(), [id], "heard anew meanwhile");
    }

    /// A look at the store and the end of a call cross each other.
    #[test]
    fn an_errand_that_ends_while_somebody_looks_is_not_run_again() {
        let facts = Facts {
            id: SessionId::from_random([1; SessionId::BYTES]),
            principal: steadfast_session::Principal::anonymous(),
            revision: steadfast_wire::Revision::LATEST_LEGACY,
            initialize: Bytes::new(),
            opened_at: Time(0),
        };
        let session = LiveSession::new(Arc::new(facts));
        let (call, id, stream) = (CallNo(3), RequestId::Number(1), StreamNo(1));
        let held = || {
            vec![Errand {
                call,
                id: id.clone(),
                stream,
                answer_only: false,
                request: Bytes::new(),
                again: true,
            }]
        };
        let take = |held| {
            let running = |errand: &Errand| Running {
                id: errand.id.clone(),
                stream: errand.stream,
                deadline: Time(9),
                resumable: true,
                given: true,
                again: errand.again,
                is_misrouted: false,
                is_released: false,
                cancel: CancellationToken::new(),
            };
            session.take_errands(held, running).len()
        };
        assert_eq!((take(held()), take(held())), (1, 0));
        session.finished(call);
        assert_eq!(take(held()), 0, "the store was asked before it ended");
        assert_eq!((take(Vec::new()), take(held())), (0, 1), "it is remembered for as long as it has to be");
        assert!(session.may_be_left(call));
        session.left(call);
        assert_eq!(
            (take(held()), session.runs(call)),
            (0, false),
            "what is left to others is not taken again"
        );
    }
}
