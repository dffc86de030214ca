//! Server requests in flight: each is answered once, or withdrawn. If another node than the owner
//! receives the answer, the session stores it for the owner.

use bytes::Bytes;

use crate::changes::Changes;
use crate::command::{
    Answer, Answered, Collect, Collected, OpenServerRequest, ServerRequestOpened, Target, Withdrawn,
};
use crate::ids::{NodeId, ServerRequestNo, Time};
use crate::limits::{Limit, Rules};
use crate::rows::{Class, ServerRequest, StoredAnswer};
use crate::session::Session;

impl ServerRequestNo {
    const PREFIX: &'static str = "ask-";

    /// Returns the JSON-RPC id that the client sees and answers.
    pub fn wire_id(self) -> String {
        format!("{}{}", Self::PREFIX, self.0)
    }

    /// Parses an id that [`ServerRequestNo::wire_id`] has written. Returns `None` for every other
    /// id.
    pub fn from_wire_id(id: &steadfast_wire::RequestId) -> Option<Self> {
        let steadfast_wire::RequestId::Text(text) = id else { return None };
        let no = text.strip_prefix(Self::PREFIX)?.parse().map(Self).ok()?;
        (no.wire_id() == **text).then_some(no)
    }
}

impl Session {
    pub(crate) fn open_server_request(
        &mut self,
        command: &OpenServerRequest,
        rules: &Rules,
        changes: &mut Changes,
    ) -> ServerRequestOpened {
        if !self.is_open() {
            return ServerRequestOpened::NoSession;
        }
        if self.is_fenced(command.fence.as_ref()) {
            return ServerRequestOpened::Fenced;
        }
        let call = match command.target {
            Target::Call(no) if !self.calls.contains_key(&no) => return ServerRequestOpened::CallGone,
            Target::Call(no) => Some(no),
            Target::Standalone => None,
        };
        if self.server_requests.len() >= rules.limits.server_requests {
            return ServerRequestOpened::OverLimit(Limit::ServerRequests);
        }
        let stream = self.route(command.target, changes);
        let server_request = ServerRequestNo(self.meta.next_server_request);
        let mut payload = format!(r#"{{"jsonrpc":"2.0","id":"{}","#, server_request.wire_id()).into_bytes();
        payload.extend_from_slice(&command.rest);
        let Some(seq) = self.push(stream, Class::ServerRequest, payload.into(), &rules.limits, changes)
        else {
            return ServerRequestOpened::OverLimit(Limit::StreamBytes);
        };
        self.meta.next_server_request += 1;
        self.server_requests
            .insert(server_request, ServerRequest { call, stream, seq, owner: command.owner, answer: None });
        changes.meta = true;
        changes.server_requests.push(server_request);
        ServerRequestOpened::Opened { server_request, stream, seq }
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
        match self.server_requests.get(&command.server_request) {
            None => Answered::Unknown,
            // A retry after an unknown outcome.
            Some(ServerRequest { answer: Some(stored), owner, .. })
                if stored.by == (command.node, command.attempt) =>
            {
                Answered::Stored { owner: *owner }
            }
            Some(ServerRequest { answer: Some(_), .. }) => Answered::AlreadyAnswered,
            Some(ServerRequest { owner, .. }) if *owner != command.node => {
                self.store_answer(command, *owner, rules, changes)
            }
            Some(ServerRequest { call, .. }) => {
                let call = *call;
                self.remove_server_request(command.server_request, changes);
                Answered::Answered { call }
            }
        }
    }

    fn store_answer(
        &mut self,
        command: &Answer,
        owner: NodeId,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Answered {
        let Answer { server_request, node, attempt, message } = command;
        let size = message.len() as u64;
        if self.kept_answer_bytes + size > rules.limits.kept_answer_bytes {
            return Answered::OverLimit(Limit::KeptAnswerBytes);
        }
        if let Some(row) = self.server_requests.get_mut(server_request) {
            // Copied, so that the session does not keep the whole HTTP body in memory.
            let message = Bytes::copy_from_slice(message);
            row.answer = Some(StoredAnswer { by: (*node, *attempt), message });
            self.kept_answer_bytes += size;
            changes.server_requests.push(*server_request);
            changes.answers_stored.push((*server_request, owner));
        }
        Answered::Stored { owner }
    }

    pub(crate) fn collect(&mut self, command: &Collect, changes: &mut Changes) -> Collected {
        if !self.is_open() {
            return Collected::NoSession;
        }
        for server_request in &command.server_requests {
            let is_stored = |row: &ServerRequest| row.owner == command.node && row.answer.is_some();
            if self.server_requests.get(server_request).is_some_and(is_stored) {
                self.remove_server_request(*server_request, changes);
            }
        }
        Collected::Collected
    }

    pub(crate) fn withdraw(
        &mut self,
        server_request: ServerRequestNo,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Withdrawn {
        if !self.is_open() {
            return Withdrawn::NoSession;
        }
        let Some(ServerRequest { stream, answer, .. }) = self.drop_server_request(server_request, changes)
        else {
            return Withdrawn::Unknown;
        };
        if answer.is_some() {
            // The client has answered, so it needs no cancellation.
            return Withdrawn::Withdrawn;
        }
        let payload = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"{}"}}}}"#,
            server_request.wire_id()
        );
        self.push(stream, Class::Withdrawal, Bytes::from(payload), &rules.limits, changes);
        Withdrawn::Withdrawn
    }

    /// Withdraws all chosen server requests and notifies the client.
    pub(crate) fn withdraw_server_requests(
        &mut self,
        chosen: impl Fn(&ServerRequest) -> bool,
        rules: &Rules,
        changes: &mut Changes,
    ) {
        let server_requests: Vec<ServerRequestNo> = self
            .server_requests
            .iter()
            .filter(|(_, server_request)| chosen(server_request))
            .map(|(no, _)| *no)
            .collect();
        for server_request in server_requests {
            self.withdraw(server_request, rules, changes);
        }
    }

    /// Removes a server request without an answer and reports that to its owner. Does not notify
    /// the client.
    pub(crate) fn drop_server_request(
        &mut self,
        server_request: ServerRequestNo,
        changes: &mut Changes,
    ) -> Option<ServerRequest> {
        let dropped = self.remove_server_request(server_request, changes)?;
        changes.withdrawn.push((server_request, dropped.owner));
        Some(dropped)
    }

    fn remove_server_request(
        &mut self,
        server_request: ServerRequestNo,
        changes: &mut Changes,
    ) -> Option<ServerRequest> {
        let removed = self.server_requests.remove(&server_request)?;
        self.kept_answer_bytes -= removed.kept_bytes();
        changes.server_requests.push(server_request);
        Some(removed)
    }
}

impl ServerRequest {
    /// Returns the size of the stored answer.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.answer.as_ref().map_or(0, |answer| answer.message.len() as u64)
    }
}
