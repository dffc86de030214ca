//! A store that fails. The client gets its answer, once, or is told to try again; never two, never
//! none.

use std::sync::Arc;

use steadfast::Builder;
use steadfast::SessionEventKind::Detached;
use steadfast::store::testing::{Fault, Faults, FaultyStore, Operation};
use steadfast_session::{Command, Rules};

use crate::support::session::said;
use crate::support::{Backing, Host, Reply, Request, Session, TestHandler, Value, json, within};

crate::on_every_store!(
    a_call_that_is_not_begun_can_be_sent_again,
    a_call_that_is_begun_and_not_known_to_be_is_served_once,
    a_call_that_stays_unknown_does_not_block_its_id,
    an_answer_is_offered_until_it_is_taken,
    an_answer_of_the_client_is_taken_once,
    a_reader_whom_the_store_fails_comes_back,
    a_reader_gets_the_end_with_the_last_event,
    a_broken_connection_is_recorded_in_the_end,
    a_resumed_stream_that_is_not_known_to_be_is_read,
    every_other_request_can_be_sent_again,
    random_faults_lose_nothing_and_double_nothing,
);

/// A host whose store fails on command.
pub(crate) struct Faulty {
    pub(crate) host: Host,
    pub(crate) faults: Faults,
}

pub(crate) async fn faulty(backing: Backing) -> Faulty {
    faulty_with(backing, |builder| builder).await
}

pub(crate) async fn faulty_with(
    backing: Backing,
    configure: impl Fn(Builder<TestHandler>) -> Builder<TestHandler> + Send + Sync + 'static,
) -> Faulty {
    let place = backing.place();
    let store = Arc::new(FaultyStore::over(place.open(Rules::default())));
    let faults = store.faults.clone();
    let configure =
        move |builder: Builder<TestHandler>| configure(builder.custom_store(Arc::clone(&store) as _));
    Faulty { host: Host::start_on(place, configure).await, faults }
}

/// Strikes the next commands of one kind, one after the other.
pub(crate) fn strike(faults: &Faults, chosen: fn(&Command) -> bool, with: &[Fault]) {
    for fault in with {
        let of_kind =
            move |operation: Operation<'_>| matches!(operation, Operation::Apply(_, c) if chosen(c));
        faults.push_for(of_kind, fault.clone());
    }
}

pub(crate) fn assert_try_again(reply: &Reply) {
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{}", reply.text());
    assert_eq!(reply.json()["error"]["data"], json!({"reason": "store_unavailable", "retryable": true}));
}

/// Sends a request until it is served.
async fn insist(request: Request) -> Reply {
    let trying = async {
        loop {
            let reply = request.send().await;
            // While an earlier attempt is being undone, its id is taken.
            if !matches!(reply.status, 503 | 400) {
                return reply;
            }
        }
    };
    within("a store that works again", trying).await
}

async fn a_call_that_is_not_begun_can_be_sent_again(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    let call = session.tool(1, "steps", json!({"steps": ["mark:ran"], "text": "served"}));
    strike(&faults, |c| matches!(c, Command::Begin(_)), &[Fault::BeforeCommit]);
    assert_try_again(&call.send().await);
    assert_eq!(host.gates.count("ran"), 0);
    assert_eq!(said(&call.send().await.answer()), "served");
    assert_eq!((host.gates.count("ran"), faults.injected()), (1, 1));
}

async fn a_call_that_is_begun_and_not_known_to_be_is_served_once(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    for (round, times) in [1, 2].into_iter().enumerate() {
        let unknown = vec![Fault::AfterCommit; times];
        strike(&faults, |c| matches!(c, Command::Begin(_)), &unknown);
        let reply = session.tool(1, "steps", json!({"steps": ["progress", "mark:ran"]})).send().await;
        assert_eq!((reply.status, reply.messages().len()), (200, 2));
        assert_eq!(host.gates.count("ran"), round + 1);
    }
}

async fn a_call_that_stays_unknown_does_not_block_its_id(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    let call = session.tool(1, "steps", json!({"steps": ["mark:ran"], "text": "served"}));
    strike(&faults, |c| matches!(c, Command::Begin(_)), &vec![Fault::AfterCommit; 3]);
    assert_try_again(&call.send().await);
    assert_eq!(said(&insist(call).await.answer()), "served");
    assert_eq!(host.gates.count("ran"), 1);
}

async fn an_answer_is_offered_until_it_is_taken(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    use Fault::{AfterCommit, BeforeCommit};
    for plan in [vec![BeforeCommit], vec![AfterCommit], vec![BeforeCommit, BeforeCommit, AfterCommit]] {
        strike(&faults, |c| matches!(c, Command::Finish(_)), &plan);
        let reply = session.tool(1, "echo", json!({"text": "once"})).send().await;
        assert_eq!(reply.answers().iter().map(said).collect::<Vec<_>>(), ["once"], "{plan:?}");
        let priming = reply.frames()[0].id.clone().unwrap();
        let again = session.resume(&priming).send().await;
        assert_eq!(again.answers().len(), 1, "{plan:?}");
    }
    assert_eq!(faults.injected(), 5);
}

async fn an_answer_of_the_client_is_taken_once(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    for (fault, expect) in [(Fault::BeforeCommit, 503), (Fault::AfterCommit, 202)] {
        let mut stream = session.tool(1, "ask", json!({"method": "roots/list"})).stream().await;
        let ask = stream.message().await["id"].clone();
        strike(&faults, |c| matches!(c, Command::Answer(_)), &[fault]);
        assert_eq!(session.answer(&ask, json!({"roots": []})).await.status, expect);
        let again = session.answer(&ask, json!({"roots": []})).await.status;
        assert_eq!(again, if expect == 503 { 202 } else { 400 });
        assert_eq!(stream.messages().await.iter().map(said).collect::<Vec<_>>(), [r#"{"roots":[]}"#]);
    }
}

async fn a_reader_whom_the_store_fails_comes_back(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    let whole = session.tool(1, "progress", json!({"n": 3})).send().await.frames();
    faults.push_for(|operation| matches!(operation, Operation::Read(..)), Fault::BeforeCommit);
    let priming = whole[0].id.as_deref().unwrap();
    let failed = session.resume(priming).send().await;
    assert_eq!((failed.status, failed.messages().len()), (200, 0));
    assert_eq!(failed.frames().last().unwrap().retry, Some(1000), "it is told to come back");
    let messages = session.resume(priming).send().await.messages();
    assert_eq!(messages, whole.iter().filter_map(|frame| frame.message()).collect::<Vec<Value>>());
}

/// A store that goes away after the answer was read does not keep its reader waiting for the end.
async fn a_reader_gets_the_end_with_the_last_event(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    let whole = session.tool(1, "progress", json!({"n": 3})).send().await.frames();
    let mut reads = 0;
    faults.script(move |operation| {
        reads += usize::from(matches!(operation, Operation::Read(..)));
        (reads > 1).then_some(Fault::BeforeCommit)
    });
    let resumed = session.resume(whole[0].id.as_deref().unwrap()).send().await;
    assert_eq!(resumed.messages().len(), 4);
    assert_eq!(resumed.frames().last(), whole.last(), "the client is not told to come back");
}

async fn a_broken_connection_is_recorded_in_the_end(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    strike(&faults, |c| matches!(c, Command::Detach(_)), &[Fault::BeforeCommit, Fault::BeforeCommit]);
    session.listen().stream().await.cut();
    host.heard.once(&session, Detached).await;
    assert_eq!(faults.injected(), 2);
}

async fn a_resumed_stream_that_is_not_known_to_be_is_read(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "gate", json!({"name": "a", "text": "read"})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    strike(&faults, |c| matches!(c, Command::Attach(_)), &[Fault::AfterCommit]);
    let mut resumed = session.resume(&priming).stream().await;
    assert_eq!(stream.rest().await, []);
    host.gates.open("a");
    assert_eq!(resumed.messages().await.iter().map(said).collect::<Vec<_>>(), ["read"]);
}

async fn every_other_request_can_be_sent_again(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    let event = session.tool(0, "echo", json!({})).send().await.frames()[0].id.clone().unwrap();
    for (request, served) in [
        (session.post(&json!({"jsonrpc": "2.0", "method": "notifications/tick"})), 202),
        (session.resume(&event), 200),
        (session.delete(), 204),
    ] {
        faults.push(Fault::BeforeCommit);
        assert_try_again(&request.send().await);
        assert_eq!(request.send().await.status, served);
    }
    faults.push_for(|operation| matches!(operation, Operation::Open(_)), Fault::BeforeCommit);
    let initialize = crate::support::Http::to(&host).post(&crate::support::session::initialize("2025-11-25"));
    assert_try_again(&initialize.send().await);
    assert_eq!(initialize.send().await.status, 200);
    let id = initialize.send().await.header("mcp-session-id").unwrap().to_owned();
    let unseen = Session { id, ..session };
    faults.push_for(|operation| matches!(operation, Operation::Facts(_)), Fault::BeforeCommit);
    assert_try_again(&unseen.tool(1, "echo", json!({})).send().await);
    assert_eq!(unseen.say(1, "echo", json!({"text": "seen"})).await, "seen");
}

async fn random_faults_lose_nothing_and_double_nothing(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    faults.seeded(11, 150);
    let calls: Vec<_> = (0..200)
        .map(|no| {
            let text = format!("call {no}");
            let arguments = json!({"steps": ["progress", "log:3"], "text": text});
            let request = session.tool(no, "steps", arguments);
            tokio::spawn(async move {
                let reply = insist(request).await;
                assert_eq!(reply.answers().iter().map(said).collect::<Vec<_>>(), [text]);
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert!(faults.injected() > 50);
    faults.clear();
    assert_eq!(session.say(1, "echo", json!({"text": "all well"})).await, "all well");
}
