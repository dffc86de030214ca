//! The asks of one session that this node has taken and not brought to an end. Pure: it says what to do, others do it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use steadfast_session::command::{Fence, Target};
use steadfast_session::{AskNo, CallNo, Limit, Time};
use tokio::sync::oneshot;

use crate::refusal::Refusal;

/// What an asker gets: the JSON text of the client's response message.
pub(crate) type Outcome = Result<Bytes, Refusal>;

/// An ask as this node knows it, in the order of arrival. The store's number comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// How many asks of a session this node takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) in_flight: usize,
    pub(crate) waiting: usize,
}

/// What is asked, where, and under which lease.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) target: Target,
    /// The text of the request.
    pub(crate) rest: Bytes,
    pub(crate) fence: Option<Fence>,
}

#[derive(Debug, Default)]
pub(crate) struct AskQueue {
    asks: BTreeMap<Ticket, Pending>,
    waiting: BTreeSet<Ticket>,
    by_no: BTreeMap<AskNo, Ticket>,
    /// How many are on their way to the store: the client may answer before their number is known here.
    opening: usize,
    /// Answers to asks whose number is not known here yet; `None` for one that was withdrawn.
    early: BTreeMap<AskNo, Option<Bytes>>,
    /// Asks whose answer the store kept for this node: their askers have it, and the store has not been told yet.
    uncollected: BTreeSet<AskNo>,
    /// How many answers of the client are on their way to the store: the ask may be gone there before it is gone here.
    answering: usize,
    /// How many were ever taken, and how many asks and answers were ever sent to the store.
    taken: u64,
    sent: u64,
    /// The store had no room, which asks of other nodes take. Nothing is sent until one of ours ends, or a while has passed.
    held_back: bool,
    /// Somebody sees to it that a while passes.
    is_timed: bool,
}

#[derive(Debug)]
struct Pending {
    target: Target,
    deadline: Time,
    /// `None` once the asker was told, or has gone.
    asker: Option<oneshot::Sender<Outcome>>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Waiting(Question),
    Opening(Question),
    Open(AskNo),
    /// The store is being told that nobody waits for it.
    Leaving(AskNo),
}

impl AskQueue {
    /// Takes an ask, which waits until [`AskQueue::start`] gives it out.
    pub(crate) fn take(
        &mut self,
        question: Question,
        deadline: Time,
        bounds: Bounds,
    ) -> Result<(Ticket, oneshot::Receiver<Outcome>), Refusal> {
        if bounds.in_flight == 0 {
            return Err(Refusal::OverLimit(Limit::Asks));
        }
        let room = if self.held_back { 0 } else { bounds.in_flight.saturating_sub(self.in_flight()) };
        if self.waiting.len() >= bounds.waiting + room {
            return Err(Refusal::OverLimit(Limit::WaitingAsks));
        }
        let (asker, outcome) = oneshot::channel();
        let ticket = Ticket(self.taken);
        self.taken += 1;
        let target = question.target;
        let stage = Stage::Waiting(question);
        self.asks.insert(ticket, Pending { target, deadline, asker: Some(asker), stage });
        self.waiting.insert(ticket);
        Ok((ticket, outcome))
    }

    /// The next ask to send to the store, if there is room for it.
    pub(crate) fn start(&mut self, bounds: Bounds) -> Option<(Ticket, Question)> {
        if self.held_back || self.in_flight() >= bounds.in_flight {
            return None;
        }
        let ticket = self.waiting.pop_first()?;
        let ask = self.asks.get_mut(&ticket)?;
        let Stage::Waiting(question) = &ask.stage else { return None };
        let question = question.clone();
        ask.stage = Stage::Opening(question.clone());
        self.opening += 1;
        self.sent += 1;
        Some((ticket, question))
    }

    /// The store has opened it. Gives its number if it has to be withdrawn again because nobody waits any more.
    pub(crate) fn opened(&mut self, ticket: Ticket, no: AskNo) -> Option<AskNo> {
        let early = self.early.remove(&no);
        self.one_less_opening();
        if let Some(answer) = early {
            self.end(ticket, answer.ok_or(Refusal::AskWithdrawn));
            return None;
        }
        let ask = self.asks.get_mut(&ticket)?;
        self.by_no.insert(no, ticket);
        let abandoned = ask.asker.is_none();
        ask.stage = if abandoned { Stage::Leaving(no) } else { Stage::Open(no) };
        abandoned.then_some(no)
    }

    /// The store has not opened it.
    pub(crate) fn not_opened(&mut self, ticket: Ticket, why: Refusal) {
        self.one_less_opening();
        self.end(ticket, Err(why));
    }

    /// The store had no room for it: it goes back to its place in the queue. Gives whether the caller has to see to it
    /// that [`AskQueue::try_again`] is called.
    pub(crate) fn no_room(&mut self, ticket: Ticket) -> bool {
        self.one_less_opening();
        let Some(ask) = self.asks.get_mut(&ticket) else { return false };
        if ask.asker.is_none() {
            self.remove(ticket);
            return false;
        }
        if let Stage::Opening(question) = &ask.stage {
            ask.stage = Stage::Waiting(question.clone());
            self.waiting.insert(ticket);
        }
        self.held_back = true;
        !std::mem::replace(&mut self.is_timed, true)
    }

    pub(crate) fn try_again(&mut self) {
        self.held_back = false;
        self.is_timed = false;
    }

    /// The client has answered.
    pub(crate) fn answered(&mut self, no: AskNo, answer: Bytes) {
        self.over(no, Some(answer));
    }

    /// The same for an answer of which nobody knows whether the store has taken it, but for this: the store does not know
    /// the ask any more. If its asker still waits, it is taken; `false` if not.
    pub(crate) fn answered_if_open(&mut self, no: AskNo, answer: Bytes) -> bool {
        let is_open = self.awaits(no);
        if is_open {
            self.answered(no, answer);
        }
        is_open
    }

    /// Hands over the answers that the store keeps for this node, all of them. Gives the asks that are to be collected.
    /// The store gives an answer again and again until it hears of that, and an asker gets it once.
    pub(crate) fn hand_over(&mut self, kept: Vec<(AskNo, Bytes)>) -> Vec<AskNo> {
        let asks: Vec<AskNo> = kept.iter().map(|(no, _)| *no).collect();
        for (no, answer) in kept {
            if !self.uncollected.contains(&no) {
                self.answered(no, answer);
            }
        }
        self.uncollected = asks.iter().copied().collect();
        asks
    }

    /// The store keeps none of the answers any more that were handed over.
    pub(crate) fn collected(&mut self) {
        self.uncollected.clear();
    }

    /// An answer of the client is on its way to the store.
    pub(crate) fn answering(&mut self) {
        self.answering += 1;
        self.sent += 1;
    }

    /// It was handed over, or will not be.
    pub(crate) fn done_answering(&mut self) {
        self.answering -= 1;
    }

    /// The ask was taken back: its call, its session or its node is over.
    pub(crate) fn withdrawn(&mut self, no: AskNo) {
        self.over(no, None);
    }

    fn over(&mut self, no: AskNo, answer: Option<Bytes>) {
        match self.by_no.get(&no) {
            Some(ticket) => self.end(*ticket, answer.ok_or(Refusal::AskWithdrawn)),
            None if self.opening > 0 => drop(self.early.insert(no, answer)),
            None => {}
        }
    }

    /// The asker has gone. Gives the number under which the ask is to be withdrawn.
    pub(crate) fn abandon(&mut self, ticket: Ticket) -> Option<AskNo> {
        let ask = self.asks.get_mut(&ticket)?;
        ask.asker = None;
        self.leave(ticket)
    }

    /// Tells every asker whose time is over. Gives those to be withdrawn.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<(Ticket, AskNo)> {
        let is_due = |ask: &Pending| ask.deadline <= now && ask.asker.is_some();
        let due: Vec<Ticket> =
            self.asks.iter().filter(|(_, ask)| is_due(ask)).map(|(ticket, _)| *ticket).collect();
        let mut open = Vec::new();
        for ticket in due {
            self.tell(ticket, Err(Refusal::AskDeadline));
            open.extend(self.leave(ticket).map(|no| (ticket, no)));
        }
        open
    }

    /// An ask that nobody waits for: out of the queue if it is there, else on its way out of the store.
    fn leave(&mut self, ticket: Ticket) -> Option<AskNo> {
        let ask = self.asks.get_mut(&ticket)?;
        match ask.stage {
            Stage::Waiting(_) => {
                self.remove(ticket);
                None
            }
            Stage::Opening(_) | Stage::Leaving(_) => None,
            Stage::Open(no) => {
                ask.stage = Stage::Leaving(no);
                Some(no)
            }
        }
    }

    /// The store knows that nobody waits for it.
    pub(crate) fn left(&mut self, ticket: Ticket) {
        self.remove(ticket);
    }

    /// A call is over, and so is whatever it asked or wanted to ask.
    pub(crate) fn call_over(&mut self, call: CallNo) {
        self.nobody_will_answer(|ask| matches!(ask.target, Target::Call(no) if no == call));
    }

    /// The session is gone.
    pub(crate) fn session_over(&mut self) {
        self.nobody_will_answer(|_| true);
    }

    /// The store holds these asks for this node and no others: nobody will answer those.
    pub(crate) fn keep_only(&mut self, held: &[AskNo]) {
        self.nobody_will_answer(|ask| matches!(ask.stage, Stage::Open(no) if !held.contains(&no)));
    }

    fn nobody_will_answer(&mut self, chosen: impl Fn(&Pending) -> bool) {
        let chosen: Vec<Ticket> =
            self.asks.iter().filter(|(_, ask)| chosen(ask)).map(|(ticket, _)| *ticket).collect();
        for ticket in chosen {
            match self.asks.get(&ticket).map(|ask| &ask.stage) {
                Some(Stage::Waiting(_) | Stage::Open(_)) => self.end(ticket, Err(Refusal::AskWithdrawn)),
                // It ends when the store has spoken.
                Some(Stage::Opening(_)) => self.tell(ticket, Err(Refusal::AskWithdrawn)),
                Some(Stage::Leaving(_)) | None => {}
            }
        }
    }

    pub(crate) fn awaits(&self, no: AskNo) -> bool {
        self.by_no.contains_key(&no)
    }

    /// Whether nothing is left to be done here.
    pub(crate) fn is_empty(&self) -> bool {
        self.asks.is_empty() && self.opening == 0 && self.uncollected.is_empty()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many asks and answers were ever sent to the store; `None` while one is on its way.
    pub(crate) fn settled(&self) -> Option<u64> {
        (self.opening == 0 && self.answering == 0).then_some(self.sent)
    }

    fn in_flight(&self) -> usize {
        self.asks.len() - self.waiting.len()
    }

    fn end(&mut self, ticket: Ticket, outcome: Outcome) {
        self.tell(ticket, outcome);
        self.remove(ticket);
    }

    fn tell(&mut self, ticket: Ticket, outcome: Outcome) {
        if let Some(asker) = self.asks.get_mut(&ticket).and_then(|ask| ask.asker.take()) {
            // The asker may be going this very moment; then nobody wants to know.
            let _ = asker.send(outcome);
        }
    }

    fn remove(&mut self, ticket: Ticket) {
        let Some(ask) = self.asks.remove(&ticket) else { return };
        if let Stage::Open(no) | Stage::Leaving(no) = ask.stage {
            self.by_no.remove(&no);
        }
        if !self.waiting.remove(&ticket) {
            // It may have been what the store had no room for.
            self.held_back = false;
        }
    }

    fn one_less_opening(&mut self) {
        self.opening = self.opening.saturating_sub(1);
        if self.opening == 0 {
            self.early.clear();
        }
    }
}
