//! Many asks at once: all in flight up to a bound, the rest waiting for their turn, in order.

use std::collections::BTreeMap;

use steadfast::Limits;

use crate::support::session::said;
use crate::support::{Backing, Host, Rng, Session, Stream, Value, json};

use super::{accepted, asking, question_of};

crate::on_every_store!(
    the_asks_of_a_handler_are_in_flight_together,
    a_thousand_asks_keep_to_the_bound_and_none_is_lost,
    calls_share_the_bound_and_take_turns,
    asks_and_notifications_keep_their_order,
    answers_in_any_order_reach_their_askers,
);

async fn the_asks_of_a_handler_are_in_flight_together(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 5})).stream().await;
    let mut open = Vec::new();
    for no in 0..5 {
        // None has been answered: each came while the ones before it were open.
        let (id, message) = question_of(&stream.message().await);
        assert_eq!(message, no.to_string());
        open.push(id);
    }
    for (no, id) in open.iter().enumerate().rev() {
        assert_eq!(session.answer(id, accepted(&no.to_string())).await.status, 202);
    }
    assert_eq!(answers(&stream.message().await), ["0", "1", "2", "3", "4"]);
}

async fn a_thousand_asks_keep_to_the_bound_and_none_is_lost(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 1000})).stream().await;
    let mut client = Client::new(&session).await;
    for _ in 0..64 {
        client.take(&mut stream).await;
    }
    session.say(2, "echo", json!({})).await;
    assert!(stream.is_quiet().await, "one more than the bound is in flight");
    let mut rng = Rng::seeded(7);
    for asked in 64..1000 {
        assert_eq!(client.order, (0..asked).collect::<Vec<u64>>(), "in the order of asking");
        client.answer_one(&mut rng).await;
        client.take(&mut stream).await;
    }
    while !client.open.is_empty() {
        client.answer_one(&mut rng).await;
    }
    assert_eq!(client.peak, 64);
    let expect: Vec<String> = (0..1000).map(|no| no.to_string()).collect();
    assert_eq!(answers(&stream.message().await), expect);
    assert!(stream.rest().await.is_empty());
}

async fn calls_share_the_bound_and_take_turns(backing: Backing) {
    let host =
        Host::start(backing, |builder| builder.limits(Limits { server_requests: 3, ..Limits::default() }))
            .await;
    let session = Session::open(&host).await;
    let (mut first, of_first) = asking(&session, 1, 2).await;
    let (mut second, of_second) = asking(&session, 2, 2).await;
    let (mut third, of_third) = asking(&session, 3, 1).await;
    assert_eq!((of_first.len(), of_second.len(), of_third.len()), (2, 1, 0));
    // The second call was there before the third.
    session.answer(&of_first[0], accepted("")).await;
    let (id, message) = question_of(&second.message().await);
    assert_eq!(message, "2");
    assert!(third.is_quiet().await);
    session.answer(&id, accepted("")).await;
    let (id, _) = question_of(&third.message().await);
    for ask in [&id, &of_first[1], &of_second[0]] {
        assert_eq!(session.answer(ask, accepted("")).await.status, 202);
    }
    for stream in [&mut first, &mut second, &mut third] {
        assert_eq!(said(&stream.message().await), "done");
    }
}

async fn asks_and_notifications_keep_their_order(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    for round in 0..20 {
        let mut stream = session.tool(round, "ask_and_tell", json!({"n": 30})).stream().await;
        for step in 1..=30 {
            let (id, message) = question_of(&stream.message().await);
            assert_eq!(message, step.to_string());
            let told = stream.message().await;
            assert_eq!(
                (&told["method"], &told["params"]["progress"]),
                (&json!("notifications/progress"), &json!(f64::from(step)))
            );
            session.answer(&id, accepted("")).await;
        }
        assert_eq!(said(&stream.message().await), "done");
    }
}

async fn answers_in_any_order_reach_their_askers(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    for seed in 0..5 {
        let mut rng = Rng::seeded(seed);
        let mut streams = Vec::new();
        let mut client = Client::new(&session).await;
        for call in 0..6 {
            let mut stream = session.tool(call, "ask_many", json!({"n": 8})).stream().await;
            for _ in 0..8 {
                client.take_as(&mut stream, call * 100).await;
            }
            streams.push(stream);
        }
        while !client.open.is_empty() {
            client.answer_one(&mut rng).await;
        }
        for (call, stream) in streams.iter_mut().enumerate() {
            let expect: Vec<String> = (0..8).map(|no| (call * 100 + no).to_string()).collect();
            assert_eq!(answers(&stream.message().await), expect, "seed {seed}");
        }
    }
}

/// What a handler was answered, in the order of its asking.
fn answers(answer: &Value) -> Vec<String> {
    let said: Vec<Value> = serde_json::from_str(&said(answer)).expect("a list");
    said.iter().map(|one| one["text"].as_str().unwrap_or_else(|| panic!("{one}")).to_owned()).collect()
}

/// A client that counts, and answers each question with its own text.
struct Client {
    session: Session,
    line: crate::support::http::Line,
    /// Questions that were not answered, by number.
    open: BTreeMap<u64, Value>,
    order: Vec<u64>,
    peak: usize,
}

impl Client {
    async fn new(session: &Session) -> Self {
        let line = session.http.line().await;
        Self { session: session.clone(), line, open: BTreeMap::new(), order: Vec::new(), peak: 0 }
    }

    async fn take(&mut self, stream: &mut Stream) {
        self.take_as(stream, 0).await;
    }

    async fn take_as(&mut self, stream: &mut Stream, plus: u64) {
        let (id, message) = question_of(&stream.message().await);
        let no = message.parse::<u64>().expect("a number") + plus;
        assert!(self.open.insert(no, id).is_none(), "{no} was asked twice");
        self.order.push(no);
        self.peak = self.peak.max(self.open.len());
    }

    async fn answer_one(&mut self, rng: &mut Rng) {
        let at = rng.below(self.open.len());
        let no = *self.open.keys().nth(at).expect("an open question");
        let id = self.open.remove(&no).expect("an open question");
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": accepted(&no.to_string())});
        let reply = self.line.send(&self.session.post(&answer)).await;
        assert_eq!(reply.status, 202, "{}", reply.text());
    }
}
