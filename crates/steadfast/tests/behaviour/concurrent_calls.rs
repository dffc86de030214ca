//! S0: many calls of one session at once. Each gets its own answer, once; nothing is lost, doubled
//! or misrouted.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::support::session::{said, tool_call};
use crate::support::{Backing, Gates, Host, Http, Rng, Session, Value, json};

crate::on_every_store!(
    a_thousand_calls_one_after_the_other_done_in_any_order,
    a_thousand_calls_in_flight_at_one_moment,
    counters_in_session_state_lose_no_update,
);

const CALLS: usize = 1000;
const LINES: usize = 48;

/// Two sessions use the same ids at the same time. Each line of the client sends one call after the
/// other, and now and then a notification; the calls are let go in random order.
async fn a_thousand_calls_one_after_the_other_done_in_any_order(backing: Backing) {
    let host = Host::plain(backing).await;
    for seed in [1, 2, 3] {
        let mine = Session::open(&host).await;
        let other = Session::open(&host).await;
        let mut work: Vec<Job> = (0..CALLS).map(|no| Job::new(&mine, "mine", seed, no)).collect();
        work.extend((0..CALLS / 4).map(|no| Job::new(&other, "other", seed, no)));
        Rng::seeded(seed).shuffle(&mut work);
        let total = work.len();
        let (sent, arrivals) = mpsc::unbounded_channel();
        let work = Rc::new(RefCell::new(work));
        let ticks_before = host.gates.count("notifications/tick");
        let ticks = Rc::new(RefCell::new(0));
        LocalSet::new()
            .run_until(async {
                let lines: Vec<_> = (0..LINES as u64)
                    .map(|line| {
                        let (work, sent, ticks) = (Rc::clone(&work), sent.clone(), Rc::clone(&ticks));
                        let rng = Rng::seeded(seed << 32 | line);
                        tokio::task::spawn_local(work_off(Http::to(&host), work, sent, ticks, rng))
                    })
                    .collect();
                let opener = tokio::task::spawn_local(open_in_any_order(
                    host.gates.clone(),
                    arrivals,
                    total,
                    Rng::seeded(seed),
                ));
                let mut answered = Vec::new();
                for line in lines {
                    answered.extend(line.await.expect("a line of the client"));
                }
                opener.await.expect("the opener of gates");
                answered.sort();
                let unique: BTreeSet<_> = answered.iter().collect();
                assert_eq!((answered.len(), unique.len()), (total, total), "seed {seed}");
            })
            .await;
        let ticks = *ticks.borrow();
        host.gates.reached("notifications/tick", ticks_before + ticks).await;
        assert_eq!(host.gates.count("notifications/tick"), ticks_before + ticks, "seed {seed}");
    }
}

/// One call to be made.
struct Job {
    session: Session,
    no: usize,
    gate: String,
}

impl Job {
    fn new(session: &Session, whose: &str, seed: u64, no: usize) -> Self {
        Self { session: session.clone(), no, gate: format!("{whose}/{seed}/{no}") }
    }

    /// Half of the ids are numbers, half are texts.
    fn id(&self) -> Value {
        if self.no.is_multiple_of(2) { json!(self.no) } else { json!(self.no.to_string()) }
    }

    fn check(&self, messages: &[Value]) {
        let id = self.id();
        let [first, second, answer] = messages else { panic!("{}: {messages:?}", self.gate) };
        for progress in [first, second] {
            assert_eq!(progress["params"]["progressToken"], id, "{}", self.gate);
        }
        assert_eq!((&answer["id"], said(answer)), (&id, self.gate.clone()));
    }
}

/// Sends what there is to send, one after the other. Gives the names of what was answered.
async fn work_off(
    http: Http,
    work: Rc<RefCell<Vec<Job>>>,
    sent: mpsc::UnboundedSender<String>,
    ticks: Rc<RefCell<usize>>,
    mut rng: Rng,
) -> Vec<String> {
    let mut line = http.line().await;
    let mut answered = Vec::new();
    loop {
        let Some(job) = work.borrow_mut().pop() else { return answered };
        if rng.below(4) == 0 {
            let tick = json!({"jsonrpc": "2.0", "method": "notifications/tick"});
            assert_eq!(line.send(&job.session.post(&tick)).await.status, 202);
            *ticks.borrow_mut() += 1;
        }
        sent.send(job.gate.clone()).expect("the opener listens");
        let steps = json!(["progress", format!("gate:{}", job.gate), "progress"]);
        let arguments = json!({"steps": steps, "text": job.gate});
        let reply = line.send(&job.session.tool(job.id(), "steps", arguments)).await;
        job.check(&reply.messages());
        answered.push(job.gate);
    }
}

/// Opens the gates of calls that are under way, in random order, and keeps many of them waiting.
async fn open_in_any_order(
    gates: Gates,
    mut arrivals: mpsc::UnboundedReceiver<String>,
    total: usize,
    mut rng: Rng,
) {
    let mut waiting = Vec::new();
    for opened in 0..total {
        // While there is work left, every line that does not wait at a gate is about to.
        while waiting.len() < (LINES / 2).min(total - opened) {
            waiting.push(arrivals.recv().await.expect("lines that work"));
        }
        gates.open(&waiting.swap_remove(rng.below(waiting.len())));
    }
}

/// Batches put a thousand calls in flight on forty connections. All wait at one moment; then they
/// end in any order.
async fn a_thousand_calls_in_flight_at_one_moment(backing: Backing) {
    const BATCHES: usize = 40;
    let host = Host::plain(backing).await;
    let session = Session::at(&host, "2025-03-26").await;
    let gate = |no: usize| format!("all/{no}");
    let batch = |first: usize| -> Value {
        let calls = (first..first + CALLS / BATCHES).map(|no| {
            let steps = json!(["mark:under way", format!("gate:{}", gate(no))]);
            tool_call(no, "steps", json!({"steps": steps, "text": gate(no)}))
        });
        calls.collect::<Vec<_>>().into()
    };
    let mut streams = Vec::new();
    for first in (0..CALLS).step_by(CALLS / BATCHES) {
        streams.push(session.post(&batch(first)).stream().await);
    }
    host.gates.reached("under way", CALLS).await;
    let mut order: Vec<usize> = (0..CALLS).collect();
    Rng::seeded(7).shuffle(&mut order);
    for no in order {
        host.gates.open(&gate(no));
    }
    for (i, stream) in streams.iter_mut().enumerate() {
        let first = i * CALLS / BATCHES;
        let mut answers: Vec<(u64, String)> = Vec::new();
        for answer in stream.messages().await {
            answers.push((answer["id"].as_u64().expect("a number"), said(&answer)));
        }
        answers.sort();
        let expect: Vec<_> = (first..first + CALLS / BATCHES).map(|no| (no as u64, gate(no))).collect();
        assert_eq!(answers, expect);
    }
}

async fn counters_in_session_state_lose_no_update(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let counts: Vec<_> = (0..100)
        .map(|no| {
            let session = session.clone();
            tokio::spawn(async move { session.say(no, "count", json!({})).await })
        })
        .collect();
    let mut seen = BTreeSet::new();
    for count in counts {
        seen.insert(count.await.expect("a count").parse::<u64>().expect("a number"));
    }
    assert_eq!(seen, (1..=100).collect());
}
