//! What each outcome has to be, given what has happened so far.

use std::collections::BTreeSet;

use super::history::{AskStory, CallStory, End, Expected, History, StreamStory};
use crate::command::{
    Answer, Answered, Append, AppendOutcome, AskOpened, Attach, Attached, Begin, Begun, Cancelled, Closed,
    Collected, Deliver, Delivered, Detach, Detached, Duplicates, FailNode, Finished, Heir, NodeFailed,
    OpenAsk, Pass, Passed, Position, PutState, Released, Remind, Reminded, Started, StateGot, StatePut,
    Swept, Target, Touched, Withdrawn,
};
use crate::{AskNo, CallNo, Class, CloseReason, Command, ConnNo, Lifecycle, Limit, NodeId};
use crate::{Outcome, Request, Session, StreamNo, Time};

impl History {
    pub(super) fn judge(
        &mut self,
        command: &Command,
        outcome: &Outcome,
        now: Time,
        session: &Session,
    ) -> Expected {
        let mut expected = Expected::default();
        let open = self.closed.is_none();
        match (command, outcome) {
            (Command::Detach(c), Outcome::Detach(o)) => self.judge_detach(c, *o, now, &mut expected),
            (Command::Sweep(_), Outcome::Sweep(o)) => self.judge_sweep(*o, now, session, &mut expected),
            (Command::Touch(_), Outcome::Touch(Touched::NoSession))
            | (Command::Close(_), Outcome::Close(Closed::NoSession))
            | (Command::Begin(_), Outcome::Begin(Begun::NoSession))
            | (Command::Start(_), Outcome::Start(Started::NoSession))
            | (Command::Remind(_), Outcome::Remind(Reminded::NoSession))
            | (Command::Pass(_), Outcome::Pass(Passed::NoSession))
            | (Command::Release(_), Outcome::Release(Released::NoSession))
            | (Command::Append(_), Outcome::Append(AppendOutcome::NoSession))
            | (Command::Finish(_), Outcome::Finish(Finished::NoSession))
            | (Command::Cancel(_), Outcome::Cancel(Cancelled::NoSession))
            | (Command::FailNode(_), Outcome::FailNode(NodeFailed::NoSession))
            | (Command::OpenAsk(_), Outcome::OpenAsk(AskOpened::NoSession))
            | (Command::Answer(_), Outcome::Answer(Answered::NoSession))
            | (Command::Withdraw(_), Outcome::Withdraw(Withdrawn::NoSession))
            | (Command::Attach(_), Outcome::Attach(Attached::NoSession))
            | (Command::Deliver(_), Outcome::Deliver(Delivered::NoSession))
            | (Command::PutState(_), Outcome::PutState(StatePut::NoSession))
            | (Command::GetState(_), Outcome::GetState(StateGot::NoSession | StateGot::Left(_)))
            | (Command::Collect(_), Outcome::Collect(Collected::NoSession)) => assert!(!open),
            _ if !open => panic!("a closed session did something"),
            (Command::Touch(_), Outcome::Touch(o)) => {
                let over = self.crowd.over(&self.rules.limits);
                assert_eq!(*o, over.map_or(Touched::Touched, Touched::OverLimit));
                self.active = now;
            }
            (Command::Close(c), Outcome::Close(Closed::Closed)) => self.close(c.reason, now, &mut expected),
            (Command::Begin(c), Outcome::Begin(o)) => self.judge_begin(c, o, now, session, &mut expected),
            (Command::Start(c), Outcome::Start(o)) => {
                let is_theirs = |call: &&mut CallStory| !call.over && call.owner == c.node;
                let is_fenced = self.is_fenced(c.fence.as_ref());
                let call = self.calls.get_mut(&c.call).filter(is_theirs);
                let started = if is_fenced { Started::Fenced } else { Started::Started };
                assert_eq!(*o, if call.is_some() { started } else { Started::Gone });
                if let Some(request) = call.and_then(|call| call.request.as_mut()) {
                    request.again &= c.again || is_fenced;
                }
            }
            (Command::Pass(c), Outcome::Pass(o)) => self.judge_pass(c, *o, &mut expected),
            (Command::Release(c), Outcome::Release(o)) => {
                let is_left =
                    |call: &CallStory| call.is_errand() && call.request.as_ref().is_some_and(|it| it.again);
                let is_busy = self.in_flight().any(|(_, call)| call.owner == c.node && !is_left(call));
                let is_fenced = self.is_fenced(Some(&c.fence));
                let released = if is_busy { Released::Busy } else { Released::Released };
                assert_eq!(*o, if is_fenced { Released::Fenced } else { released });
                if *o == Released::Released {
                    self.state.remove(&*c.fence.key);
                }
            }
            (Command::Remind(c), Outcome::Remind(o)) => self.judge_remind(c, *o, &mut expected),
            (Command::Append(c), Outcome::Append(o)) => self.judge_append(c, *o, &mut expected),
            (Command::Finish(c), Outcome::Finish(o)) => {
                let Some(call) = self.calls.get(&c.call).filter(|call| !call.over) else {
                    assert_eq!(*o, Finished::AlreadyFinished);
                    return expected;
                };
                assert!(matches!(o, Finished::Finished { stream, .. } if *stream == call.stream));
                self.end(c.call, End::Answer(c.payload.clone()), &mut expected);
                self.active = now;
            }
            (Command::Cancel(c), Outcome::Cancel(o)) => {
                self.active = now;
                match self.named(&c.id)[..] {
                    [] => assert_eq!(*o, Cancelled::Nothing),
                    [call] => {
                        assert_eq!(*o, Cancelled::Cancelled { call, owner: self.calls[&call].owner });
                        self.end(call, End::Silence, &mut expected);
                    }
                    _ => assert_eq!(*o, Cancelled::Ambiguous),
                }
            }
            (Command::FailNode(c), Outcome::FailNode(o)) => {
                let failed = self.fail_node(c, now, &mut expected);
                assert_eq!(*o, failed);
            }
            (Command::OpenAsk(c), Outcome::OpenAsk(o)) => self.judge_ask(c, *o, &mut expected),
            (Command::Answer(c), Outcome::Answer(o)) => {
                self.active = now;
                self.judge_answer(c, *o, &mut expected);
            }
            (Command::Collect(c), Outcome::Collect(Collected::Collected)) => {
                for no in &c.asks {
                    if let Some(ask) = self.asks.get_mut(no).filter(|ask| ask.owner == c.node) {
                        ask.over |= ask.kept.is_some();
                    }
                }
            }
            (Command::Withdraw(c), Outcome::Withdraw(o)) => {
                let known = self.asks.get(&c.ask).is_some_and(|ask| !ask.over);
                assert_eq!(*o, if known { Withdrawn::Withdrawn } else { Withdrawn::Unknown });
                self.withdraw(|no, _| no == c.ask, &mut expected);
            }
            (Command::Attach(c), Outcome::Attach(o)) => self.judge_attach(c, *o, now, &mut expected),
            (Command::Deliver(c), Outcome::Deliver(o)) => self.judge_deliver(c, *o),
            (Command::PutState(c), Outcome::PutState(o)) => self.judge_put(c, o),
            (Command::GetState(c), Outcome::GetState(StateGot::Got(o))) => {
                let got = o.as_ref().map(|value| (value.version, value.bytes.clone()));
                assert_eq!(got.as_ref(), self.state.get(&c.key));
            }
            (command, outcome) => panic!("{outcome:?} is no outcome of {command:?}"),
        }
        expected
    }

    fn judge_pass(&mut self, c: &Pass, o: Passed, expected: &mut Expected) {
        let is_given = |call: &&CallStory| !call.over && call.owner == c.node && call.is_errand();
        let call = self.calls.get(&c.call).filter(is_given).filter(|_| c.to != c.node);
        let passed = if call.is_some() { Passed::Passed } else { Passed::Gone };
        assert_eq!(o, if self.is_fenced(c.fence.as_ref()) { Passed::Fenced } else { passed });
        if o == Passed::Passed {
            let request = self.calls[&c.call].request.clone();
            self.hand_over(c.call, c.to, request, expected);
        }
    }

    fn judge_remind(&self, c: &Remind, o: Reminded, expected: &mut Expected) {
        let reads = |stream| self.streams[&stream].reader.is_some_and(|(_, node)| node == c.node);
        for (no, call) in self.in_flight().filter(|(_, call)| call.owner != c.node) {
            let is_to_begin = call.request.as_ref().is_some_and(|request| request.again);
            if is_to_begin && call.from != call.owner && (call.from == c.node || reads(call.stream)) {
                expected.errands.push((no, call.owner));
            }
        }
        assert_eq!(o, Reminded::Reminded { calls: expected.errands.len() as u64 });
    }

    fn withdraw(&mut self, chosen: impl Fn(AskNo, &AskStory) -> bool, expected: &mut Expected) {
        for (no, ask) in self.asks.iter_mut().filter(|(_, ask)| !ask.over) {
            if chosen(*no, ask) {
                ask.over = true;
                expected.withdrawn.insert(*no);
            }
        }
    }

    fn end(&mut self, call: CallNo, end: End, expected: &mut Expected) {
        self.withdraw(|_, ask| ask.call == Some(call), expected);
        if !matches!(end, End::Answer(_)) {
            expected.stopped.push(call);
        }
        expected.ends.push((call, end));
        self.calls.get_mut(&call).unwrap().over = true;
    }

    fn close(&mut self, reason: CloseReason, now: Time, expected: &mut Expected) {
        let calls: Vec<CallNo> = self.in_flight().map(|(no, _)| no).collect();
        for call in calls {
            self.end(call, End::Error, expected);
        }
        self.withdraw(|_, _| true, expected);
        self.closed = Some(now);
        self.detached = None;
        expected.lifecycle.push(Lifecycle::Closed(reason));
    }

    /// The call goes on under another number.
    fn hand_over(&mut self, no: CallNo, heir: NodeId, request: Option<Request>, expected: &mut Expected) {
        self.withdraw(|_, ask| ask.call == Some(no), expected);
        expected.stopped.push(no);
        let next = CallNo(self.calls.keys().last().map_or(0, |no| no.0 + 1));
        let old = self.calls.get_mut(&no).unwrap();
        (old.over, old.taken) = (true, true);
        let (id, stream, from, answer_only) = (old.id.clone(), old.stream, old.owner, old.answer_only);
        let story =
            CallStory { id, stream, owner: heir, from, answer_only, request, over: false, taken: false };
        if heir != from {
            expected.errands.push((next, heir));
        }
        self.calls.insert(next, story);
    }

    fn fail_node(&mut self, c: &FailNode, now: Time, expected: &mut Expected) -> NodeFailed {
        let node = c.node;
        let again = |call: &CallStory| call.request.as_ref().is_some_and(|request| request.again);
        let of_node: Vec<(CallNo, bool)> = self
            .in_flight()
            .filter(|(_, call)| call.owner == node)
            .map(|(no, call)| (no, again(call)))
            .collect();
        let (mut handed, mut left) = (0, 0);
        for (no, _) in of_node.iter().filter(|(_, again)| *again) {
            match c.heir {
                Heir::Nobody => {}
                Heir::Node(heir) => {
                    let request = self.calls[no].request.clone();
                    let request = request.map(|request| Request { again: false, ..request });
                    self.hand_over(*no, heir, request, expected);
                    handed += 1;
                }
                Heir::Later => left += 1,
            }
        }
        let calls: Vec<CallNo> =
            of_node.iter().filter(|(_, again)| !again || c.heir == Heir::Nobody).map(|(no, _)| *no).collect();
        for call in &calls {
            self.end(*call, End::Error, expected);
            self.calls.get_mut(call).unwrap().taken = true;
        }
        if handed > 0 || !calls.is_empty() {
            self.active = now;
        }
        self.withdraw(|_, ask| ask.owner == node, expected);
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
        NodeFailed::Failed { calls: calls.len() as u64, handed, left }
    }

    fn came(&mut self, now: Time, expected: &mut Expected) {
        self.active = now;
        if self.detached.take().is_some() {
            expected.lifecycle.push(Lifecycle::Reattached);
        }
    }

    fn newest_connection(&self) -> Option<ConnNo> {
        self.streams.values().filter_map(|stream| Some(stream.reader?.0)).max()
    }

    fn judge_begin(&mut self, c: &Begin, o: &Begun, now: Time, session: &Session, expected: &mut Expected) {
        if c.again
            && let Some((_, first, stream)) = self.begun
            && let Some((_, call)) =
                self.in_flight().find(|(_, call)| (call.stream, call.from) == (stream, c.node))
        {
            if call.owner == c.owner {
                assert!(matches!(o, Begun::Begun { stream: s, first: f, .. } if (*s, *f) == (stream, first)));
            } else {
                assert_eq!(*o, Begun::Taken { stream });
            }
            return;
        }
        if c.again
            && let Some((begin, _, stream)) = &self.begun
            && begin.owner != begin.node
            && session.streams().contains_key(stream)
        {
            return assert_eq!(*o, Begun::Taken { stream: *stream });
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
            .find(|(i, id)| c.ids[..*i].contains(id) || (!isolate && !self.named(id).is_empty()));
        let unread = self.held().filter(|(_, stream)| !stream.is_spent()).count();
        let spent_left =
            self.held().filter(|(no, s)| s.is_spent() && session.streams().contains_key(no)).count();
        assert!(spent_left <= limits.delivered_streams);
        let gave_way = self.held().filter(|(no, _)| !session.streams().contains_key(no));
        let crowd = self.crowd.without(gave_way.map(|(_, stream)| stream.bytes()).sum());
        let refusal = if let Some((_, id)) = refused {
            Some(Begun::Duplicate(id.clone()))
        } else if self.in_flight().count() + c.ids.len() > limits.calls {
            Some(Begun::OverLimit(Limit::Calls))
        } else if unread >= limits.streams {
            Some(Begun::OverLimit(Limit::Streams))
        } else if session.bytes() > limits.session_bytes {
            assert_eq!(spent_left, 0, "refused for want of bytes that could be had");
            Some(Begun::OverLimit(Limit::SessionBytes))
        } else if let Some(limit) = crowd.over(limits) {
            assert_eq!(spent_left, 0, "refused for want of bytes that could be had");
            Some(Begun::OverLimit(limit))
        } else {
            None
        };
        let mut room = limits.kept_request_bytes - self.kept_requests();
        let mut requests = c.requests.clone();
        requests.resize(c.ids.len(), None);
        for request in &mut requests {
            let len = request.as_ref().map_or(0, |request| request.text.len() as u64);
            if len <= room {
                room -= len;
            } else {
                *request = None;
            }
        }
        let forgot = requests.iter().zip(&c.requests).any(|(kept, given)| kept != given);
        let refusal = refusal
            .or_else(|| (forgot && c.owner != c.node).then_some(Begun::OverLimit(Limit::KeptRequestBytes)));
        if let Some(refusal) = refusal {
            assert_eq!(*o, refusal);
            return;
        }
        let Begun::Begun { stream, first, connection } = *o else { panic!("refused: {o:?}") };
        assert!(self.streams.keys().all(|no| *no < stream));
        assert!(self.calls.keys().all(|no| *no < first));
        assert!(self.newest_connection().is_none_or(|no| no < connection));
        for ((i, id), request) in c.ids.iter().enumerate().zip(requests) {
            let (id, owner, from, answer_only) = (id.clone(), c.owner, c.node, c.answer_only);
            let no = CallNo(first.0 + i as u64);
            if owner != from && request.is_some() {
                expected.errands.push((no, owner));
            }
            let story =
                CallStory { id, stream, owner, from, answer_only, request, over: false, taken: false };
            self.calls.insert(no, story);
        }
        let reader = Some((connection, c.node));
        self.streams.insert(stream, StreamStory { reader, ..StreamStory::default() });
        self.begun = Some((c.clone(), first, stream));
        self.came(now, expected);
    }

    fn judge_append(&mut self, c: &Append, o: AppendOutcome, expected: &mut Expected) {
        let of_taken =
            matches!(c.target, Target::Call(no) if self.calls.get(&no).is_some_and(|call| call.taken));
        if of_taken || self.is_fenced(c.fence.as_ref()) {
            return assert_eq!(o, AppendOutcome::Fenced);
        }
        if let Some(limit) = self.no_room_beside(c.class, &c.payload).filter(|_| c.class == Class::Notice) {
            return assert_eq!(o, AppendOutcome::Full(limit));
        }
        let no = self.route(c.target);
        if !self.streams.contains_key(&no) {
            self.standalone(no);
        }
        let taken = self.room(no, c.class, &c.payload, &self.asked(no)).is_some();
        if taken || c.class == Class::Chatter {
            assert_eq!(o, AppendOutcome::Appended { stream: no, seq: self.streams[&no].last + 1 });
            expected.message = Some((no, c.class, c.payload.clone()));
        } else {
            assert_eq!(o, AppendOutcome::Full(Limit::StreamBytes));
        }
    }

    fn judge_ask(&mut self, c: &OpenAsk, o: AskOpened, expected: &mut Expected) {
        let call = match c.target {
            Target::Call(no) => Some(no),
            Target::Standalone => None,
        };
        if self.is_fenced(c.fence.as_ref()) {
            assert_eq!(o, AskOpened::Fenced);
        } else if call.is_some_and(|no| self.calls.get(&no).is_none_or(|call| call.over)) {
            assert_eq!(o, AskOpened::CallGone);
        } else if self.asks.values().filter(|ask| !ask.over).count() >= self.rules.limits.asks {
            assert_eq!(o, AskOpened::OverLimit(Limit::Asks));
        } else {
            let AskOpened::Opened { ask, stream, seq } = o else { panic!("refused: {o:?}") };
            assert_eq!(stream, self.route(c.target));
            assert!(self.asks.keys().all(|no| *no < ask));
            if !self.streams.contains_key(&stream) {
                self.standalone(stream);
            }
            self.asks.insert(ask, AskStory { call, stream, seq, owner: c.owner, kept: None, over: false });
            expected.opened = Some(ask);
            let payload = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, ask.wire_id());
            expected.message = Some((stream, Class::Ask, payload.into()));
        }
    }

    fn judge_answer(&mut self, c: &Answer, o: Answered, expected: &mut Expected) {
        self.answers += 1;
        self.last_answer = Some(c.clone());
        let kept: usize = self.kept().map(|(_, answer)| answer.message.len()).sum();
        let room = self.rules.limits.kept_answer_bytes - kept as u64;
        let Some(ask) = self.asks.get_mut(&c.ask).filter(|ask| !ask.over) else {
            return assert_eq!(o, Answered::Unknown);
        };
        let owner = ask.owner;
        let expect = match &ask.kept {
            Some(kept) if kept == c => Answered::Kept { owner },
            Some(_) => Answered::Before,
            None if owner == c.node => {
                ask.over = true;
                Answered::Answered { call: ask.call }
            }
            None if c.message.len() as u64 > room => Answered::OverLimit(Limit::KeptAnswerBytes),
            None => {
                ask.kept = Some(c.clone());
                expected.kept = Some(c.ask);
                Answered::Kept { owner }
            }
        };
        assert_eq!(o, expect);
    }

    /// Answers that wait for their owners.
    pub(super) fn kept(&self) -> impl Iterator<Item = (AskNo, &Answer)> {
        let open = self.asks.iter().filter(|(_, ask)| !ask.over);
        open.filter_map(|(no, ask)| Some((*no, ask.kept.as_ref()?)))
    }

    fn judge_attach(&mut self, c: &Attach, o: Attached, now: Time, expected: &mut Expected) {
        let (no, after) = match c.at {
            Position::After { stream, seq } => match self.streams.get(&stream) {
                Some(story) if story.gone => return assert_eq!(o, Attached::Gone),
                Some(story) if seq <= story.last => (stream, seq),
                _ => return assert_eq!(o, Attached::UnknownEvent),
            },
            Position::Standalone => {
                let free = |stream: &StreamStory| stream.reader.is_none();
                let waits = |stream: &StreamStory| free(stream) && stream.delivered < stream.last;
                let standalone: Vec<_> = self.held().filter(|(_, stream)| stream.standalone).collect();
                if let Some((no, stream)) = standalone.iter().find(|(_, stream)| waits(stream)) {
                    (*no, stream.delivered)
                } else if self.streams.get(&StreamNo(0)).is_none_or(free) {
                    (StreamNo(0), self.streams.get(&StreamNo(0)).map_or(0, |stream| stream.delivered))
                } else if standalone.len() < self.rules.limits.standalone_streams {
                    let next = self.streams.keys().last().map_or(1, |no| no.0 + 1);
                    (StreamNo(next), 0)
                } else if let Some((no, stream)) = standalone.iter().find(|(_, stream)| free(stream)) {
                    (*no, stream.delivered)
                } else {
                    return assert_eq!(o, Attached::OverLimit(Limit::StandaloneStreams));
                }
            }
        };
        let Attached::Attached { stream, connection, after: from } = o else { panic!("refused: {o:?}") };
        assert_eq!((stream, from), (no, after));
        assert!(self.newest_connection().is_none_or(|no| no < connection));
        let story = if self.streams.contains_key(&no) {
            self.streams.get_mut(&no).unwrap()
        } else {
            self.standalone(no)
        };
        if story.reader.replace((connection, c.node)).is_some() {
            expected.superseded.push((no, connection));
        }
        self.came(now, expected);
    }

    /// The stream that a connection reads. It has taken everything up to `through`.
    fn read_by(&mut self, no: StreamNo, connection: ConnNo, through: u64) -> Option<&mut StreamStory> {
        let stream = self.streams.get_mut(&no).filter(|stream| !stream.gone)?;
        stream.reader.filter(|(reader, _)| *reader == connection)?;
        stream.delivered = stream.delivered.max(through.min(stream.last));
        Some(stream)
    }

    fn judge_deliver(&mut self, c: &Deliver, o: Delivered) {
        let read = self.read_by(c.stream, c.connection, c.through).is_some();
        assert_eq!(o, if read { Delivered::Delivered } else { Delivered::Stale });
    }

    fn judge_detach(&mut self, c: &Detach, o: Detached, now: Time, expected: &mut Expected) {
        let Some(stream) = self.read_by(c.stream, c.connection, c.through) else {
            return assert_eq!(o, Detached::Stale);
        };
        assert_eq!(o, Detached::Detached);
        stream.reader = None;
        if stream.ended.is_none() && !self.somebody_reads() {
            assert!(self.detached.replace(now).is_none());
            expected.lifecycle.push(Lifecycle::Detached);
        }
    }

    fn judge_put(&mut self, c: &PutState, o: &StatePut) {
        let limits = &self.rules.limits;
        let there = self.state.get(&c.key);
        if there.map(|(version, _)| *version) != c.expected {
            assert!(matches!(o, StatePut::Conflict { current } if
                current.as_ref().map(|value| (value.version, value.bytes.clone())).as_ref() == there));
            return;
        }
        let mut after = self.state.clone();
        match &c.value {
            Some(bytes) => after.insert(c.key.clone(), (u64::MAX, bytes.clone())),
            None => after.remove(&c.key),
        };
        let size = after.iter().map(|(key, (_, bytes))| key.len() + bytes.len()).sum::<usize>() as u64;
        if after.len() > limits.state_entries || size > limits.state_bytes {
            assert_eq!(*o, StatePut::OverLimit(Limit::State));
            return;
        }
        let StatePut::Put { version } = *o else { panic!("refused: {o:?}") };
        assert_eq!(version.is_some(), c.value.is_some());
        if let Some(version) = version {
            assert!(version > self.last_version);
            self.last_version = version;
            after.get_mut(&c.key).unwrap().0 = version;
        }
        self.state = after;
    }

    fn judge_sweep(&mut self, o: Swept, now: Time, session: &Session, expected: &mut Expected) {
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
        let busy = self.in_flight().next().is_some() || self.somebody_reads();
        if !session.is_open() {
            assert!(!busy && now >= since.plus(span), "ended early");
            self.close(reason, now, expected);
        } else {
            assert!(busy || now < since.plus(span).plus(timing.touch), "did not end");
            let old = |stream: &StreamStory| stream.ended.is_some_and(|at| now >= at.plus(timing.retention));
            assert!(self.held().all(|(no, s)| !old(s) || !session.streams().contains_key(&no)));
        }
        assert_eq!(o, Swept::Next(session.next_check(&self.rules)));
    }
}
