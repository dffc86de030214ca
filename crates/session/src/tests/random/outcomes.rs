//! Checks the outcome of each command against the model, and updates the model.

use std::collections::BTreeSet;

use super::model::{Ending, Expected, Model, ModelCall, ModelServerRequest, ModelStream};
use crate::command::{
    Answer, Answered, Append, AppendOutcome, Attach, Attached, Begin, BeginMode, Begun, Cancelled, Closed,
    Collected, Deliver, Delivered, Detach, Detached, Duplicates, FailNode, Finished, Forward, Forwarded,
    NodeFailed, OpenServerRequest, Position, Released, Renotified, Renotify, ServerRequestOpened, Started,
    StateGot, StatePut, Successor, Swept, Target, Touched, Withdrawn,
};
use crate::{
    CallNo, Class, CloseReason, Command, ConnNo, Lifecycle, Limit, NodeId, Outcome, Request, ServerRequestNo,
    Session, StreamNo, Time,
};

impl Model {
    pub(super) fn check_outcome(
        &mut self,
        command: &Command,
        outcome: &Outcome,
        now: Time,
        session: &Session,
    ) -> Expected {
        let mut expected = Expected::default();
        let open = self.closed.is_none();
        match (command, outcome) {
            (Command::Detach(c), Outcome::Detach(o)) => self.check_detach(c, *o, now, &mut expected),
            (Command::Sweep(_), Outcome::Sweep(o)) => self.check_sweep(*o, now, session, &mut expected),
            (Command::Touch(_), Outcome::Touch(Touched::NoSession))
            | (Command::Close(_), Outcome::Close(Closed::NoSession))
            | (Command::Begin(_), Outcome::Begin(Begun::NoSession))
            | (Command::Start(_), Outcome::Start(Started::NoSession))
            | (Command::Renotify(_), Outcome::Renotify(Renotified::NoSession))
            | (Command::Forward(_), Outcome::Forward(Forwarded::NoSession))
            | (Command::Release(_), Outcome::Release(Released::NoSession))
            | (Command::Append(_), Outcome::Append(AppendOutcome::NoSession))
            | (Command::Finish(_), Outcome::Finish(Finished::NoSession))
            | (Command::Cancel(_), Outcome::Cancel(Cancelled::NoSession))
            | (Command::FailNode(_), Outcome::FailNode(NodeFailed::NoSession))
            | (Command::OpenServerRequest(_), Outcome::OpenServerRequest(ServerRequestOpened::NoSession))
            | (Command::Answer(_), Outcome::Answer(Answered::NoSession))
            | (Command::Withdraw(_), Outcome::Withdraw(Withdrawn::NoSession))
            | (Command::Attach(_), Outcome::Attach(Attached::NoSession))
            | (Command::Deliver(_), Outcome::Deliver(Delivered::NoSession))
            | (Command::PutState(_), Outcome::PutState(StatePut::NoSession))
            | (Command::GetState(_), Outcome::GetState(StateGot::NoSession | StateGot::SessionClosed(_)))
            | (Command::Collect(_), Outcome::Collect(Collected::NoSession)) => assert!(!open),
            _ if !open => panic!("a closed session did something"),
            (Command::Touch(_), Outcome::Touch(o)) => {
                let over = self.shared_usage.exceeded_limit(&self.rules.limits);
                assert_eq!(*o, over.map_or(Touched::Touched, Touched::OverLimit));
                self.active = now;
            }
            (Command::Close(c), Outcome::Close(Closed::Closed)) => self.close(c.reason, now, &mut expected),
            (Command::Begin(c), Outcome::Begin(o)) => self.check_begin(c, o, now, session, &mut expected),
            (Command::Start(c), Outcome::Start(o)) => {
                let is_owned = |call: &&mut ModelCall| !call.over && call.owner == c.node;
                let is_fenced = self.is_fenced(c.fence.as_ref());
                let call = self.calls.get_mut(&c.call).filter(is_owned);
                let started = if is_fenced { Started::Fenced } else { Started::Started };
                assert_eq!(*o, if call.is_some() { started } else { Started::Gone });
                if let Some(request) = call.and_then(|call| call.request.as_mut()) {
                    request.reassignable &= c.idempotent || is_fenced;
                }
            }
            (Command::Forward(c), Outcome::Forward(o)) => self.check_forward(c, *o, &mut expected),
            (Command::Release(c), Outcome::Release(o)) => {
                let can_move = |call: &ModelCall| {
                    call.is_forwarded() && call.request.as_ref().is_some_and(|it| it.reassignable)
                };
                let is_busy = self.in_flight().any(|(_, call)| call.owner == c.node && !can_move(call));
                let is_fenced = self.is_fenced(Some(&c.fence));
                let released = if is_busy { Released::Busy } else { Released::Released };
                assert_eq!(*o, if is_fenced { Released::Fenced } else { released });
                if *o == Released::Released {
                    self.state.remove(&*c.fence.key);
                }
            }
            (Command::Renotify(c), Outcome::Renotify(o)) => self.check_renotify(c, *o, &mut expected),
            (Command::Append(c), Outcome::Append(o)) => self.check_append(c, *o, &mut expected),
            (Command::Finish(c), Outcome::Finish(o)) => {
                let Some(call) = self.calls.get(&c.call).filter(|call| !call.over) else {
                    assert_eq!(*o, Finished::AlreadyFinished);
                    return expected;
                };
                assert!(matches!(o, Finished::Finished { stream, .. } if *stream == call.stream));
                self.end(c.call, Ending::Answer(c.payload.clone()), &mut expected);
                self.active = now;
            }
            (Command::Cancel(c), Outcome::Cancel(o)) => {
                self.active = now;
                match self.calls_with_id(&c.id)[..] {
                    [] => assert_eq!(*o, Cancelled::Nothing),
                    [call] => {
                        assert_eq!(*o, Cancelled::Cancelled { call, owner: self.calls[&call].owner });
                        self.end(call, Ending::NoAnswer, &mut expected);
                    }
                    _ => assert_eq!(*o, Cancelled::Ambiguous),
                }
            }
            (Command::FailNode(c), Outcome::FailNode(o)) => {
                let expected_outcome = self.fail_node(c, now, &mut expected);
                assert_eq!(*o, expected_outcome);
            }
            (Command::OpenServerRequest(c), Outcome::OpenServerRequest(o)) => {
                self.check_server_request(c, *o, &mut expected)
            }
            (Command::Answer(c), Outcome::Answer(o)) => {
                self.active = now;
                self.check_answer(c, *o, &mut expected);
            }
            (Command::Collect(c), Outcome::Collect(Collected::Collected)) => {
                for no in &c.server_requests {
                    if let Some(server_request) = self
                        .server_requests
                        .get_mut(no)
                        .filter(|server_request| server_request.owner == c.node)
                    {
                        server_request.over |= server_request.stored.is_some();
                    }
                }
            }
            (Command::Withdraw(c), Outcome::Withdraw(o)) => {
                let known = self
                    .server_requests
                    .get(&c.server_request)
                    .is_some_and(|server_request| !server_request.over);
                assert_eq!(*o, if known { Withdrawn::Withdrawn } else { Withdrawn::Unknown });
                self.withdraw(|no, _| no == c.server_request, &mut expected);
            }
            (Command::Attach(c), Outcome::Attach(o)) => self.check_attach(c, *o, now, &mut expected),
            (Command::Deliver(c), Outcome::Deliver(o)) => self.check_deliver(c, *o),
            (Command::PutState(c), Outcome::PutState(o)) => self.check_put(c, o),
            (Command::GetState(c), Outcome::GetState(StateGot::SessionOpen(o))) => {
                let got = o.as_ref().map(|value| (value.version, value.bytes.clone()));
                assert_eq!(got.as_ref(), self.state.get(&c.key));
            }
            (command, outcome) => panic!("{outcome:?} is no outcome of {command:?}"),
        }
        expected
    }

    fn check_forward(&mut self, c: &Forward, o: Forwarded, expected: &mut Expected) {
        let was_forwarded = |call: &&ModelCall| !call.over && call.owner == c.node && call.is_forwarded();
        let call = self.calls.get(&c.call).filter(was_forwarded).filter(|_| c.to != c.node);
        let forwarded = if call.is_some() { Forwarded::Forwarded } else { Forwarded::Gone };
        assert_eq!(o, if self.is_fenced(c.fence.as_ref()) { Forwarded::Fenced } else { forwarded });
        if o == Forwarded::Forwarded {
            let request = self.calls[&c.call].request.clone();
            self.reassign(c.call, c.to, request, expected);
        }
    }

    fn check_renotify(&self, c: &Renotify, o: Renotified, expected: &mut Expected) {
        let reads = |stream| self.streams[&stream].reader.is_some_and(|(_, node)| node == c.node);
        for (no, call) in self.in_flight().filter(|(_, call)| call.owner != c.node) {
            let is_unstarted = call.request.as_ref().is_some_and(|request| request.reassignable);
            if is_unstarted
                && call.assigned_by != call.owner
                && (call.assigned_by == c.node || reads(call.stream))
            {
                expected.forwarded.push((no, call.owner));
            }
        }
        assert_eq!(o, Renotified::Renotified { calls: expected.forwarded.len() as u64 });
    }

    fn withdraw(
        &mut self,
        chosen: impl Fn(ServerRequestNo, &ModelServerRequest) -> bool,
        expected: &mut Expected,
    ) {
        for (no, server_request) in
            self.server_requests.iter_mut().filter(|(_, server_request)| !server_request.over)
        {
            if chosen(*no, server_request) {
                server_request.over = true;
                expected.withdrawn.insert(*no);
            }
        }
    }

    fn end(&mut self, call: CallNo, end: Ending, expected: &mut Expected) {
        self.withdraw(|_, server_request| server_request.call == Some(call), expected);
        if !matches!(end, Ending::Answer(_)) {
            expected.stopped.push(call);
        }
        expected.ends.push((call, end));
        self.calls.get_mut(&call).unwrap().over = true;
    }

    fn close(&mut self, reason: CloseReason, now: Time, expected: &mut Expected) {
        let calls: Vec<CallNo> = self.in_flight().map(|(no, _)| no).collect();
        for call in calls {
            self.end(call, Ending::Error, expected);
        }
        self.withdraw(|_, _| true, expected);
        self.closed = Some(now);
        self.detached = None;
        expected.lifecycle.push(Lifecycle::Closed(reason));
    }

    /// Gives a call to another node, under a new number.
    fn reassign(&mut self, no: CallNo, successor: NodeId, request: Option<Request>, expected: &mut Expected) {
        self.withdraw(|_, server_request| server_request.call == Some(no), expected);
        expected.stopped.push(no);
        let next = CallNo(self.calls.keys().last().map_or(0, |no| no.0 + 1));
        let old = self.calls.get_mut(&no).unwrap();
        (old.over, old.revoked) = (true, true);
        let (id, stream, response_only, assigned_by) =
            (old.id.clone(), old.stream, old.response_only, old.owner);
        let call = ModelCall {
            id,
            stream,
            owner: successor,
            assigned_by,
            response_only,
            request,
            over: false,
            revoked: false,
        };
        if successor != assigned_by {
            expected.forwarded.push((next, successor));
        }
        self.calls.insert(next, call);
    }

    fn fail_node(&mut self, c: &FailNode, now: Time, expected: &mut Expected) -> NodeFailed {
        let node = c.node;
        let is_reassignable =
            |call: &ModelCall| call.request.as_ref().is_some_and(|request| request.reassignable);
        let of_node: Vec<(CallNo, bool)> = self
            .in_flight()
            .filter(|(_, call)| call.owner == node)
            .map(|(no, call)| (no, is_reassignable(call)))
            .collect();
        let (mut reassigned, mut kept) = (0, 0);
        for (no, _) in of_node.iter().filter(|(_, reassignable)| *reassignable) {
            match c.successor {
                Successor::None => {}
                Successor::Node(successor) => {
                    let request = self.calls[no].request.clone();
                    let request = request.map(|request| Request { reassignable: false, ..request });
                    self.reassign(*no, successor, request, expected);
                    reassigned += 1;
                }
                Successor::Reaper => kept += 1,
            }
        }
        let failed: Vec<CallNo> = of_node
            .iter()
            .filter(|(_, reassignable)| !reassignable || c.successor == Successor::None)
            .map(|(no, _)| *no)
            .collect();
        for call in &failed {
            self.end(*call, Ending::Error, expected);
            self.calls.get_mut(call).unwrap().revoked = true;
        }
        if reassigned > 0 || !failed.is_empty() {
            self.active = now;
        }
        self.withdraw(|_, server_request| server_request.owner == node, expected);
        let waiting: BTreeSet<StreamNo> = self.in_flight().map(|(_, call)| call.stream).collect();
        let mut lost = false;
        for (no, stream) in &mut self.streams {
            if stream.reader.is_some_and(|(_, owner)| owner == node) {
                stream.reader = None;
                lost |= stream.standalone || waiting.contains(no);
            }
        }
        let ends = |no: &StreamNo| !waiting.contains(no) && !self.streams[no].standalone;
        let read = |no: &StreamNo| self.streams[no].reader.is_some() && !ends(no);
        let alone = !self.streams.keys().any(read);
        if lost && alone {
            self.detached = Some(now);
            expected.lifecycle.push(Lifecycle::Detached);
        }
        NodeFailed::Failed { failed: failed.len() as u64, reassigned, kept }
    }

    fn attached(&mut self, now: Time, expected: &mut Expected) {
        self.active = now;
        if self.detached.take().is_some() {
            expected.lifecycle.push(Lifecycle::Reattached);
        }
    }

    fn newest_connection(&self) -> Option<ConnNo> {
        self.streams.values().filter_map(|stream| Some(stream.reader?.0)).max()
    }

    fn check_begin(&mut self, c: &Begin, o: &Begun, now: Time, session: &Session, expected: &mut Expected) {
        if c.mode == BeginMode::Retry
            && let Some((_, first, stream)) = self.begun
            && let Some((_, call)) =
                self.in_flight().find(|(_, call)| (call.stream, call.assigned_by) == (stream, c.node))
        {
            if call.owner == c.owner {
                assert!(matches!(o, Begun::Begun { stream: s, first: f, .. } if (*s, *f) == (stream, first)));
            } else {
                assert_eq!(*o, Begun::AlreadyBegun { stream });
            }
            return;
        }
        if c.mode == BeginMode::Retry
            && let Some((begin, _, stream)) = &self.begun
            && begin.owner != begin.node
            && session.streams().contains_key(stream)
        {
            return assert_eq!(*o, Begun::AlreadyBegun { stream: *stream });
        }
        if self.is_fenced(c.fence.as_ref()) {
            return assert_eq!(*o, Begun::Fenced);
        }
        for no in &c.delivered {
            if let Some(stream) = self.streams.get_mut(no).filter(|stream| stream.ended.is_some()) {
                stream.delivered = stream.last;
            }
        }
        let limits = &self.rules.limits;
        let isolate = c.duplicates == Duplicates::Isolate;
        let refused = c
            .ids
            .iter()
            .enumerate()
            .find(|(i, id)| c.ids[..*i].contains(id) || (!isolate && !self.calls_with_id(id).is_empty()));
        let unread = self.held().filter(|(_, stream)| !stream.is_fully_delivered()).count();
        let spent_left = self
            .held()
            .filter(|(no, s)| s.is_fully_delivered() && session.streams().contains_key(no))
            .count();
        assert!(spent_left <= limits.delivered_streams);
        let evicted = self.held().filter(|(no, _)| !session.streams().contains_key(no));
        let shared_usage = self.shared_usage.minus(evicted.map(|(_, stream)| stream.bytes()).sum());
        let refusal = if let Some((_, id)) = refused {
            Some(Begun::Duplicate(id.clone()))
        } else if self.in_flight().count() + c.ids.len() > limits.calls {
            Some(Begun::OverLimit(Limit::Calls))
        } else if unread >= limits.streams {
            Some(Begun::OverLimit(Limit::Streams))
        } else if session.bytes() > limits.session_bytes {
            assert_eq!(spent_left, 0, "refused although delivered streams could have been evicted");
            Some(Begun::OverLimit(Limit::SessionBytes))
        } else if let Some(limit) = shared_usage.exceeded_limit(limits) {
            assert_eq!(spent_left, 0, "refused although delivered streams could have been evicted");
            Some(Begun::OverLimit(limit))
        } else {
            None
        };
        let mut free = limits.kept_request_bytes - self.stored_request_bytes();
        let mut requests = c.requests.clone();
        requests.resize(c.ids.len(), None);
        for request in &mut requests {
            let len = request.as_ref().map_or(0, |request| request.text.len() as u64);
            if len <= free {
                free -= len;
            } else {
                *request = None;
            }
        }
        let not_stored = requests.iter().zip(&c.requests).any(|(stored, given)| stored != given);
        let refusal = refusal.or_else(|| {
            (not_stored && c.owner != c.node).then_some(Begun::OverLimit(Limit::KeptRequestBytes))
        });
        if let Some(refusal) = refusal {
            assert_eq!(*o, refusal);
            return;
        }
        let Begun::Begun { stream, first, connection } = *o else { panic!("refused: {o:?}") };
        assert!(self.streams.keys().all(|no| *no < stream));
        assert!(self.calls.keys().all(|no| *no < first));
        assert!(self.newest_connection().is_none_or(|no| no < connection));
        for ((i, id), request) in c.ids.iter().enumerate().zip(requests) {
            let (id, owner, assigned_by, response_only) = (id.clone(), c.owner, c.node, c.response_only);
            let no = CallNo(first.0 + i as u64);
            if owner != assigned_by && request.is_some() {
                expected.forwarded.push((no, owner));
            }
            let call = ModelCall {
                id,
                stream,
                owner,
                assigned_by,
                response_only,
                request,
                over: false,
                revoked: false,
            };
            self.calls.insert(no, call);
        }
        let reader = Some((connection, c.node));
        self.streams.insert(stream, ModelStream { reader, ..ModelStream::default() });
        self.begun = Some((c.clone(), first, stream));
        self.attached(now, expected);
    }

    fn check_append(&mut self, c: &Append, o: AppendOutcome, expected: &mut Expected) {
        let is_revoked =
            matches!(c.target, Target::Call(no) if self.calls.get(&no).is_some_and(|call| call.revoked));
        if is_revoked || self.is_fenced(c.fence.as_ref()) {
            return assert_eq!(o, AppendOutcome::Fenced);
        }
        if let Some(limit) =
            self.exceeded_limit_for(c.class, &c.payload).filter(|_| c.class == Class::Notification)
        {
            return assert_eq!(o, AppendOutcome::Full(limit));
        }
        let no = self.route(c.target);
        if !self.streams.contains_key(&no) {
            self.standalone(no);
        }
        let accepted = self.plan_eviction(no, c.class, &c.payload, &self.open_requests(no)).is_some();
        if accepted || c.class == Class::Droppable {
            assert_eq!(o, AppendOutcome::Appended { stream: no, seq: self.streams[&no].last + 1 });
            expected.message = Some((no, c.class, c.payload.clone()));
        } else {
            assert_eq!(o, AppendOutcome::Full(Limit::StreamBytes));
        }
    }

    fn check_server_request(
        &mut self,
        c: &OpenServerRequest,
        o: ServerRequestOpened,
        expected: &mut Expected,
    ) {
        let call = match c.target {
            Target::Call(no) => Some(no),
            Target::Standalone => None,
        };
        if self.is_fenced(c.fence.as_ref()) {
            assert_eq!(o, ServerRequestOpened::Fenced);
        } else if call.is_some_and(|no| self.calls.get(&no).is_none_or(|call| call.over)) {
            assert_eq!(o, ServerRequestOpened::CallGone);
        } else if self.server_requests.values().filter(|server_request| !server_request.over).count()
            >= self.rules.limits.server_requests
        {
            assert_eq!(o, ServerRequestOpened::OverLimit(Limit::ServerRequests));
        } else {
            let ServerRequestOpened::Opened { server_request, stream, seq } = o else {
                panic!("refused: {o:?}")
            };
            assert_eq!(stream, self.route(c.target));
            assert!(self.server_requests.keys().all(|no| *no < server_request));
            if !self.streams.contains_key(&stream) {
                self.standalone(stream);
            }
            self.server_requests.insert(
                server_request,
                ModelServerRequest { call, stream, seq, owner: c.owner, stored: None, over: false },
            );
            expected.opened = Some(server_request);
            let payload =
                format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, server_request.wire_id());
            expected.message = Some((stream, Class::ServerRequest, payload.into()));
        }
    }

    fn check_answer(&mut self, c: &Answer, o: Answered, expected: &mut Expected) {
        self.answers += 1;
        self.last_answer = Some(c.clone());
        let stored: usize = self.stored_answers().map(|(_, answer)| answer.message.len()).sum();
        let free = self.rules.limits.kept_answer_bytes - stored as u64;
        let Some(server_request) =
            self.server_requests.get_mut(&c.server_request).filter(|server_request| !server_request.over)
        else {
            return assert_eq!(o, Answered::Unknown);
        };
        let owner = server_request.owner;
        let expect = match &server_request.stored {
            Some(stored) if stored == c => Answered::Stored { owner },
            Some(_) => Answered::AlreadyAnswered,
            None if owner == c.node => {
                server_request.over = true;
                Answered::Answered { call: server_request.call }
            }
            None if c.message.len() as u64 > free => Answered::OverLimit(Limit::KeptAnswerBytes),
            None => {
                server_request.stored = Some(c.clone());
                expected.stored = Some(c.server_request);
                Answered::Stored { owner }
            }
        };
        assert_eq!(o, expect);
    }

    /// Returns the answers that their owners have not collected.
    pub(super) fn stored_answers(&self) -> impl Iterator<Item = (ServerRequestNo, &Answer)> {
        let open = self.server_requests.iter().filter(|(_, server_request)| !server_request.over);
        open.filter_map(|(no, server_request)| Some((*no, server_request.stored.as_ref()?)))
    }

    fn check_attach(&mut self, c: &Attach, o: Attached, now: Time, expected: &mut Expected) {
        let (no, after) = match c.at {
            Position::After { stream, seq } => match self.streams.get(&stream) {
                Some(model_stream) if model_stream.gone => return assert_eq!(o, Attached::Gone),
                Some(model_stream) if seq <= model_stream.last => (stream, seq),
                _ => return assert_eq!(o, Attached::UnknownEvent),
            },
            Position::Standalone => {
                let is_detached = |stream: &ModelStream| stream.reader.is_none();
                let has_undelivered =
                    |stream: &ModelStream| is_detached(stream) && stream.delivered < stream.last;
                let standalone: Vec<_> = self.held().filter(|(_, stream)| stream.standalone).collect();
                if let Some((no, stream)) = standalone.iter().find(|(_, stream)| has_undelivered(stream)) {
                    (*no, stream.delivered)
                } else if self.streams.get(&StreamNo(0)).is_none_or(is_detached) {
                    (StreamNo(0), self.streams.get(&StreamNo(0)).map_or(0, |stream| stream.delivered))
                } else if standalone.len() < self.rules.limits.standalone_streams {
                    let next = self.streams.keys().last().map_or(1, |no| no.0 + 1);
                    (StreamNo(next), 0)
                } else if let Some((no, stream)) = standalone.iter().find(|(_, stream)| is_detached(stream)) {
                    (*no, stream.delivered)
                } else {
                    return assert_eq!(o, Attached::OverLimit(Limit::StandaloneStreams));
                }
            }
        };
        let Attached::Attached { stream, connection, after: from } = o else { panic!("refused: {o:?}") };
        assert_eq!((stream, from), (no, after));
        assert!(self.newest_connection().is_none_or(|no| no < connection));
        let model_stream = if self.streams.contains_key(&no) {
            self.streams.get_mut(&no).unwrap()
        } else {
            self.standalone(no)
        };
        if model_stream.reader.replace((connection, c.node)).is_some() {
            expected.superseded.push((no, connection));
        }
        self.attached(now, expected);
    }

    /// Returns the stream that a connection reads, and records its delivery up to `through`.
    fn read_by(&mut self, no: StreamNo, connection: ConnNo, through: u64) -> Option<&mut ModelStream> {
        let stream = self.streams.get_mut(&no).filter(|stream| !stream.gone)?;
        stream.reader.filter(|(reader, _)| *reader == connection)?;
        stream.delivered = stream.delivered.max(through.min(stream.last));
        Some(stream)
    }

    fn check_deliver(&mut self, c: &Deliver, o: Delivered) {
        let read = self.read_by(c.stream, c.connection, c.through).is_some();
        assert_eq!(o, if read { Delivered::Delivered } else { Delivered::Stale });
    }

    fn check_detach(&mut self, c: &Detach, o: Detached, now: Time, expected: &mut Expected) {
        let Some(stream) = self.read_by(c.stream, c.connection, c.through) else {
            return assert_eq!(o, Detached::Stale);
        };
        assert_eq!(o, Detached::Detached);
        stream.reader = None;
        if stream.ended.is_none() && !self.has_reader() {
            assert!(self.detached.replace(now).is_none());
            expected.lifecycle.push(Lifecycle::Detached);
        }
    }

    fn check_sweep(&mut self, o: Swept, now: Time, session: &Session, expected: &mut Expected) {
        let timing = self.rules.timing.clone();
        if let Some(closed) = self.closed {
            let over = closed.plus(timing.linger);
            assert_eq!(o, if now >= over { Swept::Remove } else { Swept::Next(Some(over)) });
            return;
        }
        let (since, span, reason) = match self.detached {
            Some(at) => (at.max(self.active), timing.grace, CloseReason::GraceExpired),
            None => (self.active, timing.idle, CloseReason::IdleExpired),
        };
        let busy = self.in_flight().next().is_some() || self.has_reader();
        if !session.is_open() {
            assert!(!busy && now >= since.plus(span), "ended early");
            self.close(reason, now, expected);
        } else {
            assert!(busy || now < since.plus(span).plus(timing.touch), "did not end");
            let old = |stream: &ModelStream| stream.ended.is_some_and(|at| now >= at.plus(timing.retention));
            assert!(self.held().all(|(no, s)| !old(s) || !session.streams().contains_key(&no)));
        }
        assert_eq!(o, Swept::Next(session.next_check(&self.rules)));
    }
}
