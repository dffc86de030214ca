//! Running calls: each ends in exactly one answer.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use steadfast_session::command::{Append, AppendOutcome, Fence, Finish, Finished, Target};
use steadfast_session::{CallNo, Class, Step};
use steadfast_store::{StoreError, StoreExt};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{RequestId, planted};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::admission::{Count, Counted};
use crate::asks::AskHandle;
use crate::backend::{Denial, Incoming, response};
use crate::engine::Engine;
use crate::errands::is_mail;
use crate::handle::SessionHandle;
use crate::live::{LiveSession, Running};
use crate::reconcile::not_started;
use crate::refusal::Refusal;
use crate::tail::Verdict;

/// How many answers that the store did not take one sweep offers again.
const OFFERED_AT_ONCE: usize = 1024;

/// A call that this node runs, as its backend sees it.
#[derive(Clone, Debug)]
pub struct CallHandle {
    engine: Arc<Engine>,
    session: Arc<LiveSession>,
    no: CallNo,
    running: Running,
}

impl CallHandle {
    pub(crate) fn new(engine: Arc<Engine>, session: &Arc<LiveSession>, no: CallNo, running: Running) -> Self {
        Self { engine, session: Arc::clone(session), no, running }
    }

    /// The id that the client gave it.
    pub fn id(&self) -> &RequestId {
        &self.running.id
    }

    /// Cancelled when the client cancels, the deadline passes, or the session ends.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.running.cancel
    }

    pub fn facts(&self) -> &Arc<steadfast_session::Facts> {
        self.session.facts()
    }

    pub fn session(&self) -> SessionHandle {
        self.engine.handle(&self.session)
    }

    /// What the backend makes of the session's facts; made once while the session is busy.
    pub fn keepsake<T: Send + Sync + 'static>(
        &self,
        make: impl FnOnce(&steadfast_session::Facts) -> T,
    ) -> Arc<T> {
        self.session.keepsake(make)
    }

    /// Sends a notification on this call's stream.
    pub fn notify(
        &self,
        class: Class,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static + use<> {
        self.engine.append(&self.session, Target::Call(self.no), class, payload, None)
    }

    /// Says that it begins, before anything is done that must not be done twice. Another node may have given it to this one, and
    /// does it if this one goes before that; with `again` also if it goes after that. It begins under the lease that the fence is
    /// of. After an error it must not begin: it goes to whoever has the lease, if anybody has.
    pub async fn start(&self, fence: Option<Fence>, again: bool) -> Result<(), ErrorObject> {
        if !self.was_given() || again && fence.is_none() {
            return Ok(());
        }
        self.engine.start_given(&self.session, self.no, fence, again).await
    }

    /// Whether another node has given it to this one.
    pub fn was_given(&self) -> bool {
        self.running.given
    }

    /// Whether another node has given it to this one and may do it itself.
    pub fn may_be_left(&self) -> bool {
        self.was_given() && self.session.may_be_left(self.no)
    }

    /// Leaves a call that may be left to whoever comes after this node. Its backend ends it with this error, which nobody gets.
    pub fn leave(&self) -> ErrorObject {
        self.session.left(self.no);
        ErrorObject::internal("not_started", "The call is left to another node.", true)
    }

    /// The server has nothing against the credentials of the call's client, so nobody needs to wait for its word on them any more.
    pub fn admit(&self) {
        self.judge(Verdict::Admitted);
    }

    /// The server wants other credentials of the call's client. If nothing has been sent to that one yet, it is told by the head of
    /// the response; the backend ends the call with the error all the same.
    pub fn deny(&self, denial: Denial) {
        self.judge(Verdict::Denied(Box::new(denial)));
    }

    fn judge(&self, verdict: Verdict) {
        if let Some(tail) = self.session.tail(self.running.stream) {
            tail.judge(verdict);
        }
    }

    /// Ends the call with an error, whatever its backend does. It has one answer: if it has that already, nothing happens.
    pub async fn fail(&self, error: &ErrorObject) {
        self.engine.fail(&self.session, self.no, &self.running, error).await;
    }

    pub(crate) async fn finish(&self, payload: Bytes) {
        self.engine.finish(&self.session, self.no, payload).await;
    }

    /// Sends a request on this call's stream, and waits for the client's answer. `rest` is the request's JSON text from
    /// `"method"` on. If there is room, the request is on its way when this returns and keeps its place among the
    /// messages of the call.
    pub fn ask(&self, rest: Bytes) -> AskHandle {
        self.engine.ask(&self.session, Target::Call(self.no), rest, None)
    }

    /// Ends the connection that reads this call's stream; its client comes back for the rest. `false` if it could not:
    /// it has been given no event to come back from, or waits for plain JSON.
    pub fn send_reader_away(&self) -> bool {
        if self.running.resumable
            && let Some(tail) = self.session.tail(self.running.stream)
        {
            tail.tell_to_leave();
        }
        self.running.resumable
    }
}

/// A call that is in flight and that nobody runs yet. Dropped, it is answered with an error: its client went away
/// before it was started, or what came with it was refused.
#[derive(Debug)]
pub struct BegunCall(Option<(CallHandle, Counted)>);

impl BegunCall {
    pub(crate) fn new(call: CallHandle) -> Self {
        let counted = Count::one_more(&call.engine.admission.calls);
        Self(Some((call, counted)))
    }

    pub(crate) fn cancelled(&self) -> CancellationToken {
        self.0.as_ref().map(|(call, _)| call.running.cancel.clone()).unwrap_or_default()
    }

    /// In which session it is, and under which number.
    pub(crate) fn place(&self) -> Option<(Arc<LiveSession>, CallNo)> {
        self.0.as_ref().map(|(call, _)| (Arc::clone(&call.session), call.no))
    }

    /// Whoever takes the call has to answer it, and holds the count until then.
    pub(crate) fn take(mut self) -> Option<(CallHandle, Counted)> {
        self.0.take()
    }
}

impl Drop for BegunCall {
    fn drop(&mut self) {
        let Some((CallHandle { engine, session, no, running }, counted)) = self.0.take() else { return };
        engine.clone().spawn(async move {
            let Finish { payload, .. } = not_started(no, &running.id);
            engine.finish(&session, no, payload).await;
            drop(counted);
        });
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is left of a call that was started. Dropped, it goes on in a task of its own.
#[must_use = "dropped, it costs a task"]
pub struct Unfinished(Option<(Arc<Engine>, Work)>);

impl Unfinished {
    /// Does what can be done now. Whoever polls it need not wait for it: the answer goes where answers go.
    pub fn poll(&mut self, context: &mut Context<'_>) {
        if let Some((_, work)) = &mut self.0
            && work.as_mut().poll(context).is_ready()
        {
            self.0 = None;
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some((engine, work)) = self.0.take() else { return };
        // The call's timers and sockets belong to the runtime that has polled it so far.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(work)),
            Err(_) => engine.spawn(work),
        }
    }
}

impl std::fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unfinished").field("is_over", &self.0.is_none()).finish()
    }
}

impl Engine {
    /// Runs a call to its end, whatever happens to the connection. A backend that answers at once does so before
    /// this returns, without a task of its own; what is left of another can be driven by whoever waits for its answer.
    pub async fn run(&self, call: BegunCall, request: Incoming) -> Unfinished {
        let Some((call, counted)) = call.take() else { return Unfinished(None) };
        if call.running.cancel.is_cancelled() {
            // Answered, cancelled or lost before it was started: whoever did that has seen to its client.
            return Unfinished(None);
        }
        let engine = self.arc();
        let work: Work = Box::pin(async move {
            // Only what others have given can be somebody else's to run.
            drop(engine.run_to_end(call, request, counted).await);
        });
        let mut rest = Unfinished(Some((self.arc(), work)));
        std::future::poll_fn(|context| {
            rest.poll(context);
            Poll::Ready(())
        })
        .await;
        rest
    }

    /// Runs a call that did not come here, in the task of whoever calls this. Gives it back if it is somebody else's to run.
    pub(crate) async fn run_taken(&self, call: BegunCall, request: Incoming) -> Option<BegunCall> {
        let (call, counted) = call.take()?;
        if call.running.cancel.is_cancelled() {
            return None;
        }
        if is_mail(&call.running.id, &request.method) {
            let started = call.start(None, false).await;
            if started.is_ok() {
                let session = call.session();
                // A notification has no answer to carry the error; a panic has been logged.
                let _ = catch_panic(async { self.backend().notify(session, request).await }).await;
            }
            let payload = response(&call.running.id, &started.map(|()| Bytes::from_static(b"{}")));
            self.finish(&call.session, call.no, payload).await;
            drop(counted);
            None
        } else {
            self.arc().run_to_end(call, request, counted).await
        }
    }

    /// Gives a call back that has not begun and is somebody else's to run.
    async fn run_to_end(
        self: Arc<Self>,
        call: CallHandle,
        request: Incoming,
        counted: Counted,
    ) -> Option<BegunCall> {
        // Inside the guard from the first step on: a backend may run the user's code before it gives a future.
        let work = catch_panic(async { self.backend().call(call.clone(), request).await });
        let answer = match unless_cancelled(work, &call.running.cancel, self.options().wind_down).await {
            Some(answer) => answer.and_then(|answer| answer),
            None => Err(ErrorObject::internal("cancelled", "The call was cancelled.", true)),
        };
        if call.running.given && !call.session.runs(call.no) {
            // It is left to another node, or somebody has ended it.
            return None;
        }
        if self.is_draining() && call.session.was_released(call.no) {
            // Another node runs it again and answers it.
            return None;
        }
        if call.running.given && call.session.was_misrouted(call.no) {
            return Some(BegunCall(Some((call, counted))));
        }
        let mut payload = response(&call.running.id, &answer);
        if planted("bare-id") {
            static BY_ID: Mutex<BTreeMap<RequestId, Bytes>> = Mutex::new(BTreeMap::new());
            let mut by_id = BY_ID.lock().unwrap_or_else(PoisonError::into_inner);
            let before = by_id.insert(call.running.id.clone(), payload.clone());
            payload = before.unwrap_or(payload);
        }
        self.finish(&call.session, call.no, payload).await;
        drop(counted);
        None
    }

    /// Answers a call, once. Offering the same answer again is safe, so an outcome that is not known is resolved
    /// by asking again. An answer that the store does not take is set aside for [`Engine::offer_answers`].
    pub(crate) async fn finish(&self, session: &Arc<LiveSession>, no: CallNo, payload: Bytes) {
        // Whoever was first has the word.
        let payload = session.kept_answer(no).unwrap_or(payload);
        if let Err(error) = self.patiently(|| self.finish_once(session, no, payload.clone())).await {
            tracing::error!(session = %session.id().short(), %error, "an answer cannot be stored; it is kept");
            session.keep_answer(no, payload);
        }
    }

    async fn finish_once(
        &self,
        session: &Arc<LiveSession>,
        call: CallNo,
        payload: Bytes,
    ) -> Result<(), StoreError> {
        let finished = self.store().run(session.id(), Finish { call, payload }, self.now()).await?;
        if finished == Finished::NoSession {
            self.lost(session);
        }
        if let Some(call) = session.finished(call) {
            call.cancel.cancel();
        }
        Ok(())
    }

    /// Offers the store again what it did not take, a bounded number of answers at a time.
    pub(crate) async fn offer_answers(&self, sessions: &[Arc<LiveSession>]) {
        let kept = sessions.iter().flat_map(|session| {
            session.kept_answers().into_iter().map(move |(no, answer)| (session, no, answer))
        });
        for (session, no, answer) in kept.take(OFFERED_AT_ONCE) {
            if self.finish_once(session, no, answer).await.is_err() {
                // It is not ready yet for others, either.
                return;
            }
        }
    }

    /// Sends a command that may be repeated until the store takes it or patience ends.
    pub async fn patiently<T, F>(&self, mut send: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_millis(20);
        loop {
            match send().await {
                Err(_) if waited < self.options().finish_patience => {
                    tokio::time::sleep(pause).await;
                    waited += pause;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                outcome => return outcome,
            }
        }
    }

    /// Answers a call with an explicit error in place of its backend.
    pub(crate) async fn fail(
        &self,
        session: &Arc<LiveSession>,
        no: CallNo,
        call: &Running,
        error: &ErrorObject,
    ) {
        self.finish(session, no, error.to_message(Some(&call.id)).into()).await;
    }

    /// The same for whoever has no time to wait for the store.
    pub(crate) async fn fail_soon(
        &self,
        session: &Arc<LiveSession>,
        no: CallNo,
        call: &Running,
        error: &ErrorObject,
    ) {
        let payload = Bytes::from(error.to_message(Some(&call.id)));
        if self.finish_once(session, no, payload.clone()).await.is_err() {
            session.keep_answer(no, payload);
        }
    }

    /// The command goes to the store before this returns, so messages keep the order in which they were sent even
    /// if their outcomes are awaited in another.
    pub(crate) fn append(
        &self,
        session: &Arc<LiveSession>,
        target: Target,
        class: Class,
        payload: Bytes,
        fence: Option<Fence>,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static + use<> {
        let append = Append { target, class, payload, fence };
        let reply = self.store().apply(session.id(), append.into_command(), self.now());
        let (engine, session) = (self.arc(), Arc::clone(session));
        async move {
            match Append::outcome(reply.await?) {
                Some(AppendOutcome::Appended { .. }) => Ok(()),
                Some(AppendOutcome::Full(limit)) => Err(Refusal::OverLimit(limit)),
                Some(AppendOutcome::Fenced) => Err(Refusal::Fenced),
                Some(AppendOutcome::NoSession) | None => Err(engine.lost(&session)),
            }
        }
    }
}

/// `None` if the work was cancelled and did not wind down in time.
pub(crate) async fn unless_cancelled<T>(
    work: impl Future<Output = T>,
    cancel: &CancellationToken,
    wind_down: Duration,
) -> Option<T> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return Some(done),
        () = cancel.cancelled() => {}
    }
    tokio::time::timeout(wind_down, work).await.ok()
}

/// Turns a panic of the backend into an error that a client can read. The panic itself is logged.
pub(crate) async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, ErrorObject> {
    guarded(work).await.map_err(|panic| {
        tracing::error!(%panic, "the handler panicked");
        ErrorObject::internal(
            "handler_panicked",
            "The server's handler failed while it worked on this request.",
            false,
        )
    })
}

/// The text of the panic, if the work panics.
pub(crate) async fn guarded<T>(work: impl Future<Output = T>) -> Result<T, String> {
    struct Guarded<F>(F);
    impl<F: Future + Unpin> Future for Guarded<F> {
        type Output = Result<F::Output, String>;
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            // The work is dropped after a panic and never polled again, so nobody sees what it left half done.
            let poll = std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(context)));
            match poll {
                Ok(poll) => poll.map(Ok),
                Err(panic) => Poll::Ready(Err(panic_text(&*panic))),
            }
        }
    }
    Guarded(pin!(work)).await
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no message)").to_owned()
}
