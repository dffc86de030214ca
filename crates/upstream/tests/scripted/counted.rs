//! Servers that take so many calls at a time, behind gateways that share their sessions: all of
//! them together send no more.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_engine::Rules;
use steadfast_session::Command;
use steadfast_store::Store;
use steadfast_store::testing::{Fault, FaultyStore, Operation};
use steadfast_upstream::Credential;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Session, Stream, json, within};

use super::nodes::sweep_until;
use super::turns::{begin, end, patient, settle};
use super::{call, calls, reason};

/// A server that answers no `resources/read` request until it has received two of them.
async fn read_twice() -> Server {
    let reads = |log: &[Request]| log.iter().filter(|request| request.method() == "resources/read").count();
    Server::with_sessions(move |request| {
        let is_read = request.method() == "resources/read";
        is_read.then(|| Reply::stream().until(move |log| reads(log) == 2).answer(request, &json!({"n": 2})))
    })
    .await
}

/// So many at a time on each of so many sessions of the server's.
async fn gateway(server: &Server, (concurrency, spread): (usize, usize)) -> Host {
    Host::before(Backing::shared(), [server.url()], move |builder| {
        builder.call_deadline(Duration::from_secs(60)).upstream(|config| {
            config.calls.concurrency = NonZeroUsize::new(concurrency).into();
            config.calls.upstream_sessions = NonZeroUsize::new(spread).unwrap();
        })
    })
    .await
}

/// Two gateways, of which the first runs the calls of a session.
struct Pair {
    server: Server,
    here: Host,
    there: Host,
    session: Session,
    /// The session by way of the second one.
    elsewhere: Session,
}

impl Pair {
    async fn start(bounds: (usize, usize)) -> Self {
        let server = patient().await;
        let here = gateway(&server, bounds).await;
        let there = here.beside().await;
        let session = Session::open(&here).await;
        let elsewhere = session.via(&there);
        Self { server, here, there, session, elsewhere }
    }

    /// The second one has handed a call to the first, and knows who that is.
    async fn acquainted() -> Self {
        let pair = Self::start((1, 1)).await;
        let before = begin(&pair.elsewhere, 0, "before").await;
        end_all(&pair.server, &pair.session, vec![before], 1, &[]).await;
        pair
    }
}

/// The calls that the server has got.
pub(super) fn sent(log: &[Request]) -> BTreeSet<String> {
    let calls = log.iter().filter(|request| request.method() == "tools/call");
    calls.filter_map(|request| request.body["params"]["name"].as_str().map(str::to_owned)).collect()
}

/// Ends one call after the other, by way of the gateway that counts. The server never has more than
/// `most`. `ended` were before.
async fn end_all(server: &Server, session: &Session, streams: Vec<Stream>, most: usize, ended: &[&str]) {
    let mut ended: BTreeSet<_> = ended.iter().map(ToString::to_string).collect();
    let all = ended.len() + streams.len();
    while ended.len() < all {
        let expected = all.min(ended.len() + most);
        server.until("all that may be there", |log| sent(log).len() >= expected).await;
        settle(server, session, ended.len()).await;
        let there = sent(&server.log());
        assert_eq!(there.len(), expected, "{ended:?} are done, and these have come: {there:?}");
        let next = there.difference(&ended).next().expect("a call that runs").clone();
        end(session, &next).await;
        ended.insert(next);
    }
    for mut stream in streams {
        let answer = stream.message().await;
        assert!(ended.remove(answer["result"]["name"].as_str().unwrap_or_default()), "{answer}");
    }
}

#[tokio::test]
async fn gateways_count_together() {
    for (bounds, most) in [((1, 1), 1), ((2, 1), 2), ((0, 2), 2)] {
        let Pair { server, here: _here, there: _there, session, elsewhere } = Pair::start(bounds).await;
        let mut streams = Vec::new();
        for id in 0..6 {
            let at = if id % 2 == 0 { &elsewhere } else { &session };
            streams.push(begin(at, id, &format!("t{id}")).await);
        }
        settle(&server, &elsewhere, 1000).await;
        end_all(&server, &session, streams, most, &[]).await;
    }
}

/// The gateway that counted the calls has died, and its calls at the server have ended with it.
#[tokio::test]
async fn another_gateway_counts_on() {
    let Pair { server, mut here, there, session, .. } = Pair::acquainted().await;
    let gone = here.server().0.node();
    here.crash().await;
    let is_known = async {
        while there.server().0.store().is_alive(gone).await != Ok(false) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        there.sweep_after(Duration::ZERO).await;
    };
    within("word of its end", is_known).await;
    // The other one may think for a while that it is there.
    let third = there.beside().await;
    let elsewhere = session.via(&third);
    let streams = vec![begin(&elsewhere, 1, "t1").await, begin(&elsewhere, 2, "t2").await];
    end_all(&server, &elsewhere, streams, 1, &["before"]).await;
}

/// It was killed before it could begin, so nothing has happened, and it does not matter whether
/// that would do harm twice.
#[tokio::test]
async fn a_call_that_was_given_to_a_gateway_that_is_gone_is_run_by_another() {
    let Pair { server, mut here, there, elsewhere, .. } = Pair::acquainted().await;
    here.crash().await;
    let stream = begin(&elsewhere, 1, "pay").await;
    sweep_until(&there, "the successor", || sent(&server.log()).contains("pay")).await;
    end_all(&server, &elsewhere, vec![stream], 1, &["before"]).await;
}

/// A call that had been sent to the server when its gateway was killed is not run again: no gateway
/// can know whether the server has executed it.
#[tokio::test]
async fn a_call_that_was_begun_is_not_run_again() {
    let Pair { server, mut here, there, elsewhere, .. } = Pair::start((1, 1)).await;
    let mut stream = begin(&elsewhere, 0, "pay").await;
    server.until("it", |log| sent(log).len() == 1).await;
    here.crash().await;
    let answer = tokio::spawn(async move { stream.message().await });
    sweep_until(&there, "an outcome", || answer.is_finished()).await;
    assert_eq!(reason(&answer.await.unwrap()), ("outcome_unknown".to_owned(), false));
    assert_eq!(calls(&server, "pay"), 1);
}

/// The store does not tell the gateway which node counts the calls, although it accepts calls.
#[tokio::test]
async fn a_call_is_refused_while_the_counting_node_is_unknown() {
    let server = patient().await;
    let place = Backing::shared().place();
    let [one, two] = place.open_twice(Rules::default());
    let faulty = Arc::new(FaultyStore::over(two));
    let faults = faulty.faults.clone();
    let stores: Mutex<Vec<Arc<dyn Store>>> = Mutex::new(vec![faulty, one]);
    let here = Host::before(Backing::shared(), [server.url()], move |builder| {
        let store = stores.lock().unwrap().pop().unwrap();
        builder
            .custom_store(store)
            .upstream(|config| config.calls.concurrency = Some(NonZeroUsize::MIN).into())
    })
    .await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    let mut running = begin(&session, 0, "t0").await;
    server.until("it", |log| sent(log).len() == 1).await;
    faults.script(|operation| match operation {
        Operation::Apply(_, Command::GetState(get)) if &*get.key == "~lease" => Some(Fault::Lost),
        _ => None,
    });
    let reply = session.via(&there).tool(1, "t1", json!({})).send().await;
    assert_eq!(reply.status, 503);
    end(&session, "t0").await;
    assert_eq!(running.message().await["result"]["name"], "t0");
    assert_eq!(sent(&server.log()), ["t0"].map(str::to_owned).into());
}

/// What a client shows stays where it was shown, so its calls do.
#[tokio::test]
async fn calls_with_a_credential_of_the_clients_own_are_not_handed_on() {
    let server = patient().await;
    let here = Host::before(Backing::shared(), [server.url()], |builder| {
        builder.upstream(|config| {
            config.calls.concurrency = Some(NonZeroUsize::MIN).into();
            config.credential = Credential::Forwarded;
        })
    })
    .await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    let _running = begin(&session, 0, "t0").await;
    let shown = session.via(&there).tool(1, "t1", json!({})).header("Authorization", "Bearer new");
    let _second = shown.stream().await;
    server.until("both", |log| sent(log).len() == 2).await;
    let log = server.log();
    let second = log.iter().find(|request| request.calls("t1")).expect("the second call");
    assert_eq!(second.header("authorization"), Some("Bearer new"));
}

/// A gateway that shuts down has a call at the server. No other gateway sends a call before that
/// one has ended.
#[tokio::test]
async fn a_gateway_that_goes_leaves_when_it_is_done() {
    let Pair { server, here, there, session, elsewhere } = Pair::start((1, 1)).await;
    let idle = Session::open(&here).await;
    let mut last = begin(&session, 0, "t0").await;
    server.until("it", |log| sent(log).len() == 1).await;
    let going = {
        let here = Arc::clone(&here.server().0);
        tokio::spawn(async move { here.drain(Duration::from_secs(30)).await })
    };
    // A session without calls goes at once.
    end(&idle.via(&there), "other").await;
    within("the other session", async {
        while call(&idle.via(&there), 1, "other").await["result"]["name"] != json!("other") {}
    })
    .await;
    let streams = vec![begin(&elsewhere, 1, "t1").await, begin(&elsewhere, 2, "t2").await];
    settle(&server, &elsewhere, 1000).await;
    assert_eq!(sent(&server.log()), ["other", "t0"].map(str::to_owned).into());
    for name in ["t0", "t1", "t2"] {
        end(&elsewhere, name).await;
    }
    assert_eq!(last.message().await["result"]["name"], "t0");
    for mut stream in streams {
        assert!(stream.message().await["result"].is_object());
    }
    within("the end", going).await.unwrap();
    end(&elsewhere, "t3").await;
    assert_eq!(call(&elsewhere, 3, "t3").await["result"]["name"], "t3");
}

/// Calls that wait for their turn have not begun, so nothing has happened.
#[tokio::test]
async fn calls_that_waited_at_a_gateway_that_is_gone_are_run_by_another() {
    let Pair { server, mut here, there, elsewhere, .. } = Pair::start((1, 1)).await;
    let mut first = begin(&elsewhere, 0, "t0").await;
    server.until("it", |log| sent(log).len() == 1).await;
    let mut streams = vec![begin(&elsewhere, 1, "t1").await, begin(&elsewhere, 2, "t2").await];
    let wait = async {
        while here.upstream().queued_calls() < 2 {
            tokio::task::yield_now().await;
        }
    };
    within("those that wait", wait).await;
    here.crash().await;
    let outcome = tokio::spawn(async move { first.message().await });
    sweep_until(&there, "the successor", || outcome.is_finished() && sent(&server.log()).len() == 2).await;
    assert_eq!(reason(&outcome.await.unwrap()), ("outcome_unknown".to_owned(), false));
    for name in ["t1", "t2"] {
        end(&elsewhere, name).await;
    }
    for stream in &mut streams {
        let answer = stream.message().await;
        assert!(answer["result"].is_object(), "{answer}");
    }
}

/// The call is idempotent, so another gateway repeats it and the client gets no error.
#[tokio::test]
async fn a_call_that_only_looks_is_left_to_another_gateway_by_one_that_cannot_wait() {
    let server = read_twice().await;
    let mut here = gateway(&server, (1, 1)).await;
    let there = here.beside().await;
    let elsewhere = Session::open(&here).await.via(&there);
    let mut stream = elsewhere.request(0, "resources/read", json!({"uri": "test:1"})).stream().await;
    let is_read = |log: &[Request]| log.iter().any(|request| request.method() == "resources/read");
    server.until("it", is_read).await;
    here.stop().await;
    let answer = tokio::spawn(async move { stream.message().await });
    sweep_until(&there, "the successor", || answer.is_finished()).await;
    assert_eq!(answer.await.unwrap()["result"], json!({"n": 2}));
}

/// There is always another call before the last one ends. It goes all the same, and no call is
/// lost.
#[tokio::test]
async fn a_gateway_that_goes_does_not_wait_for_calls_that_it_has_not_begun() {
    let Pair { server, here, there, elsewhere, .. } = Pair::start((1, 1)).await;
    let mut streams = vec![begin(&elsewhere, 0, "t0").await];
    server.until("it", |log| sent(log).len() == 1).await;
    let going = {
        let here = Arc::clone(&here.server().0);
        tokio::spawn(async move { here.drain(Duration::from_secs(600)).await })
    };
    within("the drain to begin", async {
        while !here.server().0.is_draining() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let began = tokio::time::Instant::now();
    while !going.is_finished() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not go");
        let next = streams.len();
        streams.push(begin(&elsewhere, next as u64, &format!("t{next}")).await);
        settle(&server, &elsewhere, next).await;
        end(&elsewhere, &format!("t{}", next - 1)).await;
        settle(&server, &elsewhere, next + 1000).await;
    }
    end(&elsewhere, &format!("t{}", streams.len() - 1)).await;
    let answers = tokio::spawn(async move {
        for mut stream in streams {
            let answer = stream.message().await;
            assert!(answer["result"].is_object(), "{answer}");
        }
    });
    sweep_until(&there, "all answers", || answers.is_finished()).await;
    answers.await.unwrap();
}

/// A notification that was taken from its client reaches the server, though the gateway that it
/// came to goes.
#[tokio::test]
async fn a_gateway_that_goes_hands_on_what_it_has_taken() {
    let Pair { server, here: _here, there, elsewhere, .. } = Pair::acquainted().await;
    let busy = Session::open(&there).await;
    let mut last = begin(&busy, 1, "last").await;
    server.until("it", |log| sent(log).contains("last")).await;
    let going = {
        let there = Arc::clone(&there.server().0);
        tokio::spawn(async move { there.drain(Duration::from_secs(10)).await })
    };
    within("the drain to begin", async {
        while !there.server().0.is_draining() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    settle(&server, &elsewhere, 1).await;
    end(&busy, "last").await;
    assert_eq!(last.message().await["result"]["name"], "last");
    within("the end", going).await.unwrap();
}
