//! Gateways with different settings, as during a rolling change of the configuration: each call
//! reaches the gateway that must run it.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_engine::Rules;
use steadfast_session::Command;
use steadfast_store::Store;
use steadfast_store::testing::{Fault, Faults, FaultyStore, Gate, Operation};

use crate::support::server::Server;
use crate::support::{Backing, Host, Place, Session, within};

use super::calls;
use super::turns::{begin, end, patient};

/// A gateway that sends any number of calls at a time, another that sends one, and a session that
/// the first has in hand. So the second gives it what it gets.
struct Mixed {
    server: Server,
    here: Host,
    there: Host,
    session: Session,
    elsewhere: Session,
    /// What becomes of the commands of each.
    faults: [Faults; 2],
    /// For as long as it is in use.
    _place: Place,
}

impl Mixed {
    async fn start() -> Self {
        let server = patient().await;
        let place = Backing::shared().place();
        let stores = place.open_twice(Rules::default()).map(FaultyStore::over).map(Arc::new);
        let faults = [0, 1].map(|no: usize| stores[no].faults.clone());
        let bounds = [None, Some(NonZeroUsize::MIN)];
        let settings: Mutex<Vec<_>> = Mutex::new(stores.into_iter().zip(bounds).rev().collect());
        let here = Host::before(Backing::shared(), [server.url()], move |builder| {
            let (store, bound) = settings.lock().unwrap().pop().expect("two gateways");
            let store: Arc<dyn Store> = store;
            builder.custom_store(store).upstream(|config| config.calls.concurrency = bound.into())
        })
        .await;
        let there = here.beside().await;
        let session = Session::open(&here).await;
        let elsewhere = session.via(&there);
        Self { server, here, there, session, elsewhere, faults, _place: place }
    }
}

/// How often a gateway has reminded others of calls, and how often it has had the occasion.
#[derive(Clone, Default)]
struct Reminders(Arc<[AtomicU64; 2]>);

impl Reminders {
    fn of(faults: &Faults) -> Self {
        let counts = Self::default();
        let counted = counts.clone();
        faults.script(move |operation| {
            let which = match operation {
                Operation::Apply(_, Command::Renotify(_)) => 0,
                Operation::ExternalChangeCount => 1,
                _ => return None,
            };
            counted.0[which].fetch_add(1, Ordering::SeqCst);
            None
        });
        counts
    }

    fn sent(&self) -> u64 {
        self.0[0].load(Ordering::SeqCst)
    }

    /// Waits until there were so many more occasions.
    async fn occasions(&self, count: u64) {
        let start = self.0[1].load(Ordering::SeqCst);
        let had = async {
            while self.0[1].load(Ordering::SeqCst) < start + count {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        within("the gateway to look", had).await;
    }
}

/// The gateway does not count calls, so it expects no forwarded ones. With SQLite, the store does
/// not notify it of them either.
#[tokio::test]
async fn a_call_reaches_a_gateway_that_does_not_expect_it() {
    let Mixed { server, here: _here, there: _there, session, elsewhere, _place, .. } = Mixed::start().await;
    let mut stream = begin(&elsewhere, 1, "t1").await;
    server.until("the call", |log| log.iter().any(|request| request.calls("t1"))).await;
    end(&session, "t1").await;
    assert_eq!(stream.message().await["result"]["name"], "t1");
}

/// The reminders stop when the call has begun: a gateway without waiting calls sends none.
#[tokio::test]
async fn a_gateway_reminds_another_of_a_call_until_it_has_begun() {
    let Mixed { server, here: _here, there: _there, session, elsewhere, faults, _place } =
        Mixed::start().await;
    let reminders = Reminders::of(&faults[1]);
    reminders.occasions(2).await;
    assert_eq!(reminders.sent(), 0, "there is nothing to remind of");
    let unseen = Gate::new();
    let gate = unseen.clone();
    faults[0].script(move |operation| {
        matches!(operation, Operation::Holdings(_)).then(|| Fault::HoldBefore(gate.clone()))
    });
    let mut stream = begin(&elsewhere, 1, "t1").await;
    reminders.occasions(3).await;
    assert!(reminders.sent() >= 2, "it may not have been told: {}", reminders.sent());
    assert_eq!(calls(&server, "t1"), 0);
    unseen.open();
    server.until("the call", |log| log.iter().any(|request| request.calls("t1"))).await;
    // One may be on its way.
    reminders.occasions(1).await;
    let before = reminders.sent();
    reminders.occasions(2).await;
    assert_eq!(reminders.sent(), before, "it runs");
    end(&session, "t1").await;
    assert_eq!(stream.message().await["result"]["name"], "t1");
}
