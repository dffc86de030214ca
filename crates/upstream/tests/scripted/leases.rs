//! Servers that take one call at a time, and gateways between which the lease of a session changes
//! hands: a gateway without the lease sends no calls.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_engine::Rules;
use steadfast_session::Command;
use steadfast_store::Store;
use steadfast_store::testing::{Fault, Faults, FaultyStore, Gate, Operation};

use crate::support::server::Server;
use crate::support::{Backing, Host, Session, within};

use super::counted::sent;
use super::turns::{begin, end, patient, settle};

/// The store commands of the first gateway can be made to fail, and no gateway reaps dead nodes
/// unless a test tells it to.
struct Gateways {
    server: Server,
    hosts: Vec<Host>,
    faults: Faults,
    /// What shows that the first lives, on SQLite.
    signs: Vec<std::path::PathBuf>,
    /// By way of each.
    sessions: Vec<Session>,
}

impl Gateways {
    /// The first has the lease of the session.
    async fn start(backing: Backing, count: usize) -> Self {
        let server = patient().await;
        let place = backing.place();
        let faulty = Arc::new(FaultyStore::over(place.open(Rules::default())));
        let faults = faulty.faults.clone();
        let first: Mutex<Option<Arc<dyn Store>>> = Mutex::new(Some(faulty));
        let others = place.clone();
        let here = Host::before(backing, [server.url()], move |mut builder| {
            let first = first.lock().unwrap().take();
            builder.options.sweep_interval = Duration::from_secs(3600);
            builder
                .call_deadline(Duration::from_secs(60))
                .custom_store(first.unwrap_or_else(|| others.open(Rules::default())))
                .upstream(|config| config.calls.concurrency = Some(NonZeroUsize::MIN).into())
        })
        .await;
        let signs = if backing == Backing::Sqlite { place.signs_of_life() } else { Vec::new() };
        let mut hosts = vec![here];
        for _ in 1..count {
            hosts.push(hosts[0].beside().await);
        }
        let session = Session::open(&hosts[0]).await;
        let sessions = hosts.iter().map(|host| session.via(host)).collect();
        Self { server, hosts, faults, signs, sessions }
    }
}

/// Whether the first gateway has sent such a command.
fn watch(
    faults: &Faults,
    which: fn(&Command) -> bool,
    also: impl Fn(Operation<'_>) -> Option<Fault> + Send + 'static,
) -> Arc<AtomicBool> {
    let seen = Arc::new(AtomicBool::new(false));
    let sees = Arc::clone(&seen);
    faults.script(move |operation| {
        if let Operation::Apply(_, command) = operation
            && which(command)
        {
            sees.store(true, Ordering::SeqCst);
        }
        also(operation)
    });
    seen
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(what, wait).await;
}

/// The first gateway was reaped while it was alive, and has not noticed yet. Another gateway has
/// the lease.
#[tokio::test]
async fn a_call_that_is_noticed_when_the_lease_is_gone_goes_to_its_holder() {
    let Gateways { server, hosts: _hosts, faults, signs, sessions } =
        Gateways::start(Backing::Sqlite, 3).await;
    let [here, there, third] = &sessions[..] else { panic!("three") };
    let mut before = begin(there, 0, "t0").await;
    end(here, "t0").await;
    assert_eq!(before.message().await["result"]["name"], "t0");
    let unseen = Gate::new();
    let gate = unseen.clone();
    let passed = watch(
        &faults,
        |command| matches!(command, Command::Forward(_)),
        move |operation| matches!(operation, Operation::Holdings(_)).then(|| Fault::HoldBefore(gate.clone())),
    );
    let mut first = begin(there, 1, "t1").await;
    signs.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let mut second = begin(third, 2, "t2").await;
    server.until("the second", |log| sent(log).contains("t2")).await;
    unseen.open();
    until("the first to be noticed", || passed.load(Ordering::SeqCst) || sent(&server.log()).contains("t1"))
        .await;
    settle(&server, third, 1).await;
    assert!(!sent(&server.log()).contains("t1"), "it is sent beside the other");
    end(third, "t2").await;
    assert_eq!(second.message().await["result"]["name"], "t2");
    end(third, "t1").await;
    assert_eq!(first.message().await["result"]["name"], "t1");
}

/// One gateway reaps another and inherits the calls that waited there. A third gateway has the
/// lease by then.
#[tokio::test]
async fn a_successor_without_the_lease_hands_on_what_it_inherits() {
    let Gateways { server, mut hosts, sessions, .. } = Gateways::start(Backing::shared(), 3).await;
    let [_, there, third] = &sessions[..] else { panic!("three") };
    let mut running = begin(there, 0, "t0").await;
    server.until("the first call", |log| sent(log).len() == 1).await;
    let mut waits = begin(there, 1, "t1").await;
    until("one that waits", || hosts[0].upstream().queued_calls() == 1).await;
    let gone = hosts[0].server().0.node();
    hosts[0].crash().await;
    let is_known = async {
        while hosts[2].server().0.store().is_alive(gone).await != Ok(false) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("word of its end", is_known).await;
    let mut second = begin(third, 2, "t2").await;
    server.until("the call from the new lease holder", |log| sent(log).contains("t2")).await;
    within("reaping", hosts[1].server().0.sweep()).await.unwrap();
    assert_eq!(super::reason(&running.message().await).0, "outcome_unknown");
    // Once it is among what the third has to run, or at the server.
    let is_passed = || hosts[2].upstream().queued_calls() == 1 || sent(&server.log()).contains("t1");
    until("what is inherited", is_passed).await;
    settle(&server, third, 1).await;
    assert!(!sent(&server.log()).contains("t1"), "it is sent beside the other");
    end(third, "t2").await;
    assert_eq!(second.message().await["result"]["name"], "t2");
    end(third, "t1").await;
    assert_eq!(waits.message().await["result"]["name"], "t1");
}

/// A gateway goes, and has a call that it has just begun and that has not had its turn.
#[tokio::test]
async fn a_gateway_that_goes_keeps_the_lease_for_a_call_that_is_about_to_run() {
    let Gateways { server, hosts, faults, sessions, .. } = Gateways::start(Backing::shared(), 2).await;
    let [here, there] = &sessions[..] else { panic!("two") };
    let begun = Gate::new();
    let gate = begun.clone();
    let gives_up = |command: &Command| match command {
        Command::Release(_) => true,
        Command::PutState(put) => &*put.key == "~lease" && put.value.is_none(),
        _ => false,
    };
    let tried = watch(&faults, gives_up, move |operation| {
        matches!(operation, Operation::Apply(_, Command::Begin(_))).then(|| Fault::HoldAfter(gate.clone()))
    });
    let first = tokio::spawn({
        let here = here.clone();
        async move { begin(&here, 1, "t1").await }
    });
    within("the call to be begun", begun.reached()).await;
    let going = {
        let here = Arc::clone(&hosts[0].server().0);
        tokio::spawn(async move { here.drain(Duration::from_secs(30)).await })
    };
    until("an attempt to give the lease up", || tried.load(Ordering::SeqCst)).await;
    let mut second = begin(there, 2, "t2").await;
    settle(&server, there, 1).await;
    begun.open();
    let mut first = first.await.unwrap();
    server.until("the first", |log| sent(log).contains("t1")).await;
    settle(&server, there, 2).await;
    assert_eq!(sent(&server.log()), ["t1"].map(str::to_owned).into(), "it is at the server alone");
    for name in ["t1", "t2"] {
        end(there, name).await;
    }
    assert_eq!(first.message().await["result"]["name"], "t1");
    within("the end", going).await.unwrap();
    within("reaping", hosts[1].server().0.sweep()).await.unwrap();
    assert_eq!(second.message().await["result"]["name"], "t2");
}
