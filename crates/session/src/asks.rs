//! Asks in flight: each answered once, or withdrawn. An answer that comes to another node than the asker's is kept for it.

use bytes::Bytes;
use steadfast_wire::planted;

use crate::changes::Changes;
use crate::command::{Answer, Answered, AskOpened, Collect, Collected, OpenAsk, Target, Withdrawn};
use crate::ids::{AskNo, NodeId, Time};
use crate::limits::{Limit, Rules};
use crate::session::Session;
use crate::tables::{Ask, Class, Kept};

impl AskNo {
    const PREFIX: &'static str = "ask-";

    /// The JSON-RPC id that the client sees and answers.
    pub fn wire_id(self) -> String {
        format!("{}{}", Self::PREFIX, self.0)
    }

    /// Reads what [`AskNo::wire_id`] wrote.
    pub fn from_wire_id(id: &steadfast_wire::RequestId) -> Option<Self> {
        let steadfast_wire::RequestId::Text(text) = id else { return None };
        let no = text.strip_prefix(Self::PREFIX)?.parse().map(Self).ok()?;
        (no.wire_id() == **text).then_some(no)
    }
}

impl Session {
    pub(crate) fn open_ask(&mut self, command: &OpenAsk, rules: &Rules, changes: &mut Changes) -> AskOpened {
        if !self.is_open() {
            return AskOpened::NoSession;
        }
        if self.is_fenced(command.fence.as_ref()) {
            return AskOpened::Fenced;
        }
        let call = match command.target {
            Target::Call(no) if !self.calls.contains_key(&no) => return AskOpened::CallGone,
            Target::Call(no) => Some(no),
            Target::Standalone => None,
        };
        if self.asks.len() >= rules.limits.asks {
            return AskOpened::OverLimit(Limit::Asks);
        }
        let stream = self.route(command.target, changes);
        let ask = AskNo(self.meta.next_ask);
        let mut payload = format!(r#"{{"jsonrpc":"2.0","id":"{}","#, ask.wire_id()).into_bytes();
        payload.extend_from_slice(&command.rest);
        let Some(seq) = self.push(stream, Class::Ask, payload.into(), &rules.limits, changes) else {
            return AskOpened::OverLimit(Limit::StreamBytes);
        };
        self.meta.next_ask += 1;
        self.asks.insert(ask, Ask { call, stream, seq, owner: command.owner, answer: None });
        changes.meta = true;
        changes.asks.push(ask);
        AskOpened::Opened { ask, stream, seq }
    }

    pub(crate) fn answer(
        &mut self,
        command: &Answer,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Answered {
        if !self.is_open() {
            return Answered::NoSession;
        }
        self.mark_active(now, rules, changes);
        match self.asks.get(&command.ask) {
            None if planted("answer-taken-twice") => Answered::Kept { owner: command.node },
            None => Answered::Unknown,
            // Asked again after an unknown outcome.
            Some(Ask { answer: Some(kept), owner, .. }) if kept.by == (command.node, command.attempt) => {
                Answered::Kept { owner: *owner }
            }
            Some(Ask { answer: Some(_), .. }) if !planted("answer-taken-twice") => Answered::Before,
            Some(Ask { owner, .. }) if *owner != command.node => {
                self.keep_answer(command, *owner, rules, changes)
            }
            Some(Ask { call, .. }) => {
                let call = *call;
                self.remove_ask(command.ask, changes);
                Answered::Answered { call }
            }
        }
    }

    fn keep_answer(
        &mut self,
        command: &Answer,
        owner: NodeId,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Answered {
        let Answer { ask, node, attempt, message } = command;
        let size = message.len() as u64;
        if self.kept_answer_bytes + size > rules.limits.kept_answer_bytes {
            return Answered::OverLimit(Limit::KeptAnswerBytes);
        }
        if let Some(row) = self.asks.get_mut(ask) {
            // Copied, so that the session does not keep the whole body that it came in.
            let message = Bytes::copy_from_slice(message);
            row.answer = Some(Kept { by: (*node, *attempt), message });
            self.kept_answer_bytes += size;
            changes.asks.push(*ask);
            changes.kept.push((*ask, owner));
        }
        Answered::Kept { owner }
    }

    pub(crate) fn collect(&mut self, command: &Collect, changes: &mut Changes) -> Collected {
        if !self.is_open() {
            return Collected::NoSession;
        }
        for ask in &command.asks {
            let is_kept = |row: &Ask| row.owner == command.node && row.answer.is_some();
            if self.asks.get(ask).is_some_and(is_kept) {
                self.remove_ask(*ask, changes);
            }
        }
        Collected::Collected
    }

    pub(crate) fn withdraw(&mut self, ask: AskNo, rules: &Rules, changes: &mut Changes) -> Withdrawn {
        if !self.is_open() {
            return Withdrawn::NoSession;
        }
        let Some(Ask { stream, answer, .. }) = self.drop_ask(ask, changes) else {
            return Withdrawn::Unknown;
        };
        if answer.is_some() {
            // The client is done with it.
            return Withdrawn::Withdrawn;
        }
        let payload = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"{}"}}}}"#,
            ask.wire_id()
        );
        self.push(stream, Class::Withdrawal, Bytes::from(payload), &rules.limits, changes);
        Withdrawn::Withdrawn
    }

    pub(crate) fn withdraw_asks(
        &mut self,
        chosen: impl Fn(&Ask) -> bool,
        rules: &Rules,
        changes: &mut Changes,
    ) {
        let asks: Vec<AskNo> = self.asks.iter().filter(|(_, ask)| chosen(ask)).map(|(no, _)| *no).collect();
        for ask in asks {
            self.withdraw(ask, rules, changes);
        }
    }

    pub(crate) fn drop_ask(&mut self, ask: AskNo, changes: &mut Changes) -> Option<Ask> {
        let dropped = self.remove_ask(ask, changes)?;
        changes.withdrawn.push((ask, dropped.owner));
        Some(dropped)
    }

    fn remove_ask(&mut self, ask: AskNo, changes: &mut Changes) -> Option<Ask> {
        let removed = self.asks.remove(&ask)?;
        self.kept_answer_bytes -= removed.kept_bytes();
        changes.asks.push(ask);
        Some(removed)
    }
}

impl Ask {
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.answer.as_ref().map_or(0, |kept| kept.message.len() as u64)
    }
}
